"""A stand-in for ADNI: ventricles and hippocampus follow diagnosis and age, the insula follows sex."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rmdn.data.progress import track
from rmdn.data.simulate.brain import Brains, Effects
from rmdn.data.simulate.draw import ages, dealt
from rmdn.data.simulate.folder import WORDS, stand_in_folder
from rmdn.data.study import STAND_IN
from rmdn.errors import SettingError
from rmdn.extras import need

# The paper's numbers of images, by group and sex, in its five bins of acquisition year.
IMAGES = {
    ("AD", "M"): (2, 52, 214, 125, 20),
    ("AD", "F"): (4, 26, 110, 95, 16),
    ("CN", "M"): (71, 238, 410, 208, 206),
    ("CN", "F"): (81, 222, 402, 221, 197),
    ("MCI", "M"): (117, 145, 140, 81, 98),
    ("MCI", "F"): (82, 84, 106, 55, 52),
}
BINS = ((2006, 2007, 2008, 2009, 2010), (2011,), (2012,), (2013,), (2014, 2015, 2016, 2017))
IMAGES_PER_SUBJECT = 3880 / 573
AGES = {"AD": (75.3, 7.5), "CN": (75.8, 5.0), "MCI": (74.7, 7.4)}  # at entry: Petersen et al., 2010
SEVERITY = {"CN": 0.0, "MCI": 0.5, "AD": 1.0}
DESCRIPTION = "MPR; GradWarp; B1 Correction; N3; Scaled"
# Known effects: of severity (CN 0, MCI .5, AD 1), of ten years of age above 75, and of sex.
EFFECTS = {
    "hippocampus smaller with severity": 0.35,
    "hippocampus darker with severity": 0.20,
    "ventricles larger with severity": 0.20,
    "hippocampus smaller per ten years": 0.10,
    "hippocampus darker per ten years": 0.08,
    "ventricles larger per ten years": 0.25,
    "insula lighter in men": 0.10,
}


def simulate_adni(folder: str | Path, n: int = 300, seed: int = 0, resolution: int = 3) -> None:
    """Write `n` scans as a collection's CSV and NIfTI files in ADNI's folders (millimetres: `resolution`)."""
    if n < 100:
        raise SettingError(f"n={n}: take 100 scans at least, so that each of the five stages has some.")
    scans = draw_scans(n, np.random.default_rng(seed))
    brains = Brains(resolution)
    with stand_in_folder(folder, {"data": "ADNI", "n": n, "seed": seed, "effects": EFFECTS}) as partial:
        _collection(scans).to_csv(partial / "ADNI_stand_in_collection.csv", index=False)
        for i, scan in enumerate(track(scans.to_dict("records"), "Simulating ADNI", n)):
            person = np.random.default_rng([seed, 0, scan["person"]])
            noise = np.random.default_rng([seed, 1, i])
            brains.save(brains.draw(effects_of(scan), person, noise), partial / _path(scan))


def effects_of(scan: Mapping[str, Any]) -> Effects:
    """What a person of this group, age and sex shows."""
    ill, decades = SEVERITY[scan["group"]], (scan["age"] - 75) / 10
    e = EFFECTS
    smaller = ill * e["hippocampus smaller with severity"] + decades * e["hippocampus smaller per ten years"]
    darker = ill * e["hippocampus darker with severity"] + decades * e["hippocampus darker per ten years"]
    larger = ill * e["ventricles larger with severity"] + decades * e["ventricles larger per ten years"]
    insula = e["insula lighter in men"] * (0.5 if scan["sex"] == "M" else -0.5)
    return Effects({"hippocampus": -smaller, "ventricles": larger}, {"hippocampus": -darker, "insula": insula})


def draw_scans(n: int, rng: np.random.Generator) -> Any:
    """A row a scan: group, sex, year, age, person, subject and the numbers of its file."""
    pandas = need("pandas", "study")
    shares = {
        f"{group},{sex},{k}": float(count) for (group, sex), counts in IMAGES.items() for k, count in enumerate(counts)
    }
    cells = [cell.split(",") for cell in dealt(n, shares, rng)]
    scans = pandas.DataFrame(cells, columns=["group", "sex", "bin"])
    scans["year"] = [int(rng.choice(BINS[int(k)])) for k in scans["bin"]]
    scans["person"], people = -1, 0
    for (group, _), part in scans.groupby(["group", "sex"]):
        number = max(1, round(len(part) / IMAGES_PER_SUBJECT))
        at_2012 = ages(number, *AGES[group], 55, 95, rng)
        own = np.arange(len(part)) % number
        scans.loc[part.index, "person"] = people + own
        scans.loc[part.index, "age"] = (at_2012[own] + part["year"] - 2012).round()
        people += number
    sites = np.array([f"{site:03d}" for site in rng.choice(np.arange(2, 140), 50, replace=False)])
    rids = rng.choice(np.arange(1, 9999), people, replace=False)
    subject = [f"{rng.choice(sites)}_S_{rid:04d}" for rid in rids]
    scans["subject"] = [subject[person] for person in scans["person"]]
    scans["image"] = rng.choice(np.arange(30_000, 900_000), n, replace=False)
    scans["month"], scans["day"] = rng.integers(1, 13, n), rng.integers(1, 29, n)
    return scans.sort_values(["subject", "year", "month", "day"]).reset_index(drop=True)


def _collection(scans: Any) -> Any:
    pandas = need("pandas", "study")
    visit = scans.groupby("subject").cumcount()
    return pandas.DataFrame(
        {
            "Image Data ID": "I" + scans["image"].astype(str),
            "Subject": scans["subject"],
            "Group": scans["group"],
            "Sex": scans["sex"],
            "Age": scans["age"].astype(int),
            "Visit": ["sc" if v == 0 else f"m{6 * v:02d}" for v in visit],
            "Modality": "MRI",
            "Description": DESCRIPTION,
            "Type": "Processed",
            "Acq Date": [f"{s.month}/{s.day}/{s.year}" for s in scans.itertuples()],
            "Format": "NiFTI",
            "Downloaded": "",
            STAND_IN: WORDS,
        }
    )


def _path(scan: dict[str, Any]) -> Path:
    folder = DESCRIPTION.replace("; ", "__").replace(" ", "_")
    day = f"{scan['year']}-{scan['month']:02d}-{scan['day']:02d}"
    series, image = f"S{scan['image'] // 3}", f"I{scan['image']}"
    stamp = f"{day.replace('-', '')}120000000"
    name = f"ADNI_{scan['subject']}_MR_{folder}_Br_{stamp}_{series}_{image}.nii"
    return Path("ADNI", scan["subject"], folder, f"{day}_12_00_00.0", series, name)

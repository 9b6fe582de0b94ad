"""A stand-in for ABCD release 5: the cerebellum follows the puberty score, the insula follows sex."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rmdn.data.abcd import BASELINE
from rmdn.data.progress import track
from rmdn.data.simulate.brain import Brains, Effects
from rmdn.data.simulate.draw import dealt, whole_numbers
from rmdn.data.simulate.folder import WORDS, stand_in_folder
from rmdn.data.study import STAND_IN
from rmdn.errors import SettingError
from rmdn.extras import need

FOLLOW_UP = "2_year_follow_up_y_arm_1"
SEX_SHARES = {"1": 5385, "2": 5036}  # 1 boys, 2 girls; the paper's counts
PUBERTY = {"1": (1.372, 0.622), "2": (2.182, 0.907)}  # mean and deviation of the score, 1 to 5
AGES = {"1": (119.18, 7.562), "2": (118.80, 7.525)}  # months
MONTHS = range(107, 134)  # nine and ten years old
RACES = {  # white, black, Hispanic, Asian, other: 1 to 5 in ABCD's tables
    "1": {"1": 2953, "2": 702, "3": 1060, "4": 103, "5": 567},
    "2": {"1": 2659, "2": 735, "3": 999, "4": 114, "5": 529},
}
SITES = 21
SIBLINGS = 0.15  # share of children whose family has another child in the study
NO_SCORE = 0.03  # share of children without a puberty score
# Known effects: confounder (a point of the score above the mean of all) and main effect (boys against girls).
EFFECTS = {
    "cerebellum lighter per point": 0.06,
    "cerebellum larger per point": 0.03,
    "insula lighter in boys": 0.10,
}
MEAN_SCORE = 1.76


def simulate_abcd(folder: str | Path, n: int = 200, seed: int = 0, resolution: int = 3) -> None:
    """Write `n` children: ABCD's three tables and a T1-weighted NIfTI each (`resolution` in millimetres)."""
    if n < 20:
        raise SettingError(f"n={n}: take 20 children at least, for the tables' distributions to mean anything.")
    rng = np.random.default_rng(seed)
    children = draw_children(n, rng)
    brains = Brains(resolution)
    with stand_in_folder(folder, {"data": "ABCD", "n": n, "seed": seed, "effects": EFFECTS}) as partial:
        _write_tables(partial, children, rng)
        for i, child in enumerate(track(children.to_dict("records"), "Simulating ABCD", n)):
            person, scan = (np.random.default_rng([seed, i, part]) for part in (0, 1))
            name = "sub-" + child["src_subject_id"].replace("_", "")
            file = f"{name}_ses-baselineYear1Arm1_T1w.nii.gz"
            path = partial / "images" / name / "ses-baselineYear1Arm1" / "anat" / file
            brains.save(brains.draw(effects_of(child), person, scan), path)


def effects_of(child: Mapping[str, Any]) -> Effects:
    """What a child of this sex and puberty score shows."""
    points, boy = child["score"] - MEAN_SCORE, child["sex"] == "1"
    return Effects(
        grow={"cerebellum": EFFECTS["cerebellum larger per point"] * points},
        light={
            "cerebellum": EFFECTS["cerebellum lighter per point"] * points,
            "insula": EFFECTS["insula lighter in boys"] * (0.5 if boy else -0.5),
        },
    )


def draw_children(n: int, rng: np.random.Generator) -> Any:
    """A row a child: sex, score, age in months, race, identifier, family and site."""
    pandas = need("pandas", "study")
    parts = []
    sexes = dealt(n, SEX_SHARES, rng)
    for sex in SEX_SHARES:
        k = int((sexes == sex).sum())
        part = {
            "sex": sex,
            "score": whole_numbers(k, *PUBERTY[sex], range(1, 6), rng),
            "age": whole_numbers(k, *AGES[sex], MONTHS, rng),
            "race": dealt(k, RACES[sex], rng),
        }
        parts.append(pandas.DataFrame(part))
    children = pandas.concat(parts, ignore_index=True).sample(frac=1, random_state=seed_of(rng))
    children = children.reset_index(drop=True)
    letters = np.array(list("0123456789ABCDEFGHJKLMNPRTUVWXYZ"))
    codes = dict.fromkeys("".join(rng.choice(letters, 8)) for _ in range(2 * n + 10))
    children["src_subject_id"] = [f"NDAR_INV{code}" for code in list(codes)[:n]]
    alone = round(n * (1 - SIBLINGS / 2))  # the rest are second children of the first families
    children["family"] = [i if i < alone else i - alone for i in range(n)]
    site_of = dealt(alone, {f"site{i + 1:02d}": 1.0 for i in range(SITES)}, rng)
    children["site"] = site_of[children["family"]]
    return children


def _write_tables(folder: Path, children: Any, rng: np.random.Generator) -> None:
    pandas = need("pandas", "study")
    n = len(children)
    first = {"src_subject_id": children["src_subject_id"], "eventname": BASELINE}
    # Later visits, which the adapter must leave out.
    again = children.sample(frac=0.3, random_state=seed_of(rng))
    later = {"src_subject_id": again["src_subject_id"], "eventname": FOLLOW_UP}
    demo = pandas.DataFrame({**first, "demo_sex_v2": children["sex"], "race_ethnicity": children["race"]})
    place = {"site_id_l": children["site"], "rel_family_id": children["family"] + 1}
    tracking = pandas.concat(
        [
            pandas.DataFrame({**first, **place, "interview_age": children["age"]}),
            pandas.DataFrame({**later, "site_id_l": again["site"], "interview_age": again["age"] + 24}),
        ]
    )
    known = rng.permutation(n) >= round(NO_SCORE * n)
    score = pandas.DataFrame({**first, **_score_columns(children, children["score"].where(known))})
    older = np.minimum(again["score"] + 1, 5)
    puberty = pandas.concat([score, pandas.DataFrame({**later, **_score_columns(again, older)})])
    files = {
        "abcd-general/abcd_p_demo.csv": demo,
        "abcd-general/abcd_y_lt.csv": tracking.astype({"rel_family_id": "Int64"}),
        "physical-health/ph_p_pds.csv": puberty,
    }
    for name, table in files.items():
        path = folder / "core" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        table.assign(**{STAND_IN: WORDS}).to_csv(path, index=False)


def _score_columns(children: Any, score: Any) -> dict[str, Any]:
    score = score.astype("Int64")
    columns = {"pubertal_sex_p": children["sex"]}
    for sex, name in (("1", "male"), ("2", "female")):
        columns[f"pds_p_ss_{name}_category_2"] = score.where(children["sex"] == sex)
    return columns


def seed_of(rng: np.random.Generator) -> int:
    """A seed for pandas, from our generator."""
    return int(rng.integers(2**31))

"""A stand-in for HAM10000: lesions by diagnosis on skin that ages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rmdn.data.progress import track
from rmdn.data.simulate.draw import ages, dealt
from rmdn.data.simulate.folder import WORDS, stand_in_folder
from rmdn.data.simulate.skin import draw_lesion
from rmdn.data.study import STAND_IN
from rmdn.errors import SettingError
from rmdn.extras import need

# Published counts of the 10,015 images.
DIAGNOSES = {"nv": 6705, "mel": 1113, "bkl": 1099, "bcc": 514, "akiec": 327, "vasc": 142, "df": 115}
SEXES = {"male": 5406, "female": 4552, "unknown": 57}
PLACES = {
    "back": 2192,
    "lower extremity": 2077,
    "trunk": 1404,
    "upper extremity": 1118,
    "abdomen": 1022,
    "face": 745,
    "chest": 407,
    "foot": 319,
    "unknown": 234,
    "neck": 168,
    "scalp": 128,
    "hand": 90,
    "ear": 56,
    "genital": 48,
    "acral": 7,
}
METHODS = {"histo": 5340, "follow_up": 3704, "consensus": 902, "confocal": 69}
# Approximate mean and deviation of age, in years, by diagnosis; the table holds multiples of 5.
AGES = {
    "akiec": (66.5, 11.5),
    "bcc": (66.8, 13.5),
    "bkl": (64.3, 13.5),
    "df": (52.0, 14.0),
    "mel": (60.8, 15.0),
    "nv": (46.5, 16.0),
    "vasc": (51.0, 20.0),
}
NO_AGE = 57 / 10015
IMAGES_PER_LESION = {"1": 5514, "2": 1423, "3": 490, "4": 34, "5": 5, "6": 4}
FIRST_IMAGE = 24306  # of the real names ISIC_0024306 to ISIC_0034320
EFFECTS = {
    "skin": "darker and yellower by a share of (age - 50) / 100, coarser with age",
    "lesion": "colour, border, texture by diagnosis alone",
}


def simulate_ham10000(folder: str | Path, n: int = 500, seed: int = 0, size: tuple[int, int] = (300, 225)) -> None:
    """Write `n` images (`size`: width, height) in HAM10000's two folders, and its table of metadata."""
    pillow = need("PIL.Image", "imaging")
    rows = patients(n, seed)
    with stand_in_folder(folder, {"data": "HAM10000", "n": n, "seed": seed, "effects": EFFECTS}) as partial:
        parts = [partial / f"HAM10000_images_part_{part}" for part in (1, 2)]
        for part in parts:
            part.mkdir()
        for i, row in enumerate(track(rows.to_dict("records"), "Simulating HAM10000", n)):
            lesion = np.random.default_rng([seed, 0, int(row["lesion_id"][4:])])
            view = np.random.default_rng([seed, 1, i])
            picture = draw_lesion(row["dx"], row["true_age"], size, lesion, view)
            path = parts[i * 2 // n] / f"{row['image_id']}.jpg"
            pillow.fromarray(picture).save(path, quality=90)
        table = rows.drop(columns="true_age").assign(dataset="rmdn_stand_in", **{STAND_IN: WORDS})
        table.to_csv(partial / "HAM10000_metadata.csv", index=False)


def patients(n: int, seed: int = 0) -> Any:
    """The table of such a stand-in alone, a row an image; `true_age` is known where `age` is missing."""
    if n < 100:
        raise SettingError(f"n={n}: take 100 images at least, so that the rare diagnoses occur.")
    pandas, rng = need("pandas", "study"), np.random.default_rng(seed)
    parts, first = [], 0
    for dx, count in zip(*np.unique(dealt(n, DIAGNOSES, rng), return_counts=True), strict=True):
        lesion = _lesions(int(count), rng)
        lesions = int(lesion.max()) + 1
        own = {
            "age": np.clip(5 * np.round(ages(lesions, *AGES[str(dx)], 0, 85, rng) / 5), 5, 85),
            "sex": dealt(lesions, SEXES, rng),
            "localization": dealt(lesions, PLACES, rng),
            "dx_type": dealt(lesions, METHODS, rng) if dx == "nv" else np.repeat("histo", lesions),
        }
        part = pandas.DataFrame({name: values[lesion] for name, values in own.items()})
        parts.append(part.assign(dx=str(dx), lesion_id=[f"HAM_{first + k:07d}" for k in lesion]))
        first += lesions
    rows = pandas.concat(parts, ignore_index=True)
    rows = rows.iloc[rng.permutation(n)].reset_index(drop=True)
    rows["image_id"] = [f"ISIC_{FIRST_IMAGE + i:07d}" for i in range(n)]
    rows["true_age"] = rows["age"]
    rows.loc[rng.permutation(n)[: max(1, round(n * NO_AGE))], "age"] = np.nan
    return rows[["lesion_id", "image_id", "dx", "dx_type", "age", "sex", "localization", "true_age"]]


def _lesions(images: int, rng: np.random.Generator) -> np.ndarray:
    """(images,) the lesion of each image of one diagnosis, as many images a lesion as published."""
    sizes = dealt(images, {k: float(v) for k, v in IMAGES_PER_LESION.items()}, rng).astype(np.int64)
    return np.repeat(np.arange(images), sizes)[:images]

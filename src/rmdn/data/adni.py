"""ADNI as it comes: an image collection's CSV with nested folders of NIfTI, or BIDS (docs/data-adni.md)."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

from rmdn.cells import some, to_levels
from rmdn.data.images import Images
from rmdn.data.stages import by_bins
from rmdn.data.study import STAND_IN, Columns, Split, Study, assemble
from rmdn.data.table import need_columns, read_bids, read_file
from rmdn.errors import InputError, RMDNWarning
from rmdn.extras import need
from rmdn.schema import Category, Number, Schema

DIAGNOSES = ("CN", "MCI", "AD")
# ADNI's finer groups, read as the paper's three. SMC: memory concerns, but cognitively normal.
GROUPS = {"CN": "CN", "SMC": "CN", "MCI": "MCI", "EMCI": "MCI", "LMCI": "MCI", "AD": "AD", "Dementia": "AD"}
COLLECTION = ("Image Data ID", "Subject", "Group", "Sex", "Age", "Modality", "Acq Date")
YEARS = (2011, 2012, 2013, 2014)  # first year of the second to the fifth bin
SIZE = (64, 64, 64)
# What a BIDS table may call each column; the first that is there is taken.
BIDS_NAMES = {
    "label": ("diagnosis", "group", "diagnosis_sc"),
    "age": ("age", "age_bl"),
    "sex": ("sex",),
    "date": ("examination_date", "acq_time", "acq_date", "scan_date"),
}


def load(
    folder: str | Path,
    *,
    fold: int = 0,
    seed: int = 0,
    confounders: Schema | None = None,
    images: Images | None = None,
) -> Study:
    """CN, MCI and AD, confounded by age and sex, in the paper's five bins of acquisition year.

    The paper does not say how its test sets were drawn: here a fifth of the subjects, the same in all stages.
    """
    rows, note = read_rows(Path(folder))
    return assemble(
        "ADNI",
        rows,
        Columns(subject="subject", site="site"),
        confounders or Schema((Number("age", missing="drop"), Category("sex", missing="drop"))),
        stages=by_bins("year", YEARS, whole_numbers=True),
        split=Split(by=("subject",), fold=fold, seed=seed),
        images=images or Images(size=SIZE),
        label_names=DIAGNOSES,
        notes=note,
    )


def read_rows(folder: Path) -> tuple[Any, tuple[str, ...]]:
    """One row a scan: image, subject, site, label (CN, MCI, AD), age, sex, date, year; and what was left out."""
    rows = _from_bids(folder) if (folder / "participants.tsv").is_file() else _from_collection(folder)
    rows, note = _three_groups(rows)
    rows["year"] = _years(list(rows["date"]))
    return rows, note


def _from_collection(folder: Path) -> Any:
    """Rows of every collection CSV in the folder, each with its NIfTI file, found by the image's number."""
    pandas = need("pandas", "study")
    tables = [(path, read_file(path)) for path in sorted(folder.glob("*.csv"))]
    tables = [(path, rows) for path, rows in tables if "Image Data ID" in rows]
    if not tables:
        raise InputError(
            f"{folder} holds neither participants.tsv nor a CSV with the column 'Image Data ID'. "
            "Download the collection's CSV beside its images."
        )
    for path, rows in tables:
        need_columns(rows, COLLECTION, path)
    rows = pandas.concat([rows for _, rows in tables], ignore_index=True)
    rows = rows[rows["Modality"] == "MRI"].drop_duplicates("Image Data ID").reset_index(drop=True)
    found = {_image_number(path.name): path for path in sorted(folder.rglob("*.nii*"))}
    numbers = [str(cell).lstrip("I") for cell in to_levels(rows["Image Data ID"])]
    table = pandas.DataFrame(
        {
            "image": [
                str(found.get(number, folder / "ADNI" / person / f"I{number}.nii"))
                for number, person in zip(numbers, rows["Subject"], strict=True)
            ],
            "subject": rows["Subject"],
            "site": [str(person).partition("_S_")[0] for person in rows["Subject"]],
            "label": rows["Group"],
            "age": rows["Age"],
            "sex": rows["Sex"],
            "date": rows["Acq Date"],
        }
    )
    return table.assign(**{STAND_IN: rows[STAND_IN]}) if STAND_IN in rows else table


def _from_bids(folder: Path) -> Any:
    rows, _ = read_bids(folder)
    chosen = {name: next((n for n in names if n in rows), None) for name, names in BIDS_NAMES.items()}
    absent = [f"{name} ({' or '.join(BIDS_NAMES[name])})" for name, column in chosen.items() if column is None]
    if absent:
        raise InputError(f"{folder}: participants.tsv and the sessions lack {'; '.join(absent)}.")
    for name, column in chosen.items():
        rows[name] = rows[column]
    rows["image"] = [str(folder / path) for path in rows["image"]]
    rows["subject"] = rows["participant_id"]
    sites = [re.search(r"(\d{3})S\d+$", str(person).replace("_", "")) for person in rows["subject"]]
    rows["site"] = [match.group(1) if match else "n/a" for match in sites]
    return rows


def _image_number(name: str) -> str:
    """45108 of ADNI_002_S_0295_MR_MPR..._S13408_I45108.nii."""
    match = re.search(r"I(\d+)\.nii(\.gz)?$", name)
    return match.group(1) if match else name


def _three_groups(rows: Any) -> tuple[Any, tuple[str, ...]]:
    labels = [GROUPS.get(str(cell)) for cell in to_levels(rows["label"])]
    keep = [label is not None for label in labels]
    rows = rows.assign(label=labels)
    if all(keep):
        return rows, ()
    note = f"{keep.count(False)} of {len(keep)} rows left out: their group is none of {', '.join(GROUPS)}."
    warnings.warn(note, RMDNWarning, stacklevel=4)
    return rows[keep].reset_index(drop=True), (note,)


def _years(dates: list[Any]) -> list[int]:
    """Years of 4/18/2006 (the collection's way) and of 2006-04-18 (BIDS')."""
    years = [re.search(r"^(?:\d{1,2}/\d{1,2}/)?((?:19|20)\d\d)\b", str(date)) for date in dates]
    bad = [row for row, year in enumerate(years) if year is None]
    if bad:
        raise InputError(f"No year is found in the dates of {len(bad)} rows: rows {some(bad)}.")
    return [int(year.group(1)) for year in years if year is not None]

"""ABCD release 5 as it comes: three tables and NIfTI files named by subject (see docs/data-abcd.md)."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

from rmdn.cells import some, to_levels
from rmdn.data.images import Images, small_motions
from rmdn.data.study import STAND_IN, Columns, Split, Study, assemble
from rmdn.data.table import need_columns, read_file
from rmdn.errors import InputError, RMDNWarning
from rmdn.schema import Number, Schema

BASELINE = "baseline_year_1_arm_1"
KEYS = ("src_subject_id", "eventname")
TABLES = {
    "abcd_p_demo.csv": ("demo_sex_v2",),
    "abcd_y_lt.csv": ("site_id_l", "rel_family_id", "interview_age"),
    "ph_p_pds.csv": (),
}
SEXES = {"1": "boy", "2": "girl"}
# The summary category 1 to 5; release 5 carries a corrected one (`_2`), which is taken where it is there.
PUBERTY = {"boy": "pds_p_ss_male_category", "girl": "pds_p_ss_female_category"}
SIZE = (64, 64, 64)


def load(
    folder: str | Path,
    *,
    fold: int = 0,
    folds: int = 5,
    by: tuple[str, ...] = ("subject", "site"),
    seed: int = 0,
    confounders: Schema | None = None,
    images: Images | None = None,
) -> Study:
    """Boys and girls at the first visit, confounded by the puberty score; one fold of the paper's five.

    Rows that share a subject or a site are in one fold; siblings too with `by=("subject", "site", "family")`.
    Children without a score are left out; training images move by a voxel and a degree, and flip.
    """
    rows, notes = read_rows(Path(folder))
    return assemble(
        "ABCD",
        rows,
        Columns(label="sex", subject="subject", site="site"),
        confounders or Schema((Number("pds", missing="drop"),)),
        split=Split(by=by, folds=folds, fold=fold, seed=seed),
        images=images or Images(size=SIZE, augment=small_motions()),
        label_names=("girl", "boy"),
        notes=notes,
    )


def read_rows(folder: Path) -> tuple[Any, tuple[str, ...]]:
    """One row a child at the first visit: image, subject, site, family, sex, age in months, pds, race where it is told."""
    demo, tracking, puberty = (_baseline(folder, name, needed) for name, needed in TABLES.items())
    rows = demo.merge(tracking, on="src_subject_id", suffixes=("", " (lt)"))
    rows = rows.merge(puberty, on="src_subject_id", how="left", suffixes=("", " (pds)"))
    rows["sex"] = [SEXES.get(str(cell)) for cell in to_levels(rows["demo_sex_v2"])]
    rows["subject"] = [_key(cell) for cell in rows["src_subject_id"]]
    found = _scans(folder)
    rows["image"] = [found.get(subject) for subject in rows["subject"]]
    rows, unknown = _keep(rows, "sex", "neither 1 (male) nor 2 (female) is recorded in demo_sex_v2")
    rows, unseen = _keep(rows, "image", "no NIfTI file carries their identifier")
    if not len(rows):
        raise InputError(f"{folder}: no NIfTI file under it carries the identifier of a child in the tables.")
    columns = {sex: next((c for c in (f"{name}_2", name) if c in rows), None) for sex, name in PUBERTY.items()}
    if None in columns.values():
        raise InputError(f"ph_p_pds.csv lacks {' or '.join(PUBERTY.values())} (with or without _2).")
    rows["pds"] = [row[columns[row["sex"]]] for row in rows.to_dict("records")]
    names = {"site_id_l": "site", "rel_family_id": "family", "interview_age": "age", "race_ethnicity": "race"}
    rows = rows.rename(columns=names)
    kept = ["image", "subject", "site", "family", "sex", "age", "pds"]
    return rows[[*kept, *(name for name in ("race", STAND_IN) if name in rows)]], (*unknown, *unseen)


def _baseline(folder: Path, name: str, needed: tuple[str, ...]) -> Any:
    tables = sorted(folder.rglob(name))
    if not tables:
        raise InputError(f"{folder} holds no {name}, in no folder under it. It comes with ABCD's release 5.")
    rows = read_file(tables[0], texts=("site_id_l", "rel_family_id", "demo_sex_v2"))
    need_columns(rows, (*KEYS, *needed), tables[0])
    rows = rows[rows["eventname"] == BASELINE]
    twice = rows["src_subject_id"][rows["src_subject_id"].duplicated()]
    if len(twice):
        raise InputError(f"{tables[0]} has more than one first visit of {some(sorted(set(twice)))}.")
    return rows


def _scans(folder: Path) -> dict[str, str]:
    """The T1-weighted scan of each child; the first visit's where several are there."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*.nii*"), key=lambda path: ("baseline" not in path.name.lower(), path)):
        match = re.match(r"(?:sub-)?(NDAR_?INV[A-Za-z0-9]{8})(.*)\.nii(?:\.gz)?$", path.name)
        if match and (not match[2] or "t1" in match[2].lower()):
            found.setdefault(_key(match[1]), str(path))
    return found


def _key(identifier: Any) -> str:
    """NDARINV00HEV6HB, of NDAR_INV00HEV6HB in tables and sub-NDARINV00HEV6HB in folders."""
    return str(identifier).strip().removeprefix("sub-").replace("_", "").upper()


def _keep(rows: Any, name: str, why: str) -> tuple[Any, tuple[str, ...]]:
    keep = rows[name].notna()
    if keep.all():
        return rows, ()
    note = f"{(~keep).sum()} of {len(rows)} children left out: {why}."
    warnings.warn(f"{note} They are {some(sorted(rows['subject'][~keep]))}.", RMDNWarning, stacklevel=4)
    return rows[keep].reset_index(drop=True), (note,)

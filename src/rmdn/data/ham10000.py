"""HAM10000 as it comes: HAM10000_metadata and two folders of JPEG files (see docs/data-ham10000.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rmdn.data.images import Images
from rmdn.data.stages import HAM10000_AGES, HAM10000_SHARES, by_shares
from rmdn.data.study import Columns, Split, Study, assemble
from rmdn.data.table import need_columns, read_file
from rmdn.errors import InputError, SettingError
from rmdn.schema import Number, Schema

DIAGNOSES = ("akiec", "bcc", "bkl", "df", "mel", "nv", "vasc")
METADATA = ("HAM10000_metadata.csv", "HAM10000_metadata", "HAM10000_metadata.tab")
SIZE = (64, 64)


def load(
    folder: str | Path,
    *,
    split: str = "lesion",
    missing_age: str = "spread",
    fold: int = 0,
    seed: int = 0,
    confounders: Schema | None = None,
    images: Images | None = None,
) -> Study:
    """Seven diagnoses, confounded by age, in the paper's five stages of rising age.

    `split="lesion"` holds a fifth of the lesions out, all images of a lesion on one side; "random" is the
    paper's 80/20 over images, in which images of one lesion are on both sides.
    `missing_age`: "spread" deals images without an age evenly to the stages, with the training mean as their
    age, so that each image is used once; "drop" leaves them out; "error" refuses them.
    """
    if split not in ("lesion", "random"):
        raise SettingError(f"split={split!r} is neither 'lesion' nor 'random'.")
    if missing_age not in ("spread", "drop", "error"):
        raise SettingError(f"missing_age={missing_age!r} is none of spread, drop, error.")
    policy = "mean" if missing_age == "spread" else missing_age
    stages = by_shares("age", HAM10000_AGES, HAM10000_SHARES, seed, "spread" if policy == "mean" else "error")
    by_lesion = split == "lesion"
    return assemble(
        "HAM10000",
        read_rows(Path(folder)),
        Columns(label="dx", subject="lesion_id" if by_lesion else None),
        confounders or Schema((Number("age", missing=policy),)),
        stages=stages,
        split=Split(by=("lesion_id",) if by_lesion else (), fold=fold, seed=seed),
        images=images or Images(size=SIZE),
        label_names=DIAGNOSES,
        notes=() if by_lesion else ("Split at random over images: some lesions are in training and in test.",),
    )


def read_rows(folder: Path) -> Any:
    """The metadata, with the path of each image in the column `image`."""
    tables = [folder / name for name in METADATA if (folder / name).is_file()]
    if not tables:
        raise InputError(f"{folder} holds no {METADATA[0]}. Put it beside the two folders of images.")
    rows = read_file(tables[0], separator="\t" if tables[0].suffix == ".tab" else ",")
    need_columns(rows, ("lesion_id", "image_id", "dx", "age"), tables[0])
    found = {path.stem: path for path in sorted(folder.rglob("*.jpg"))}
    first = folder / "HAM10000_images_part_1"
    rows["image"] = [str(found.get(name, first / f"{name}.jpg")) for name in rows["image_id"]]
    return rows

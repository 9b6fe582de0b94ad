"""A study from a table: CSV, TSV, Parquet, or a BIDS folder with participants.tsv and sessions.

study = table.load("study.csv", confounders=["age", "sex"], subject="id", size=(64, 64))
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rmdn.cells import are_numbers, some, to_number
from rmdn.data.images import Images
from rmdn.data.stages import Rule, by_column
from rmdn.data.study import Columns, Split, Study, assemble, image_paths
from rmdn.errors import InputError, SettingError
from rmdn.extras import need
from rmdn.schema import Schema, guess


class Table(NamedTuple):
    """Rows, and the levels that a participants.json declares for some columns."""

    rows: Any  # pandas.DataFrame
    levels: dict[str, tuple[str, ...]]


def load(
    path: str | Path,
    *,
    image: str = "image",
    label: str = "label",
    confounders: Sequence[str] | Schema,
    stage: str | Rule | None = None,
    subject: str | None = None,
    site: str | None = None,
    split: str | Split | None = None,
    size: Sequence[int] | None = None,
    numeric_label: bool = False,
    images: Images | None = None,
    root: str | Path | None = None,
) -> Study:
    """A study from a file or a BIDS folder; image paths are relative to the table unless `root` is given.

    `confounders` are names of columns, read as numbers or categories as their cells look, or a schema with
    all its options. `stage` is a column or a rule of `rmdn.data.stages`. `split` is a column with train and
    test, or says how to hold rows out: by default a fifth, no subject on both sides.
    """
    names = [image, label, subject, site, split, stage]
    rows, levels = read(path, texts=[name for name in names if isinstance(name, str)])
    path = Path(path)
    folder = Path(root) if root is not None else path if path.is_dir() else path.parent
    if subject is None and "participant_id" in rows:
        subject = "participant_id"
    if images is not None and size is not None:
        raise SettingError("Give the size within `images`, or alone; not both.")
    rows[image] = image_paths(rows, image, folder)
    columns = Columns(image, label, subject, site, split if isinstance(split, str) else None)
    return assemble(
        path.stem,
        rows,
        columns,
        confounders.declared(levels) if isinstance(confounders, Schema) else guess(rows, confounders, levels),
        stages=by_column(stage) if isinstance(stage, str) else stage,
        split=split if isinstance(split, Split) else Split(by=(subject,) if subject else ()),
        images=images or Images(size=tuple(size) if size else None),
        label_names=() if numeric_label else _declared(rows, label, levels),
        notes=() if subject else ("No column names subjects: each image counts as a person of its own.",),
    )


def read(path: str | Path, texts: Sequence[str] = ()) -> Table:
    """Rows of a file by its ending, or of a BIDS folder; a column of numbers becomes one, "89+" included.

    Columns in `texts` stay as they are written: identifiers 1.1 and 1.10 are two.
    """
    path = Path(path)
    if path.is_dir():
        return read_bids(path, texts)
    if path.name == "participants.tsv":
        return read_bids(path.parent, texts)
    return Table(read_file(path, texts), {})


def read_bids(folder: str | Path, texts: Sequence[str] = ()) -> Table:
    """participants.tsv, joined with sessions where there are any, and the image of each row (`_T1w`).

    Sessions come from a sessions.tsv in the folder, or from sub-*/sub-*_sessions.tsv. Columns that a session
    has win over those of its participant. Levels come from participants.json and sessions.json.
    """
    folder = Path(folder)
    levels = _read_levels(folder / "participants.json") | _read_levels(folder / "sessions.json")
    texts = (*texts, *levels, "participant_id", "session_id")
    people = read_file(folder / "participants.tsv", texts)
    if "participant_id" not in people:
        raise InputError(f"{folder / 'participants.tsv'} has no column participant_id, which BIDS demands.")
    rows = _with_sessions(folder, people, texts)
    rows["image"] = [_find_image(folder, row) for row in rows.to_dict("records")]
    return Table(rows, levels)


def read_file(path: Path, texts: Sequence[str] = (), separator: str | None = None) -> Any:
    """One file as a DataFrame; columns in `texts`, and codes such as 007, stay texts."""
    pandas = need("pandas", "study")
    if not path.is_file():
        raise InputError(f"There is no table {path}.")
    if path.suffix == ".parquet":
        return pandas.read_parquet(path)
    separator = separator or {".csv": ",", ".tsv": "\t"}.get(path.suffix)
    if separator is None:
        raise InputError(f"{path.name}: a table ends in .csv, .tsv or .parquet.")
    try:
        rows = pandas.read_csv(path, sep=separator, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except (ValueError, UnicodeDecodeError) as error:  # pandas' parser errors are ValueErrors
        raise InputError(f"{path} does not read as a table: {error}") from None
    return _numbers_as_numbers(rows, texts)


def need_columns(rows: Any, names: Sequence[str], path: Path) -> None:
    """An error that lists the columns which a published table should have and this one lacks."""
    absent = [name for name in names if name not in rows]
    if absent:
        raise InputError(f"{path} lacks the columns {', '.join(absent)}; it has {', '.join(rows)}.")


def _numbers_as_numbers(rows: Any, texts: Sequence[str]) -> Any:
    for name in rows:
        if name not in texts and not _is_code(rows[name]) and are_numbers(rows[name]):
            rows[name] = [to_number(cell) for cell in rows[name]]
    return rows


def _is_code(cells: Any) -> bool:
    """Codes such as 007 lose their zeros as numbers."""
    return any(len(cell) > 1 and cell[0] == "0" and cell.isdigit() for cell in cells)


def _read_levels(path: Path) -> dict[str, tuple[str, ...]]:
    if not path.is_file():
        return {}
    try:
        sidecar = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}") from None
    return {
        name: tuple(about["Levels"])
        for name, about in sidecar.items()
        if isinstance(about, Mapping) and about.get("Levels")
    }


def _with_sessions(folder: Path, people: Any, texts: Sequence[str]) -> Any:
    pandas = need("pandas", "study")
    if (folder / "sessions.tsv").is_file():
        sessions = read_file(folder / "sessions.tsv", texts)
    else:
        parts = []
        for file in sorted(folder.glob("sub-*/sub-*_sessions.tsv")):
            part = pandas.read_csv(file, sep="\t", dtype=str, keep_default_na=False)
            parts.append(part.assign(participant_id=file.parent.name))
        if not parts:
            return _with_session_folders(folder, people)
        sessions = _numbers_as_numbers(pandas.concat(parts, ignore_index=True).fillna(""), texts)
    if "session_id" not in sessions or "participant_id" not in sessions:
        raise InputError(f"{folder}: a sessions table needs the columns participant_id and session_id.")
    unknown = sorted(set(sessions["participant_id"]) - set(people["participant_id"]))
    if unknown:
        raise InputError(f"{folder}: sessions of participants that participants.tsv lacks: {some(unknown)}.")
    own = [name for name in people if name == "participant_id" or name not in sessions]
    return sessions.merge(people[own], on="participant_id", how="left")


def _with_session_folders(folder: Path, people: Any) -> Any:
    """A row for each folder ses-* of a participant, where no table tells of sessions; else one row each."""
    pandas = need("pandas", "study")
    own = {p: sorted(s.name for s in (folder / str(p)).glob("ses-*")) for p in people["participant_id"]}
    if "session_id" in people or not any(own.values()):
        return people
    pairs = [(person, name) for person, names in own.items() for name in names or [""]]
    return pandas.DataFrame(pairs, columns=["participant_id", "session_id"]).merge(people, on="participant_id")


def _find_image(folder: Path, row: Mapping[str, Any]) -> str:
    """The row's image, from the folder; the first run of several. An absent one keeps its BIDS name."""
    person = str(row["participant_id"])
    session = str(row.get("session_id", "") or "")
    place = folder / person / session if session else folder / person
    start = f"{person}_{session}" if session else person
    found = sorted(path for end in ("nii.gz", "nii") for path in place.glob(f"*/{start}_*T1w.{end}"))
    return str((found[0] if found else place / "anat" / f"{start}_T1w.nii.gz").relative_to(folder))


def _declared(rows: Any, label: str, levels: Mapping[str, Sequence[str]]) -> tuple[str, ...] | None:
    """Label names in the declared order, those that occur; None where no level is declared."""
    if label not in levels or label not in rows:
        return None
    present = {str(cell) for cell in rows[label]}
    return tuple(level for level in levels[label] if level in present)

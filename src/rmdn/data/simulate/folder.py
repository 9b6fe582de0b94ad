"""The folder of a stand-in: whole or not at all, and never over a file that no simulation wrote."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rmdn.errors import InputError

MARK = "STAND-IN.json"
WORDS = "simulated by rmdn, not real data"


@contextmanager
def stand_in_folder(folder: str | Path, about: Mapping[str, Any]) -> Iterator[Path]:
    """A new folder beside `folder` to write into; it takes its place, with a mark, when all went well.

    What is in place must be empty, or hold nothing but the files which an earlier stand-in's mark lists.
    """
    folder = Path(folder).absolute()
    refuse_real(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield partial
        files = sorted(path.relative_to(partial).as_posix() for path in partial.rglob("*") if path.is_file())
        mark = {"what": WORDS, **about, "files": [*files, MARK]}
        (partial / MARK).write_text(json.dumps(mark, indent=1), encoding="utf-8")
        refuse_real(folder)
        if folder.exists():
            shutil.rmtree(folder)
        partial.chmod(0o755)  # mkdtemp's folders are closed to others
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def refuse_real(folder: Path) -> None:
    """An error if anything in the folder was not written by a simulation."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"{folder} is a file. Give a new folder.")
    mark = folder / MARK
    known: set[str] = set(json.loads(mark.read_text(encoding="utf-8"))["files"]) if mark.is_file() else set()
    here = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    foreign = sorted(here - known)
    if foreign:
        raise InputError(
            f"{folder} holds {len(foreign)} files that no simulation wrote, such as {foreign[0]}. "
            "They stay as they are: give a new or empty folder."
        )

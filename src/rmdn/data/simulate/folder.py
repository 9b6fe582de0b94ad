"""The folder of a stand-in: whole or not at all, and never over a file that no simulation wrote."""

from __future__ import annotations

import json
import shutil
import tempfile
import zlib
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

    What is in place must be empty, or hold nothing but the very files which an earlier stand-in's mark lists,
    unchanged.
    """
    folder = Path(folder).absolute()
    refuse_real(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield partial
        mark = {"what": WORDS, **about, "files": _contents(partial)}
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
    known = _marked(folder / MARK)
    here = _contents(folder)
    if known:
        here.pop(MARK)
    foreign = sorted(name for name, check in here.items() if known.get(name) != check)
    if foreign:
        raise InputError(
            f"{folder} holds {len(foreign)} files that no simulation wrote, such as {foreign[0]}. "
            "They stay as they are: give a new or empty folder."
        )


def _contents(folder: Path) -> dict[str, int]:
    """Each file's path from the folder, and its checksum."""
    files = sorted(path for path in folder.rglob("*") if not path.is_dir())
    return {path.relative_to(folder).as_posix(): zlib.crc32(path.read_bytes()) for path in files}


def _marked(mark: Path) -> dict[str, int]:
    """The files that a mark lists; none where there is no mark, or one that is not ours."""
    try:
        return dict(json.loads(mark.read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}

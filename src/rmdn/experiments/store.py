"""Where the results of runs lie: one small file a run, written whole or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rmdn.extras import need
from rmdn.files import write_atomically

if TYPE_CHECKING:
    import pandas as pd

    from rmdn.experiments.run import Run

Record = dict[str, Any]


@dataclass(frozen=True)
class Store:
    """A folder of records: KEY-CODE.json, beside it KEY-CODE.npz where a run keeps features, KEY.failed.json."""

    folder: Path

    def path(self, run: Run) -> Path:
        """The record of this run made by the code as it is."""
        return self.folder / f"{run.key}-{run.code}.json"

    def failure(self, run: Run) -> Path:
        """The error of this run's last try."""
        return self.folder / f"{run.key}.failed.json"

    def unfinished(self, run: Run) -> Path:
        """The folder of a run under way."""
        return self.folder / "unfinished" / f"{run.key}-{run.code}"

    def done(self, run: Run) -> bool:
        """Whether the run is made, by the code as it is."""
        return self.path(run).exists()

    def read(self, run: Run) -> Record | None:
        """The run's record; where the code has changed since, the latest of earlier ones, marked as `stale`."""
        if self.done(run):
            return self._read(self.path(run))
        earlier = sorted(self.folder.glob(f"{run.key}-*.json"), key=lambda path: path.stat().st_mtime)
        return {**self._read(earlier[-1]), "stale": True} if earlier else None

    def _read(self, path: Path) -> Record:
        record: Record = json.loads(path.read_text(encoding="utf-8"))
        arrays = path.with_suffix(".npz")
        return {**record, "arrays": arrays} if arrays.exists() else record

    def write(self, run: Run, record: Record, arrays: Mapping[str, np.ndarray] | None) -> None:
        """Keep a run's results; its checkpoint and an earlier failure are no longer needed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path(run)
        if arrays is not None:
            write_atomically(path.with_suffix(".npz"), lambda file: np.savez_compressed(file, **arrays))  # type: ignore[arg-type]
        text = json.dumps({"run": run.plain(), **record}, separators=(",", ":"))
        write_atomically(path, lambda file: file.write(text.encode()))
        self.failure(run).unlink(missing_ok=True)
        shutil.rmtree(self.unfinished(run), ignore_errors=True)

    def write_failure(self, run: Run, error: str) -> None:
        """Keep what went wrong; the run is tried again next time."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"run": run.plain(), "error": error}, indent=1)
        write_atomically(self.failure(run), lambda file: file.write(text.encode()))

    def error(self, run: Run) -> str | None:
        """The last line of the run's error, where it has failed."""
        path = self.failure(run)
        if not path.exists():
            return None
        lines = json.loads(path.read_text(encoding="utf-8"))["error"].strip().splitlines()
        return str(lines[-1])

    def table(self) -> pd.DataFrame:
        """All records, a row a run: what it was, and the accuracy after the last stage."""
        rows = []
        for path in sorted(self.folder.glob("*-*.json")):
            record = self._read(path)
            run = record["run"]
            rows.append(
                {
                    "key": path.stem,
                    "data": run["data"]["name"],
                    **{f"data.{name}": value for name, value in run["data"]["arguments"].items()},
                    "network": run["network"]["name"].rpartition(".")[2],
                    "method": run["method"]["name"],
                    **{f"method.{name}": str(value) for name, value in run["method"]["arguments"].items()},
                    **run["settings"],
                    "seed": run["seed"],
                    "accuracy": float(np.mean(record["R"][-1])),
                    "seconds": record["seconds"],
                }
            )
        table: pd.DataFrame = need("pandas", "study").DataFrame(rows)
        return table

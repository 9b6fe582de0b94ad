"""From the records of several seeds to the cells, tests and verdicts of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rmdn.errors import RMDNError
from rmdn.experiments.experiment import Find
from rmdn.experiments.run import Run
from rmdn.experiments.store import Record
from rmdn.metrics import TransferDistances, transfer_distances
from rmdn.report import Cell, Claim

Floats = NDArray[np.float64]


def records(runs: Sequence[Run], find: Find) -> list[Record]:
    """What there is of these runs."""
    return [record for record in map(find, runs) if record is not None]


def distances(record: Record) -> TransferDistances:
    """ACCd, BWTd and FWTd of a run on data whose best accuracy is known."""
    return transfer_distances(torch.tensor(record["R"], dtype=torch.float64), torch.tensor(record["best"]))


def cell(
    values: Sequence[float], published: float | None = None, published_spread: float | None = None, digits: int = 3
) -> Cell:
    """Mean and standard deviation of runs; a cell without a number where there are none."""
    kept = np.asarray([value for value in values if value is not None and np.isfinite(value)])
    spread = float(kept.std(ddof=1)) if len(kept) > 1 else None
    return Cell(float(kept.mean()) if len(kept) else None, spread, published, published_spread, digits)


def best(cells: Mapping[str, Cell]) -> dict[str, Cell]:
    """The cells of one column, by row, with the one nearest to 0 marked; none where there is nothing to choose from."""
    there = {name: abs(cell.ours) for name, cell in cells.items() if cell.ours is not None}
    first = min(there, key=there.__getitem__) if len(there) > 1 else None
    return {name: replace(cell, best=name == first) for name, cell in cells.items()}


def best_in_columns(rows: Sequence[Sequence[str | Cell]]) -> list[list[str | Cell]]:
    """The rows with the number nearest to zero in each column marked."""
    columns = []
    for column in zip(*rows, strict=True):
        marked = best({str(i): entry for i, entry in enumerate(column) if isinstance(entry, Cell)})
        columns.append([marked.get(str(i), entry) for i, entry in enumerate(column)])
    return [list(row) for row in zip(*columns, strict=True)]


def mean_dependence(record: Record, stage: int = -1) -> float:
    """dcor2 within classes, averaged over classes and all stages' test sets, after training on a stage."""
    return float(np.nanmean(dependences(record)[stage]))


def dependences(record: Record) -> Floats:
    """dcor2 (S, S, K), NaN where a class had too few rows."""
    dcor2 = record["dcor2"]
    classes = sorted({name for row in dcor2 for one in row for name in one}, key=int)
    return np.array([[[_number(one.get(name)) for name in classes] for one in row] for row in dcor2])


def recalls(record: Record) -> Floats:
    """The share of each class that is predicted right (S, S, K)."""
    return np.array([[[_number(share) for share in one] for one in row] for row in record["recall"]])


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def tested(test: Any, name: str, scores: Mapping[str, Sequence[float]], ours: str) -> str:
    """A note under a table: a test over all methods, and of ours against each."""
    enough = {method: values for method, values in scores.items() if len(values) > 1}
    if len(enough) < 2 or ours not in enough:
        return f"{name}: not computed, for it needs two methods with two seeds each."
    try:
        found = test(enough)
    except RMDNError as error:
        return f"{name}: {error}"
    pairs = [
        f"{second if first == ours else first} p = {p:.2g}"
        for (first, second), p in found.pairs.items()
        if ours in (first, second)
    ]
    return f"{name}: statistic {found.statistic:.3g}, p = {found.p_value:.2g}; {ours} against {', '.join(pairs)}."


def claim(text: str, holds: bool | None, why: str, seeds: int) -> Claim:
    """A verdict; with fewer than two seeds, or without numbers, nobody can tell."""
    if holds is None or seeds < 2:
        return Claim(text, "cannot tell", f"{why} ({seeds} seed{'s' if seeds != 1 else ''})")
    return Claim(text, "holds" if holds else "does not hold", f"{why} ({seeds} seeds)")


def missing(runs: Sequence[Run], find: Find) -> list[str]:
    """Warnings: runs that are not there, runs by an earlier version of the code, data that are stand-ins."""
    found = [find(run) for run in runs]
    there = [record for record in found if record is not None]
    warnings = []
    if len(there) < len(found):
        warnings.append(f"{len(found) - len(there)} of {len(found)} runs are missing.")
    stale = sum(bool(record.get("stale")) for record in there)
    if stale:
        warnings.append(f"{stale} of {len(found)} runs were made by an earlier version of the code.")
    return warnings + sorted({record["stand_in"] for record in there if record["stand_in"]})

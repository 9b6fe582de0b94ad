"""Folds in which no subject, family or site is split, alike in labels; a hold-out is one fold."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from rmdn.cells import column, to_levels
from rmdn.errors import SettingError
from rmdn.extras import need


def folds(rows: Any, by: Sequence[str] = (), stratify: Sequence[str] = (), number: int = 5, seed: int = 0) -> np.ndarray:
    """(n,) the fold of each row: rows that share a cell of a column in `by` (a subject, a site) share a fold.

    Within that, folds are alike in the columns `stratify`, by scikit-learn's splitters.
    """
    splitters = need("sklearn.model_selection", "study")
    groups = linked(rows, by)
    count = len(np.unique(groups))
    if number < 2 or count < number:
        what = f"groups of rows that share {' or '.join(by)}" if by else "rows"
        raise SettingError(f"{number} folds of {count} {what}: take at least 2, and at most {count}.")
    grouped = count < len(groups)
    kind = splitters.StratifiedGroupKFold if grouped else splitters.StratifiedKFold
    splitter = kind(n_splits=number, shuffle=True, random_state=seed)
    fold = np.empty(len(groups), dtype=np.int64)
    with warnings.catch_warnings():  # a rare stratum cannot be in every fold; that is no fault of the user
        warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
        parts = splitter.split(groups, _strata(rows, stratify, number), groups if grouped else None)
        for k, (_, test) in enumerate(parts):
            fold[test] = k
    return fold


def linked(rows: Any, by: Sequence[str]) -> np.ndarray:
    """(n,) a number for each set of rows that are linked, directly or through others, by a shared cell."""
    sparse, graph = need("scipy.sparse", "study"), need("scipy.sparse.csgraph", "study")
    nodes = n = len(rows)
    starts, ends = [], []
    for name in by:
        cells = to_levels(column(rows, name))
        node = {cell: nodes + i for i, cell in enumerate(dict.fromkeys(c for c in cells if c is not None))}
        nodes += len(node)
        starts += [row for row, cell in enumerate(cells) if cell is not None]
        ends += [node[cell] for cell in cells if cell is not None]
    matrix = sparse.coo_matrix((np.ones(len(starts)), (starts, ends)), shape=(nodes, nodes))
    return np.asarray(graph.connected_components(matrix, directed=False)[1][:n])


def _strata(rows: Any, stratify: Sequence[str], number: int) -> list[str]:
    """One text for each row; all alike where no stratum has a row for each fold."""
    cells = [to_levels(column(rows, name)) for name in stratify]
    strata = [" / ".join(map(str, row)) for row in zip(*cells, strict=True)]
    enough = bool(strata) and max(np.unique(strata, return_counts=True)[1]) >= number
    return strata if enough else ["all"] * len(rows)

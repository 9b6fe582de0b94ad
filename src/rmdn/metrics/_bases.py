"""Variables as columns of a regression: classes as indicators, numbers as cubics, so that curves are seen."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rmdn.errors import InputError
from rmdn.metrics._inputs import array, groups

Floats = NDArray[np.float64]
_MOST_CLASSES = 10


class Variable:
    """Columns (n,) or (n, q): each is classes (text, booleans, at most ten whole numbers) or numbers."""

    def __init__(self, values: Any, name: str, rows: int | None = None) -> None:
        raw = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
        if raw.ndim == 0 or raw.ndim > 2 or raw.size == 0:
            raise InputError(f"{name} must be (n,) or (n, columns), not empty; got an array of shape {raw.shape}.")
        columns = raw.reshape(len(raw), -1).T
        if rows is not None and len(raw) != rows:
            raise InputError(f"{name} has {len(raw)} rows, expected {rows}: one row a sample, in the same order.")
        self.n = len(raw)
        self.columns: list[tuple[bool, Floats]] = []  # whether it is classes, and its codes or numbers
        for k in range(len(columns)):
            column = columns[k]
            if column.dtype.kind == "O" and all(isinstance(value, Real) for value in column):
                column = column.astype(np.float64)  # a table of mixed columns
            classes = column.dtype.kind in "USOb"
            numbers = groups(column, name)[0].astype(np.float64) if classes else array(column, name)[:, 0]
            few = len(np.unique(numbers)) <= min(_MOST_CLASSES, self.n / 2) and bool((numbers == np.round(numbers)).all())
            self.columns.append((classes or few, numbers))

    @property
    def discrete(self) -> bool:
        """Whether all columns are classes."""
        return all(classes for classes, _ in self.columns)

    @property
    def codes(self) -> NDArray[np.intp]:
        """One code for each combination of the columns' values, (n,)."""
        joint = np.stack([numbers for _, numbers in self.columns], 1)
        found: NDArray[np.intp] = np.unique(joint, axis=0, return_inverse=True)[1].reshape(-1)
        return found

    def numbers(self) -> Floats:
        """Indicators of the classes and the numbers, standardized, (n, d); constant columns left out."""
        parts = [_indicators(column) if classes else column[:, None] for classes, column in self.columns]
        return standardized(np.concatenate(parts, 1))

    def curves(self) -> Floats:
        """Indicators of the classes and cubics of the numbers, (n, d)."""
        parts = [_indicators(column) if classes else _cubic(column) for classes, column in self.columns]
        return np.concatenate(parts, 1)


def orthonormal(columns: Floats) -> Floats:
    """An orthonormal basis (n, r) of the centred columns, without what is rounding."""
    left, singular, _ = np.linalg.svd(standardized(columns), full_matrices=False)
    return np.asarray(left[:, singular > 1e-8 * max(singular.max(initial=0.0), 1e-300)])


def without(columns: Floats, basis: Floats) -> Floats:
    """What is left of the centred columns (n, d) outside an orthonormal basis of centred columns (n, r)."""
    centred = columns - columns.mean(0)
    return np.asarray(centred - basis @ (basis.T @ centred))


def standardized(columns: Floats) -> Floats:
    """Columns of mean 0 and deviation 1; constant columns left out."""
    varies = columns.max(0) > columns.min(0)
    columns = columns[:, varies]
    return np.asarray((columns - columns.mean(0)) / columns.std(0))


def _indicators(codes: Floats) -> Floats:
    return np.asarray(codes[:, None] == np.unique(codes), np.float64)


def _cubic(numbers: Floats) -> Floats:
    column = standardized(numbers[:, None])
    return np.concatenate([column, column**2, column**3], 1)

"""The terms of a schema: number, category, interaction. Each says what it learns and how it encodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rmdn.cells import column, in_order, some, to_levels, to_numbers
from rmdn.errors import InputError, SettingError

MISSING_POLICIES = ("error", "mean", "indicator", "keep", "drop")
UNSEEN_POLICIES = ("error", "mean", "missing")
Fit = dict[str, Any]


@dataclass(frozen=True)
class Number:
    """A column of numbers: itself, a polynomial (`degree`) or a natural cubic spline of `spline` columns."""

    name: str
    degree: int = 1
    spline: int = 0
    scale: bool = True
    missing: str = "error"
    kind: ClassVar[str] = "number"

    def __post_init__(self) -> None:
        _one_of(self, "missing", MISSING_POLICIES)
        if self.degree < 1 or self.spline < 0 or self.spline == 1:
            raise SettingError(f"Column {self.name!r}: degree must be at least 1, spline 0 or at least 2.")
        if self.degree > 1 and self.spline:
            raise SettingError(f"Column {self.name!r}: take a polynomial (degree) or a spline, not both.")

    def learn(self, rows: Any) -> Fit:
        """Centre, scale, knots and the moments of the resulting columns, from training rows."""
        x = to_numbers(column(rows, self.name), self.name)
        x = x[~np.isnan(x)]
        if not len(x):
            raise InputError(f"Column {self.name!r} has no value in any training row. Leave it out.")
        center, scale = _moments(x) if self.scale else (0.0, 1.0)
        places = np.linspace(0.05, 0.95, self.spline + 1)
        knots = np.unique(np.quantile((x - center) / scale, places, method="nearest"))
        fit: Fit = {"center": center, "scale": scale, "knots": [], "range": [float(x.min()), float(x.max())]}
        if self.spline and len(knots) > 2:
            fit["knots"] = knots.tolist()
        moments = [_moments(part) if self.scale else (0.0, 1.0) for part in self._expand(x, fit).T]
        return fit | {"centers": [m for m, _ in moments], "scales": [s for _, s in moments]}

    def encode(self, rows: Any, fit: Fit) -> np.ndarray:
        """(n, k) numbers, NaN in the rows whose cell is missing."""
        x = to_numbers(column(rows, self.name), self.name)
        encoded: np.ndarray = (self._expand(x, fit) - fit["centers"]) / fit["scales"]
        return encoded

    def unseen_rows(self, rows: Any, fit: Fit) -> np.ndarray:
        """(n,) all False: a number has no levels."""
        return np.zeros(len(column(rows, self.name)), dtype=bool)

    def _expand(self, x: np.ndarray, fit: Fit) -> np.ndarray:
        x = (x - fit["center"]) / fit["scale"]
        if fit["knots"]:
            return natural_spline(x, fit["knots"])
        return np.stack([x**power for power in range(1, self.degree + 1)], axis=1)

    def names(self, fit: Fit) -> list[str]:
        """Names of the resulting columns."""
        if fit["knots"]:
            return [f"{self.name} spline {i + 1}" for i in range(len(fit["knots"]) - 1)]
        return [self.name] + [f"{self.name}^{power}" for power in range(2, self.degree + 1)]

    def words(self, fit: Fit) -> str:
        """What was done, as a sentence."""
        low, high = fit["range"]
        form = "as it is"
        if fit["knots"]:
            form = f"as a natural cubic spline of {len(fit['knots']) - 1} columns"
        elif self.spline:
            form = f"as it is (too few distinct values for a spline of {self.spline} columns)"
        elif self.degree > 1:
            form = f"as a polynomial of degree {self.degree}"
        scaled = ", scaled to mean 0 and standard deviation 1" if self.scale else ""
        constant = "; it is constant and can explain nothing" if low == high else ""
        return f"number, {form}{scaled}; training range {low:g} to {high:g}{constant}"


@dataclass(frozen=True)
class Category:
    """A column of levels: one 0/1 column for each level but the first, which is the reference."""

    name: str
    levels: tuple[str, ...] = ()
    missing: str = "error"
    unseen: str = "error"
    kind: ClassVar[str] = "category"

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(str(level) for level in self.levels))
        _one_of(self, "missing", MISSING_POLICIES)
        _one_of(self, "unseen", UNSEEN_POLICIES)
        if len(set(self.levels)) < len(self.levels):
            raise SettingError(f"Column {self.name!r}: a level is listed twice: {', '.join(self.levels)}.")

    def learn(self, rows: Any) -> Fit:
        """The levels that training rows have, in the declared order, else in their natural one."""
        cells = to_levels(column(rows, self.name))
        present = {cell for cell in cells if cell is not None}
        if not present:
            raise InputError(f"Column {self.name!r} has no value in any training row. Leave it out.")
        self._refuse_undeclared(cells)
        return {"levels": [level for level in self.levels or in_order(present) if level in present]}

    def encode(self, rows: Any, fit: Fit) -> np.ndarray:
        """(n, k) zeros and ones, NaN in the rows whose cell is missing or of an unseen level."""
        cells = to_levels(column(rows, self.name))
        known = set(fit["levels"])
        bad = sorted({cell for cell in cells if cell is not None and cell not in known})
        if bad and self.unseen == "error":
            raise InputError(
                f"Column {self.name!r} has levels that no training row has: {some(bad)}. "
                f"Known: {some(fit['levels'])}. Set unseen='mean' or unseen='missing' to accept them."
            )
        one_hot = np.array([[cell == level for level in fit["levels"][1:]] for cell in cells], dtype=np.float64)
        one_hot = one_hot.reshape(len(cells), len(fit["levels"]) - 1)
        one_hot[[cell not in known for cell in cells]] = np.nan
        return one_hot

    def unseen_rows(self, rows: Any, fit: Fit) -> np.ndarray:
        """(n,) True where the cell has a level that no training row has."""
        known = {None, *fit["levels"]}
        return np.array([cell not in known for cell in to_levels(column(rows, self.name))], dtype=bool)

    def _refuse_undeclared(self, cells: Sequence[str | None]) -> None:
        bad = sorted({cell for cell in cells if cell is not None} - set(self.levels)) if self.levels else []
        if bad:
            raise InputError(
                f"Column {self.name!r} has levels that are not declared: {some(bad)}. "
                f"Declared: {some(self.levels)}. Mend the cells, or declare these too."
            )

    def names(self, fit: Fit) -> list[str]:
        """Names of the resulting columns."""
        return [f"{self.name}={level}" for level in fit["levels"][1:]]

    def words(self, fit: Fit) -> str:
        """What was done, as a sentence."""
        levels = fit["levels"]
        absent = [level for level in self.levels if level not in levels]
        text = f"category with the levels {', '.join(levels)}; {levels[0]} is the reference"
        if len(levels) == 1:
            text = f"category with the one level {levels[0]}; it is constant and gives no column"
        unseen = {"error": "refused", "mean": "given the training mean", "missing": "treated as missing"}
        never = f"; declared but never seen: {some(absent)}" if absent else ""
        return f"{text}{never}; other levels are {unseen[self.unseen]}"


@dataclass(frozen=True)
class Interaction:
    """Products of the columns of two or more terms, each with each."""

    names: tuple[str, ...]
    kind: ClassVar[str] = "interaction"

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        if len(self.names) < 2 or len(set(self.names)) < len(self.names):
            raise SettingError(f"An interaction needs two or more different columns, not {self.names}.")


Column = Number | Category
Term = Number | Category | Interaction
KINDS: dict[str, Any] = {"number": Number, "category": Category, "interaction": Interaction}


def natural_spline(x: np.ndarray, knots: Sequence[float]) -> np.ndarray:
    """(n, K - 1) basis of cubic splines that are straight lines beyond the outer of K knots; no constant."""
    t = np.asarray(knots, dtype=np.float64)

    def d(k: int) -> np.ndarray:
        cubes: np.ndarray = np.maximum(x - t[k], 0) ** 3 - np.maximum(x - t[-1], 0) ** 3
        return np.asarray(cubes / (t[-1] - t[k]))

    return np.stack([x, *(d(k) - d(len(t) - 2) for k in range(len(t) - 2))], axis=1)


def _moments(x: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation; 1 in place of the deviation of a constant column."""
    mean, deviation = float(x.mean()), float(x.std())
    return mean, deviation if deviation > 1e-12 * float(np.abs(x).max()) else 1.0


def _one_of(term: Any, option: str, allowed: Sequence[str]) -> None:
    if getattr(term, option) not in allowed:
        raise SettingError(f"Column {term.name!r}: {option}={getattr(term, option)!r} is none of {', '.join(allowed)}.")

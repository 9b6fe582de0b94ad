"""Drawing again by the exchangeable unit: permutations and bootstraps that keep subjects or sites whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmdn.errors import InputError
from rmdn.metrics._inputs import at_least, groups, level

Indices = NDArray[np.intp]
Floats = NDArray[np.float64]


class Interval(NamedTuple):
    """An estimate and the ends of its confidence interval."""

    value: float
    low: float
    high: float


class Permutations:
    """Random exchanges of n rows that leave the null distribution as it is.

    `within`: rows are exchanged only among rows of the same level (site, class). `units`: the rows of a unit
    (subject, family) stay together and in order; whole units are exchanged with others of the same number of
    rows.
    """

    def __init__(self, n: int, units: Any = None, within: Any = None) -> None:
        self.n = n
        strata = np.zeros(n, np.intp) if within is None else groups(within, "within", n)[0]
        if units is None:
            self.sets = [np.flatnonzero(strata == code)[:, None] for code in np.unique(strata)]
        else:
            self.sets = _sets_of_units(groups(units, "units", n)[0], strata)
        self.sets = [rows for rows in self.sets if len(rows) > 1]  # each (units, rows of a unit)
        if not self.sets:
            raise InputError(
                "Nothing can be exchanged: no two units of the same number of rows lie in the same level (of "
                "`within`, or of the variable that is given). Average the rows of each unit first, or choose "
                "coarser levels."
            )

    def draw(self, generator: np.random.Generator) -> Indices:
        """For each row, the row whose value it takes, (n,)."""
        taken = np.arange(self.n)
        for rows in self.sets:
            taken[rows] = rows[generator.permutation(len(rows))]
        return taken


def _sets_of_units(units: Indices, strata: Indices) -> list[Indices]:
    """The units that may change places: the same stratum and the same number of rows."""
    alike: dict[tuple[int, int], list[Indices]] = {}
    order = np.argsort(units, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(units[order])) + 1):
        if len(np.unique(strata[rows])) > 1:
            raise InputError(
                f"The unit of row {int(rows[0])} lies in several levels of what rows are exchanged within "
                "(`within`, or the variable that is given): a unit moves as a whole, so all its rows must "
                "share one level."
            )
        alike.setdefault((int(strata[rows[0]]), len(rows)), []).append(rows)
    return [np.stack(members) for members in alike.values()]


def permutation_p_value(observed: float, drawn: Floats) -> float:
    """The share of draws at least as large, the observed one counted among them; never 0."""
    if np.isnan(observed) or np.isnan(drawn).any():
        return float("nan")
    slack = 1e-10 * max(abs(observed), float(np.abs(drawn).max()))  # draws that differ by rounding alone are ties
    return float((1 + np.sum(drawn >= observed - slack)) / (1 + len(drawn)))


def bootstrap_weights(units: int, resamples: int, seed: int) -> Iterator[Floats]:
    """How often each unit was drawn, in chunks (m, units): with replacement, as many as there are."""
    generator = np.random.default_rng(seed)
    left = at_least(resamples, 1, "resamples")
    while left > 0:
        m = min(left, max(1, 4_000_000 // units))
        yield generator.multinomial(units, np.full(units, 1 / units), m).astype(np.float64)
        left -= m


def percentile_interval(value: float, draws: Floats, confidence: float = 0.95) -> Interval:
    """The middle `confidence` of the draws, draws without a value aside; NaN ends where none has one."""
    tail = (1 - level(confidence)) / 2
    kept = draws[np.isfinite(draws)]
    if not len(kept) or not np.isfinite(value):
        return Interval(float(value), float("nan"), float("nan"))
    low, high = np.quantile(kept, [tail, 1 - tail])
    return Interval(float(value), float(low), float(high))

"""Stages of a study: by column, by bins, by shares of bins, by arrival.

A rule is a function of the rows: `rule(rows) -> (stage number of each row, names of the stages)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from rmdn.cells import are_numbers, column, in_order, is_missing, some, to_levels, to_numbers
from rmdn.errors import InputError, SettingError
from rmdn.extras import need

Rule = Callable[[Any], tuple[np.ndarray, tuple[str, ...]]]

HAM10000_AGES = (20.0, 40.0, 50.0, 60.0)
# Row: age group (<20, [20, 40), [40, 50), [50, 60), >=60). Column: the share of the group in each stage.
# The paper's percentages sum to 100 over the groups of a stage and over the stages of a group.
HAM10000_SHARES = (
    (0.50, 0.05, 0.05, 0.10, 0.30),
    (0.30, 0.50, 0.05, 0.05, 0.10),
    (0.10, 0.30, 0.50, 0.05, 0.05),
    (0.05, 0.10, 0.30, 0.50, 0.05),
    (0.05, 0.05, 0.10, 0.30, 0.50),
)


def everything() -> Rule:
    """One stage with all rows: static learning."""
    return lambda rows: (np.zeros(len(rows), dtype=np.int64), ("all",))


def by_column(name: str, order: Sequence[str] = ()) -> Rule:
    """One stage for each level of a column, in the given order, else numbers by size, texts by alphabet."""

    def rule(rows: Any) -> tuple[np.ndarray, tuple[str, ...]]:
        cells = to_levels(column(rows, name))
        names = tuple(str(level) for level in order) or tuple(in_order(c for c in cells if c is not None))
        unknown = [row for row, cell in enumerate(cells) if cell not in names]
        if unknown:
            raise InputError(
                f"Column {name!r} gives no stage in {len(unknown)} rows: rows {some(unknown)}; "
                f"the stages are {', '.join(names)}. Mend or leave out these rows."
            )
        return np.array([names.index(cell) for cell in cells if cell is not None], dtype=np.int64), names

    return rule


def by_bins(name: str, edges: Sequence[float], whole_numbers: bool = False) -> Rule:
    """Bins of a number, such as an acquisition year; an edge is the first value of the bin above it."""
    names = _bin_names(edges, whole_numbers)

    def rule(rows: Any) -> tuple[np.ndarray, tuple[str, ...]]:
        values = to_numbers(column(rows, name), name)
        absent = np.flatnonzero(np.isnan(values)).tolist()
        if absent:
            raise InputError(
                f"Column {name!r} gives no stage in {len(absent)} rows: rows {some(absent)}. Fill or leave out these rows."
            )
        return np.digitize(values, edges), names

    return rule


def by_shares(
    name: str,
    edges: Sequence[float],
    shares: Sequence[Sequence[float]],
    seed: int = 0,
    missing: str = "spread",
) -> Rule:
    """Split each bin of a number over the stages at random, by its row of shares; each row is used once.

    Rows without the number are spread evenly over the stages (`missing="spread"`), or refused ("error").
    """
    table = np.asarray(shares, dtype=np.float64)  # (bins, stages)
    if table.shape[0] != len(edges) + 1 or (table < 0).any() or np.abs(table.sum(axis=1) - 1).max() > 1e-9:
        raise SettingError(f"{len(edges)} edges make {len(edges) + 1} bins: each needs a row of shares that sum to 1.")
    if missing not in ("spread", "error"):
        raise SettingError(f"missing={missing!r} is neither 'spread' nor 'error'.")

    def rule(rows: Any) -> tuple[np.ndarray, tuple[str, ...]]:
        values = to_numbers(column(rows, name), name)
        absent = np.isnan(values)
        if absent.any() and missing == "error":
            raise InputError(
                f"Column {name!r} gives no stage in {absent.sum()} rows: rows "
                f"{some(np.flatnonzero(absent).tolist())}. Fill them, or set missing='spread'."
            )
        stages, rng = np.empty(len(values), dtype=np.int64), np.random.default_rng(seed)
        even = np.full(table.shape[1], 1 / table.shape[1])
        bins = np.where(absent, -1, np.digitize(values, edges))
        for group, share in ((-1, even), *enumerate(table)):
            members = rng.permutation(np.flatnonzero(bins == group))
            stages[members] = np.repeat(np.arange(len(share)), quotas(len(members), share))
        return stages, tuple(f"stage {i + 1}" for i in range(table.shape[1]))

    return rule


def by_arrival(name: str, stages: int) -> Rule:
    """Stages of about equal size in the order of a column of numbers or dates; ties stay together."""
    if stages < 1:
        raise SettingError(f"stages={stages}: at least 1.")

    def rule(rows: Any) -> tuple[np.ndarray, tuple[str, ...]]:
        moments = _moments(column(rows, name), name)
        _, place, counts = np.unique(moments, return_inverse=True, return_counts=True)
        earlier = np.cumsum(counts) - counts  # rows that came before each moment
        names = tuple(f"stage {i + 1}" for i in range(stages))
        return earlier[place] * stages // max(len(moments), 1), names

    return rule


def quotas(n: int, shares: np.ndarray) -> np.ndarray:
    """(k,) whole numbers of sum n, as close to n * shares as they can be (largest remainders)."""
    exact = n * np.asarray(shares, dtype=np.float64) / np.sum(shares)
    counts: np.ndarray = np.floor(exact + 1e-9).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: n - counts.sum()]] += 1
    return counts


def _moments(cells: Sequence[Any], name: str) -> np.ndarray:
    absent = [row for row, cell in enumerate(cells) if is_missing(cell)]
    if absent:
        raise InputError(f"Column {name!r} has no value in {len(absent)} rows: rows {some(absent)}. Fill them.")
    if are_numbers(cells):
        return to_numbers(cells, name)
    pandas = need("pandas", "study")
    try:
        return np.asarray(pandas.to_datetime(cells, format="ISO8601").astype("int64"))
    except (ValueError, TypeError) as error:
        raise InputError(f"Column {name!r} holds neither numbers nor dates (year-month-day): {error}") from None


def _bin_names(edges: Sequence[float], whole_numbers: bool) -> tuple[str, ...]:
    if not len(edges) or list(edges) != sorted(set(edges)):
        raise SettingError(f"Edges must rise, and there must be one at least; not {list(edges)}.")
    pairs = pairwise(edges)
    if whole_numbers:
        middle = [f"{low:g}" if high == low + 1 else f"{low:g} to {high - 1:g}" for low, high in pairs]
        return (f"<={edges[0] - 1:g}", *middle, f">={edges[-1]:g}")
    return (f"<{edges[0]:g}", *(f"[{low:g}, {high:g})" for low, high in pairs), f">={edges[-1]:g}")

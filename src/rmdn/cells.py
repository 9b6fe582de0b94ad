"""What the cells of a table mean: which are missing, which are numbers, which are levels."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rmdn.errors import InputError

MISSING = frozenset({"", "n/a", "N/A", "NA", "NaN", "nan", "<NA>"})
SHOWN = 5


def is_missing(cell: Any) -> bool:
    """Whether a cell holds no value: None, NaN, pandas' NA and NaT, an empty text or BIDS' "n/a"."""
    if isinstance(cell, str):
        return cell.strip() in MISSING
    if cell is None or type(cell).__name__ in {"NAType", "NaTType"}:
        return True
    return bool(cell != cell)


def to_number(cell: Any) -> float:
    """One cell as a float; NaN where it is missing; "89+" (ages that privacy rules cut off) is 89."""
    if is_missing(cell):
        return float("nan")
    return float(cell.strip().removesuffix("+") if isinstance(cell, str) else cell)


def to_numbers(cells: Iterable[Any], name: str) -> np.ndarray:
    """A column as float64, NaN where missing; a text that is no number is an error with its row."""
    numbers = []
    for row, cell in enumerate(cells):
        try:
            number = to_number(cell)
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"Column {name!r}, row {row}: {cell!r} is not a number. Mend the cell, or declare the column as a category."
            ) from None
        if np.isinf(number):
            raise InputError(f"Column {name!r}, row {row}: {cell!r} is not finite. Mend the cell.")
        numbers.append(number)
    return np.array(numbers, dtype=np.float64)


def are_numbers(cells: Iterable[Any]) -> bool:
    """Whether every cell that is not missing reads as a number."""
    try:
        return all(isinstance(to_number(cell), float) for cell in cells)
    except (TypeError, ValueError, OverflowError):
        return False


def to_levels(cells: Iterable[Any]) -> list[str | None]:
    """A column as names of levels, None where missing; 1, 1.0 and "1" are one level."""
    return [None if is_missing(cell) else _level(cell) for cell in cells]


def _level(cell: Any) -> str:
    if isinstance(cell, (float, np.floating)) and float(cell).is_integer():
        return str(int(cell))
    return str(cell).strip()


def in_order(levels: Iterable[str]) -> list[str]:
    """Levels in the order a reader expects: numbers by size first, then texts by alphabet."""

    def key(level: str) -> tuple[bool, float, str]:
        number = to_number(level) if are_numbers([level]) else float("nan")
        return (bool(np.isnan(number)), 0.0 if np.isnan(number) else number, level)

    return sorted(set(levels), key=key)


def column(rows: Any, name: str) -> list[Any]:
    """The cells of one column of a DataFrame or a mapping; an absent column is an error with near names."""
    if name not in rows:
        names = [str(other) for other in rows]
        near = difflib.get_close_matches(name, names, n=3) or names[:10]
        raise InputError(f"There is no column {name!r}. The nearest are: {', '.join(map(repr, near))}.")
    return list(rows[name])


def some(items: Sequence[Any]) -> str:
    """The first few of many, for a message: "a, b, c and 7 more"."""
    shown = ", ".join(str(item) for item in items[:SHOWN])
    return shown if len(items) <= SHOWN else f"{shown} and {len(items) - SHOWN} more"

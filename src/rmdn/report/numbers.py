"""How numbers read, in the page and in the terminal alike."""

from __future__ import annotations

import math
from decimal import Decimal

from rmdn.report.parts import Cell

NONE = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"


def number(value: float | None, digits: int, *, sign: bool = False) -> str:
    """A number with so many digits after the point; a dash for None and NaN."""
    if value is None or math.isnan(value):
        return NONE
    value = round(value, digits) + 0.0  # no "-0.00"
    return f"{value:{'+' if sign else ''}.{digits}f}".replace("-", MINUS)


def ours(cell: Cell) -> str:
    """Mean ± spread of our runs."""
    return _with_spread(cell.ours, cell.spread, cell.digits)


def published(cell: Cell) -> str:
    """Mean ± spread as published, with the digits that were published and no more; empty where there is none."""
    if cell.published is None:
        return ""
    return _with_spread(cell.published, cell.published_spread, max(_digits(cell.published), _digits(cell.published_spread)))


def difference(cell: Cell) -> str:
    """Ours minus published, signed; empty where one of them is missing."""
    if cell.ours is None or cell.published is None:
        return ""
    return number(cell.ours - cell.published, cell.digits, sign=True)


def _with_spread(value: float | None, spread: float | None, digits: int) -> str:
    text = number(value, digits)
    return text if text == NONE or spread is None else f"{text} ± {number(spread, digits)}"


def _digits(value: float | None) -> int:
    """Digits after the point that a number needs: .02 needs two. Six figures at most, so that 100 * .0071 is .71."""
    if value is None or not math.isfinite(value):
        return 0
    exponent = Decimal(format(value, ".6g")).normalize().as_tuple().exponent
    return max(0, -int(exponent))

"""The look of all the project's figures: each line and bar can be told apart without colour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from rmdn.extras import need

# Okabe and Ito's palette for colour-blind readers, without its yellow, which is too pale for lines.
COLOURS = ("#0072B2", "#000000", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
BLACK = COLOURS[1]
GREY = "#666666"  # for what is no method: theory, chance
MARKERS = "os^DvXP"
LINES = ("-", "--", "-.", ":")  # four beside seven markers: 28 pairs before one comes again
HATCHES = (
    *("", "//", "..", r"\\", "xx", "--", "++", "oo", "||", "**"),
    *("///", "...", "||||", "xxx", "OO", "|-", "/o", "-x"),
)

# A method looks the same in every figure: by the name it has in `experiments/methods.py`. New ones go to the end.
METHODS = (
    *("Guarded R-MDN", "R-MDN", "Plain", "P-MDN", "BR-Net", "MDN", "Stage-specific MDN", "Pixel-space MDN"),
    *("ACIL", "F-OAL", "EWC", "LwF", "PackNet", "EWC + R-MDN", "LwF + R-MDN", "R-MDN (A)", "R-MDN (B)", "R-MDN (C)"),
)

SETTINGS = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "figure.constrained_layout.use": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "legend.fontsize": "small",
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 5,
    "svg.hashsalt": "rmdn",  # the same figure, the same file
}


@contextmanager
def drawing() -> Iterator[None]:
    """The common look while a figure is drawn: `@drawing()` over the function that draws it, or `with drawing():`."""
    matplotlib = need("matplotlib", "study")
    with matplotlib.rc_context(SETTINGS):
        yield


class Look(NamedTuple):
    """How one method or series is drawn: `axes.plot(x, y, **look.line)`, `axes.bar(x, y, **look.bar)`."""

    colour: str
    linestyle: str
    marker: str
    hatch: str

    @property
    def line(self) -> dict[str, Any]:
        """Options of a line with markers."""
        return {"color": self.colour, "linestyle": self.linestyle, "marker": self.marker}

    @property
    def bar(self) -> dict[str, Any]:
        """Options of a bar."""
        return {"color": self.colour, "hatch": self.hatch, "edgecolor": "white" if self.colour == BLACK else "black"}


def looks(names: Sequence[str]) -> dict[str, Look]:
    """A look for each name: its own for one of METHODS, and for the others the free ones in their order."""
    fixed = {name: METHODS.index(name) for name in names if name in METHODS}
    free = (i for i in range(len(METHODS) + len(names)) if i not in fixed.values())
    return {name: _look(fixed[name] if name in fixed else next(free)) for name in names}


def _look(i: int) -> Look:
    return Look(COLOURS[i % len(COLOURS)], LINES[i % len(LINES)], MARKERS[i % len(MARKERS)], HATCHES[i % len(HATCHES)])

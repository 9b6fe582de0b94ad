"""Accuracy and dependence on the static synthetic data as something is varied: what Figures 15 and 16 share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rmdn.experiments.static import Outcomes, cell, half_width, mean
from rmdn.report import Cell, Table, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GROUPS = ("group 1", "group 2")


def table(first: str, found: Mapping[str, Outcomes]) -> Table:
    """The same numbers, a row for each value."""
    rows: list[list[str | Cell]] = []
    for name, one in found.items():
        measures = [100 * one.accuracy, *one.dcor2.T]
        rows.append([name, *(cell(values, digits) for values, digits in zip(measures, (2, 3, 3), strict=True))])
    return Table(
        "Mean and half-width of its 95 % interval over seeds; theory's accuracy is 83.33.",
        [first, "Balanced accuracy, %", *(f"dcor2, {group}" for group in GROUPS)],
        rows,
    )


@style.drawing()
def picture(found: Mapping[str, Outcomes], label: str, *, joined: bool = True) -> Figure:
    """Two panels over the values, by name: balanced accuracy with theory's line, and dcor2 in both groups.

    `joined` by lines, where the values have an order.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.2, 3.6))
    accuracy, dependence = figure.subplots(1, 2)
    lines = {
        name: {**look.line, **({} if joined else {"linestyle": ""})}
        for name, look in style.looks(["R-MDN", *GROUPS]).items()
    }
    _points(accuracy, [one.accuracy for one in found.values()], lines["R-MDN"], "R-MDN")
    best = next((one.best for one in found.values() if len(one)), np.nan)
    accuracy.axhline(best, color=style.GREY, linestyle="--", linewidth=1, label="theory")
    for group, name in enumerate(GROUPS):
        shift = 0.12 * (group - 0.5)
        _points(dependence, [one.dcor2[:, group] for one in found.values()], lines[name], name, shift)
    for ax in (accuracy, dependence):
        ax.set_xticks(range(len(found)), list(found))
        ax.set_xlabel(label)
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    _at_least(accuracy, best - 0.05, best + 0.05)
    _at_least(dependence, 0.0, 0.1)
    accuracy.set_ylabel("balanced accuracy")
    dependence.set_ylabel("dcor$^2$ of features and confounder")
    return figure


def _at_least(ax: Axes, low: float, high: float) -> None:
    """Show this range, too, so that what hardly differs looks like it."""
    bottom, top = ax.get_ylim()
    if np.isfinite([low, high]).all():
        ax.set_ylim(min(bottom, low), max(top, high))


def _points(ax: Axes, cells: list[np.ndarray], line: dict[str, Any], name: str, shift: float = 0.0) -> None:
    """Means with 95 % intervals; of a single seed the value alone."""
    reach = [half_width(values) or 0.0 for values in cells]
    ax.errorbar(np.arange(len(cells)) + shift, [*map(mean, cells)], reach, capsize=3, label=name, **line)

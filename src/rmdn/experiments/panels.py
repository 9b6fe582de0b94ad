"""Pictures that several figures share: accuracies stage by stage, over the confounder's strength, at the end; and bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rmdn.extras import need
from rmdn.report import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
Grid = Mapping[str, Mapping[str, Floats]]  # rows of panels: columns of panels: values, the first axis the runs


def interval(values: Floats) -> tuple[Floats, Floats]:
    """The mean over runs (first axis) that have a value, and the half-width of its 95 % interval; 0 for a single run."""
    there = np.isfinite(values)
    runs = there.sum(0)
    mean = np.where(runs, np.where(there, values, 0).sum(0) / np.maximum(runs, 1), np.nan)
    freedom = np.maximum(runs - 1, 1)
    variance = np.where(there, (values - mean) ** 2, 0).sum(0) / freedom
    reach = need("scipy.stats", "study").t.ppf(0.975, freedom) * np.sqrt(variance / np.maximum(runs, 1))
    return mean, np.where(runs > 1, reach, 0.0)


@style.drawing()
def stage_by_stage(grid: Grid, ylabel: str, theory: Mapping[str, Sequence[float]] | None = None) -> Figure:
    """Values (runs, S, S): a short curve over all stages' tests for each stage trained on; theory's dotted, by row."""
    figure, axes = _panels(grid, 1.75, 1.8)
    looks = style.looks(_columns(grid))
    for (row, cells), line in zip(grid.items(), axes, strict=True):
        for (column, look), ax in zip(looks.items(), line, strict=True):
            if column in cells:
                _stages(ax, cells[column], look, (theory or {}).get(row))
    _frame(axes[0, 0], grid, theory)
    figure.supxlabel(
        "after training on stage; a curve's five points: tests of stage 1 (pale) to 5 (dark)", fontsize="medium"
    )
    figure.supylabel(ylabel, fontsize="medium")
    return figure


def _stages(ax: Any, values: Floats, look: style.Look, theory: Sequence[float] | None) -> None:
    mean, reach = interval(values)  # (S, S)
    stages = len(mean)
    places = np.linspace(-0.32, 0.32, stages)
    for i in range(stages):
        x = i + 1 + places
        if theory is not None:
            ax.plot(x, theory, color="#C00000", linestyle=":", linewidth=1.1)
        ax.errorbar(x, mean[i], reach[i], color=look.colour, linewidth=0.9, elinewidth=0.6)
        for j in range(stages):
            depth = 0.2 + 0.8 * (j + 1) / stages
            ax.plot(x[j], mean[i, j], look.marker, color=look.colour, alpha=depth, markersize=3.2)
    ax.set_xticks(range(1, stages + 1))


@style.drawing()
def by_strength(grid: Grid, deltas: Sequence[float]) -> Figure:
    """Values (runs, S, deltas): accuracy on each stage's test over the confounder's strength in the test images."""
    figure, axes = _panels(grid, 2.2, 1.9)
    columns = _columns(grid)
    tests = max((cell.shape[1] for cells in grid.values() for cell in cells.values()), default=0)
    names = [f"test of stage {j + 1}" for j in range(tests)]
    looks = style.looks(names)
    for cells, line in zip(grid.values(), axes, strict=True):
        for column, ax in zip(columns, line, strict=True):
            if column not in cells:
                ax.set_axis_off()
                continue
            mean, reach = interval(cells[column])  # (S, deltas)
            for j, name in enumerate(names):
                ax.plot(deltas, mean[j], label=name, **{**looks[name].line, "markersize": 3.5})
                ax.fill_between(deltas, mean[j] - reach[j], mean[j] + reach[j], color=looks[name].colour, alpha=0.15, lw=0)
            ax.set_xticks([0, 0.5, 1])
    _frame(axes[0, 0], grid)
    figure.supxlabel("strength $\\delta$ of the confounder in the test images (1: as in training)", fontsize="medium")
    figure.supylabel("accuracy", fontsize="medium")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=max(tests, 1))
    return figure


@style.drawing()
def at_the_end(panels: Mapping[str, Mapping[str, Floats]]) -> Figure:
    """Values (runs, S): accuracy above theory on each stage's test after the last stage, a line for each kind of run."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    looks = style.looks(names)
    figure = Figure(figsize=(1.2 + 3.6 * len(panels), 3.4 + 0.2 * -(-len(names) // 3)))
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for ax, (title, lines) in zip(axes, panels.items(), strict=True):
        ax.axhline(0, color=style.GREY, linewidth=4, alpha=0.45, label="possible without the confounder")
        for name, values in lines.items():
            mean, reach = interval(values)
            stages = range(1, len(mean) + 1)
            ax.errorbar(stages, mean, reach, label=name, elinewidth=0.7, **looks[name].line)
            ax.set_xticks(stages)
        ax.set(title=title, xlabel="test of stage")
    axes[0].set_ylabel("accuracy above theory")
    labelled = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(labelled.values(), labelled.keys(), loc="outside lower center", ncols=3)
    return figure


@style.drawing()
def bars(
    measures: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]],
    marks: Mapping[str, Mapping[str, Mapping[str, str]]],
) -> Figure:
    """A panel a measure, a group of bars a data set: mean and standard deviation of each method, marks above."""
    from matplotlib.figure import Figure

    methods = list(dict.fromkeys(name for groups in measures.values() for scores in groups.values() for name in scores))
    looks = style.looks(methods)
    width = 0.85 / max(len(methods), 1)
    figure = Figure(figsize=(5.2 * len(measures), 4.2))
    for ax, (measure, groups) in zip(figure.subplots(1, len(measures), squeeze=False)[0], measures.items(), strict=True):
        for k, method in enumerate(methods):
            for i, (group, scores) in enumerate(groups.items()):
                values = scores.get(method, ())
                if len(values):
                    x = i + (k - (len(methods) - 1) / 2) * width
                    label = method if method not in ax.get_legend_handles_labels()[1] else None
                    _bar(ax, x, width, values, looks[method], label, marks[measure][group].get(method, ""))
        ax.axhline(0, color="black", linewidth=0.8)
        ax.set(title=measure, xticks=range(len(groups)), xticklabels=list(groups))
        ax.grid(axis="x", visible=False)
        ax.margins(y=0.12)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _bar(ax: Any, x: float, width: float, values: Sequence[float], look: style.Look, label: str | None, mark: str) -> None:
    mean = float(np.mean(values))
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    ax.bar(x, mean, 0.92 * width, label=label, linewidth=0.5, **look.bar)
    if spread:
        ax.errorbar(x, mean, spread, color=style.GREY, capsize=2, elinewidth=1)
    ax.annotate(mark, (x, max(mean, 0) + spread), (0, 1), textcoords="offset points", ha="center", fontsize="x-small")


def _frame(ax: Any, grid: Grid, theory: Mapping[str, Sequence[float]] | None = None) -> None:
    """Limits by the means, for all panels; a wide interval of few runs is cut off."""
    means = [interval(cell)[0].ravel() for cells in grid.values() for cell in cells.values()]
    shown = np.concatenate([*means, *map(np.asarray, (theory or {}).values())])
    shown = shown[np.isfinite(shown)]
    if len(shown):
        margin = 0.1 * np.ptp(shown) or 0.1
        ax.set_ylim(shown.min() - margin, shown.max() + margin)


def _columns(grid: Grid) -> list[str]:
    return list(dict.fromkeys(column for cells in grid.values() for column in cells))


def _panels(grid: Grid, width: float, height: float) -> tuple[Figure, Any]:
    """Empty panels (rows, columns) that share their axes, named at the top and at the left."""
    from matplotlib.figure import Figure

    columns = _columns(grid)
    figure = Figure(figsize=(0.8 + width * len(columns), 0.9 + height * len(grid)))
    axes = figure.subplots(len(grid), len(columns), sharex=True, sharey=True, squeeze=False)
    for column, ax in zip(columns, axes[0], strict=True):
        ax.set_title(column)
    for row, ax in zip(grid, axes[:, 0], strict=True):
        ax.set_ylabel(row)
    return figure, axes

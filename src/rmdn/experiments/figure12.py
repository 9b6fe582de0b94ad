"""Figure 12: samples of the continual data, transfer with significance, accuracy and dependence stage by stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rmdn.data import synthetic
from rmdn.experiments import staged, table1
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.run import Run
from rmdn.experiments.summary import missing
from rmdn.report import Picture, Section, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIMS: dict[str, staged.Measure] = {
    "has the best forward transfer (FWTd)": staged.forward,
    "comes nearest to theory's accuracy over all stages": staged.nearness,
    "has the lowest dcor2 with the confounder": staged.mean_dependence,
}


def wanted(plan: Plan) -> dict[str, dict[str, list[Run]]]:
    """Table 1's runs by data set and method."""
    return {
        f"data set {dataset}": {method: table1.runs_of(method, dataset, plan) for method in plan.rows(table1.METHODS)}
        for dataset in table1.DATASETS
    }


def section(plan: Plan, find: Find) -> Section:
    """Samples, bars, stages."""
    groups = staged.found(wanted(plan), find)
    bars = staged.transfer(groups, "b. The paper: R-MDN transfers best to stages that are still to come (FWTd).")
    return Section(
        "figure12",
        "Figure 12. Continual data in pictures",
        "What Table 1 is made of: the data, transfer between stages, and every stage's test after every stage.",
        [samples(), *bars, *staged.stage_by_stage(groups, "c. ")],
        staged.least_claims(groups, CLAIMS, "on all data sets"),
        command=plan.command("figure12"),
        warnings=missing(table1.runs(plan), find),
    )


def samples() -> Picture:
    """Part a."""
    return Picture(
        "a. From stage to stage the groups grow apart by the confounder (data sets 1 and 3) or less so by the main effect "
        "(2 and 3). Boxes: main effect (solid) and confounder (dashed), the wider the line, the larger the magnitude.",
        draw_samples({dataset: synthetic.continual(dataset, 64) for dataset in table1.DATASETS}),
        "A typical image of each group in each of the five stages of the three data sets.",
    )


@style.drawing()
def draw_samples(datasets: Mapping[int, Sequence[synthetic.Stage]]) -> Figure:
    """A row for each data set and group, a column for each stage, all in the same greys."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.4, 9.0))
    axes = figure.subplots(2 * len(datasets), 5)
    brightest = max(float(stage.train.images.max()) for stages in datasets.values() for stage in stages)
    for k, (dataset, stages) in enumerate(datasets.items()):
        for j, stage in enumerate(stages):
            for group in (0, 1):
                ax = axes[2 * k + group, j]
                i = typical(stage.train, group)
                ax.imshow(stage.train.images[i, 0].numpy(), cmap="gray", vmin=0, vmax=brightest)
                _boxes(ax, float(stage.train.main_effect[i]), float(stage.train.confounders[i, 0]))
                ax.set(xticks=[], yticks=[])
                ax.grid(False)
                if k + group == 0:
                    ax.set_title(f"stage {j + 1}")
                if j == 0:
                    ax.set_ylabel(f"data set {dataset}\ngroup {group + 1}", fontsize="small")
    return figure


def typical(images: synthetic.Samples, group: int) -> int:
    """The image whose magnitudes are nearest to the middle of its group's ranges."""
    middle = [sum(ranges[group]) / 2 for ranges in (images.main_ranges, images.confounder_ranges)]
    away = (images.main_effect - middle[0]).abs() + (images.confounders[:, 0] - middle[1]).abs()
    return int(away.where(images.labels == group, away.new_tensor(float("inf"))).argmin())


def _boxes(ax: Any, main: float, confounder: float) -> None:
    """Frames around the three kernels of an image of 32 x 32, a line the wider the larger the magnitude."""
    from matplotlib.patches import Rectangle

    for corner, size, line in (((0, 0), main, "-"), ((16, 16), main, "-"), ((0, 16), confounder, "--")):
        x, y = corner[0] + 0.6, corner[1] + 0.6
        colour = style.COLOURS[5] if line == "-" else style.COLOURS[6]
        ax.add_patch(Rectangle((x, y), 13.8, 13.8, fill=False, edgecolor=colour, linestyle=line, linewidth=size / 2.2))


register(Experiment("figure12", "Figure 12. Continual data in pictures", {"quick": 8, "paper": 400}, table1.runs, section))

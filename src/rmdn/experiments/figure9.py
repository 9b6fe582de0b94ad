"""Figure 9: what the second continual data set looks like, whose confounder moves; nothing is trained."""

from __future__ import annotations

from rmdn.data import synthetic
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.run import Run
from rmdn.experiments.samples import limit
from rmdn.report import Picture, Section


def runs(plan: Plan) -> list[Run]:
    """None."""
    return []


def section(plan: Plan, find: Find) -> Section:
    """Samples of all stages, and whether theory's accuracy is what the main effect can tell."""
    return Section(
        "figure9",
        "Figure 9. Synthetic data whose confounder moves",
        "Over four stages the confounder's kernel goes from the bottom left to the top right; the main effect stays in the "
        "top-left and bottom-right cells. Both magnitudes from U(3, 5) in group 1 and from U(4, 6) in group 2.",
        [Picture("A training image of each group in each stage.", synthetic.picture(synthetic.moving(), 1), ALT)],
        [limit([synthetic.moving(seed=seed) for seed in range(3)])],
        command=plan.command("figure9"),
    )


ALT = "Four columns of dark images with blurred spots: two stay in the corners, one moves up the other diagonal."

register(Experiment("figure9", "Figure 9. Data whose confounder moves", {"quick": 0.1, "paper": 0.1}, runs, section))

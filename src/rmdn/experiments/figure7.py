"""Figure 7: what the static synthetic data look like; nothing is trained."""

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
    """Samples of both groups, and whether theory's accuracy is what the main effect can tell."""
    return Section(
        "figure7",
        "Figure 7. The static synthetic data",
        "Two kernels on the main diagonal with the main effect's magnitude sigma_A, one off it with the confounder's, "
        "sigma_B; both from U(1, 4) in group 1 and from U(3, 6) in group 2.",
        [
            Picture(
                "Four training images of each group.",
                synthetic.picture([synthetic.static(seed=i) for i in range(4)], 1),
                ALT,
            )
        ],
        [limit([[synthetic.static(seed=seed)] for seed in range(3)])],
        command=plan.command("figure7"),
    )


ALT = "Dark images with three blurred spots, top left, bottom right and bottom left; brighter ones in group 2."

register(Experiment("figure7", "Figure 7. The static synthetic data", {"quick": 0.1, "paper": 0.1}, runs, section))

"""Table 8: the second continual synthetic data set, in which the confounder moves through the image."""

from __future__ import annotations

from rmdn.experiments import continual
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.run import Recipe, Run, make
from rmdn.experiments.summary import missing
from rmdn.experiments.transfer_table import MEASURES, Published, nearer, scores, table
from rmdn.report import Section

PUBLISHED: Published = {
    "Plain": (0.124, 0.002, -0.001, 0.001, 0.250, 0.000),
    "R-MDN": (0.046, 0.031, 0.0006, 0.0009, 0.238, 0.014),
}
OURS = "Guarded R-MDN"
METHODS = (*PUBLISHED, OURS)


def runs_of(method: str, plan: Plan) -> list[Run]:
    """The seeds of one row, trained as on the first continual data sets."""
    data = Recipe("moving", plan.at_scale({"per_group": 512}, {"per_group": 256}))
    settings = plan.at_scale(continual.PAPER, continual.QUICK)
    return [make(data, continual.CNN, method, settings, seed) for seed in plan.runs_of(paper=3)]


def runs(plan: Plan) -> list[Run]:
    """Every method."""
    return [run for method in plan.rows(METHODS) for run in runs_of(method, plan)]


def section(plan: Plan, find: Find) -> Section:
    """The table, and whether R-MDN follows a confounder that moves."""
    found = scores(METHODS, runs_of, plan, find)
    return Section(
        "table8",
        "Table 8. Continual synthetic data whose confounder moves",
        "Four stages of 1,024 images; the confounder's kernel goes from the bottom left to the top right of the image, the "
        "main effect stays. Theory's accuracy is .75 at every stage. Trained as Table 1's networks.",
        [table("Mean and standard deviation over seeds; nearer 0 is better.", found, PUBLISHED)],
        [
            *(nearer(found, "R-MDN", ["Plain"], measure, ", wherever the confounder is") for measure in MEASURES),
            nearer(found, OURS, ["Plain", "R-MDN"], "ACCd", ", wherever the confounder is"),
        ],
        command=plan.command("table8"),
        warnings=missing(runs(plan), find),
    )


register(
    Experiment("table8", "Table 8. Synthetic data whose confounder moves", {"quick": 1, "paper": 50}, runs, section),
)

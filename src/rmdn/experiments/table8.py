"""Table 8: the second continual synthetic data set, in which the confounder moves through the image."""

from __future__ import annotations

from rmdn.experiments import continual
from rmdn.experiments.experiment import Plan
from rmdn.experiments.run import Recipe, Run, make

METHODS = ("Plain", "R-MDN", "Guarded R-MDN")


def runs_of(method: str, plan: Plan) -> list[Run]:
    """The seeds of one row, trained as on the first continual data sets."""
    data = Recipe("moving", plan.at_scale({"per_group": 512}, {"per_group": 256}))
    settings = plan.at_scale(continual.PAPER, continual.QUICK)
    return [make(data, continual.CNN, method, settings, seed) for seed in plan.runs_of(paper=3)]


def runs(plan: Plan) -> list[Run]:
    """Every method."""
    return [run for method in plan.chosen(METHODS) for run in runs_of(method, plan)]

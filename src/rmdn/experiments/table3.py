"""Table 3: R-MDN beside analytic continual learning, on the continual synthetic data set 3."""

from __future__ import annotations

from rmdn.experiments import continual
from rmdn.experiments.experiment import Plan
from rmdn.experiments.run import Run

METHODS = ("ACIL", "F-OAL", "R-MDN", "Guarded R-MDN")


def runs_of(method: str, plan: Plan) -> list[Run]:
    """The seeds of one row; those of R-MDN are Table 1's."""
    return continual.runs(3, method, plan, seeds=3)


def runs(plan: Plan) -> list[Run]:
    """Every method."""
    return [run for method in plan.chosen(METHODS) for run in runs_of(method, plan)]

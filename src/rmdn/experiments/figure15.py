"""Figure 15: what lambda does, on the static synthetic data."""

from __future__ import annotations

from rmdn.experiments import static
from rmdn.experiments.experiment import Plan
from rmdn.experiments.run import Recipe, Run

DEFAULT = 1e-4  # the paper's lambda, and the method's own: these runs are Table 7's
LAMBDAS = (0.0, 1e-5, DEFAULT, 1e-3, 1e-2, 1e-1)


def runs_of(regularization: float, plan: Plan) -> list[Run]:
    """The seeds at one lambda."""
    arguments = {} if regularization == DEFAULT else {"regularization": regularization}
    return static.runs(Recipe("R-MDN", arguments), static.ONE_SIZE, plan)


def runs(plan: Plan) -> list[Run]:
    """Every lambda."""
    return [run for regularization in LAMBDAS for run in runs_of(regularization, plan)]

"""What figures 19 and 20 share: Table 1's methods on data set 3 with fewer epochs a stage."""

from __future__ import annotations

from rmdn.experiments import table1
from rmdn.experiments.experiment import Plan
from rmdn.experiments.run import Recipe, Run
from rmdn.experiments.variations import Variation

DATASET = 3
SEEDS = 5
EPOCHS = {"paper": (10, 30, 60, 100), "quick": (3, 12)}  # the last is Table 1's; the paper's text does not name its own


def runs_of(method: str, epochs: int, plan: Plan) -> list[Run]:
    """The seeds of one method with so many epochs a stage."""
    return Variation(method, Recipe(method)).runs(DATASET, plan, seeds=SEEDS, epochs=epochs)


def wanted(plan: Plan) -> dict[str, dict[str, list[Run]]]:
    """All methods with all numbers of epochs."""
    return {
        f"{epochs} epochs": {method: runs_of(method, epochs, plan) for method in plan.rows(table1.METHODS)}
        for epochs in EPOCHS[plan.scale]
    }


def runs(plan: Plan) -> list[Run]:
    """The same in one list."""
    return [run for of in wanted(plan).values() for runs in of.values() for run in runs]

"""Figure 3: what is left of the accuracy as the confounder is taken out of the test images."""

from __future__ import annotations

from rmdn.experiments import continual, table1
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.run import Run
from rmdn.report import Section

DATASET = 3
SEEDS = 3


def runs_of(method: str, plan: Plan) -> list[Run]:
    """Table 1's runs, whose record holds the accuracies at all deltas."""
    return continual.runs(DATASET, method, plan, seeds=SEEDS)


def runs(plan: Plan) -> list[Run]:
    """All methods."""
    return [run for method in plan.chosen(table1.METHODS) for run in runs_of(method, plan)]


def section(plan: Plan, find: Find) -> Section:
    """Not written yet."""
    return Section("figure3", "Figure 3")


register(Experiment("figure3", "Figure 3. Sensitivity to the confounder", {"quick": 3, "paper": 80}, runs, section))

"""Figure 20."""

from __future__ import annotations

from rmdn.experiments.epochs import runs
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.report import Section


def section(plan: Plan, find: Find) -> Section:
    """Not written yet."""
    return Section("figure20", "Figure 20")


register(Experiment("figure20", "Figure 20", {"quick": 4, "paper": 270}, runs, section))

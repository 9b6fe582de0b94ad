"""Figure 18: the sensitivity to the confounder's strength after each stage."""

from __future__ import annotations

from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.figure3 import runs
from rmdn.report import Section


def section(plan: Plan, find: Find) -> Section:
    """Not written yet."""
    return Section("figure18", "Figure 18")


register(Experiment("figure18", "Figure 18. Sensitivity after each stage", {"quick": 3, "paper": 80}, runs, section))

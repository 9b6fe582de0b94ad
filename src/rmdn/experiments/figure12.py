"""Figure 12: samples of the continual data, transfer with significance, accuracy and dependence stage by stage."""

from __future__ import annotations

from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.table1 import runs
from rmdn.report import Section


def section(plan: Plan, find: Find) -> Section:
    """Not written yet."""
    return Section("figure12", "Figure 12")


register(Experiment("figure12", "Figure 12. Continual synthetic data", {"quick": 8, "paper": 400}, runs, section))

"""Figure 19."""

from __future__ import annotations

from rmdn.experiments.epochs import runs
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.report import Section


def section(plan: Plan, find: Find) -> Section:
    """Not written yet."""
    return Section("figure19", "Figure 19")


register(Experiment("figure19", "Figure 19", {"quick": 4, "paper": 270}, runs, section))

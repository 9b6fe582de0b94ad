"""All experiments, in the order of the report; a new one is one more line here."""

from __future__ import annotations

from rmdn.experiments import table1 as table1
from rmdn.experiments.experiment import EXPERIMENTS, chosen

__all__ = ["EXPERIMENTS", "chosen"]

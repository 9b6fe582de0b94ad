"""All experiments, in the order of the report; a new one is one more line here."""

# isort: skip_file
from __future__ import annotations

from rmdn.experiments import protocol as protocol
from rmdn.experiments import table1 as table1
from rmdn.experiments import figure3 as figure3
from rmdn.experiments import figure12 as figure12
from rmdn.experiments import figure18 as figure18
from rmdn.experiments import figure19 as figure19
from rmdn.experiments import figure20 as figure20
from rmdn.experiments import beyond as beyond
from rmdn.experiments.experiment import EXPERIMENTS, chosen

__all__ = ["EXPERIMENTS", "chosen"]

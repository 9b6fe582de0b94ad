"""All experiments, in the order of the report; a new one is one more line here."""

# isort: skip_file
from __future__ import annotations

from rmdn.experiments import protocol as protocol
from rmdn.experiments import table1 as table1
from rmdn.experiments import table2 as table2
from rmdn.experiments import table3 as table3
from rmdn.experiments import table4 as table4
from rmdn.experiments import table5 as table5
from rmdn.experiments import table6 as table6
from rmdn.experiments import table7 as table7
from rmdn.experiments import table8 as table8
from rmdn.experiments import table9 as table9
from rmdn.experiments import table10 as table10
from rmdn.experiments import figure2 as figure2
from rmdn.experiments import figure3 as figure3
from rmdn.experiments import figure4 as figure4
from rmdn.experiments import figure5 as figure5
from rmdn.experiments import figure6 as figure6
from rmdn.experiments import figure7 as figure7
from rmdn.experiments import figure8 as figure8
from rmdn.experiments import figure9 as figure9
from rmdn.experiments import figure10 as figure10
from rmdn.experiments import figure11 as figure11
from rmdn.experiments import figure12 as figure12
from rmdn.experiments import figure13 as figure13
from rmdn.experiments import figure14 as figure14
from rmdn.experiments import figure15 as figure15
from rmdn.experiments import figure16 as figure16
from rmdn.experiments import figure17 as figure17
from rmdn.experiments import figure18 as figure18
from rmdn.experiments import figure19 as figure19
from rmdn.experiments import figure20 as figure20
from rmdn.experiments import beyond as beyond
from rmdn.experiments.experiment import EXPERIMENTS, chosen

__all__ = ["EXPERIMENTS", "chosen"]

"""Confounder-free features inside any PyTorch network."""

from rmdn import errors, recursion
from rmdn.deconfound import Deconfounded, deconfound
from rmdn.layers import RMDN, ConfounderLayer
from rmdn.placement import vit_places
from rmdn.recalibration import recalibrate

__version__ = "0.1.0"
__all__ = [
    "RMDN",
    "ConfounderLayer",
    "Deconfounded",
    "deconfound",
    "errors",
    "recalibrate",
    "recursion",
    "vit_places",
]

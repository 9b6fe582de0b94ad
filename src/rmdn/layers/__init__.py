"""Layers that take confounders out of features."""

from rmdn.layers.base import ConfounderLayer
from rmdn.layers.mdn import MDN
from rmdn.layers.pmdn import PMDN
from rmdn.layers.rmdn import RMDN

__all__ = ["MDN", "PMDN", "RMDN", "ConfounderLayer"]

"""Layers that take confounders out of features."""

from rmdn.layers.base import ConfounderLayer
from rmdn.layers.rmdn import RMDN

__all__ = ["RMDN", "ConfounderLayer"]

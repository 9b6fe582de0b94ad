"""Confounder-free features inside any PyTorch network."""

from rmdn.layers import RMDN, ConfounderLayer

__version__ = "0.1.0"
__all__ = ["RMDN", "ConfounderLayer"]

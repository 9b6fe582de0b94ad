"""Data: the paper's synthetic images, study tables, stages and the three studies' adapters."""

from rmdn.data import synthetic

__all__ = ["synthetic"]

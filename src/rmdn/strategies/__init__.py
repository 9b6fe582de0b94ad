"""Ways of learning over stages, one file each, on the contract in `base`."""

from rmdn.strategies.base import Batch, Outcome, StageData, Strategy, Wrapper
from rmdn.strategies.plain import Plain

__all__ = ["Batch", "Outcome", "Plain", "StageData", "Strategy", "Wrapper"]

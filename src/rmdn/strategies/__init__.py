"""Ways of learning over stages, one file each, on the contract in `base`."""

from rmdn.strategies.base import Batch, Outcome, StageData, Strategy, Wrapper
from rmdn.strategies.ewc import EWC
from rmdn.strategies.gate import Gate
from rmdn.strategies.hinges import Hinges
from rmdn.strategies.lwf import LwF
from rmdn.strategies.packnet import PackNet
from rmdn.strategies.plain import Plain

__all__ = ["EWC", "Batch", "Gate", "Hinges", "LwF", "Outcome", "PackNet", "Plain", "StageData", "Strategy", "Wrapper"]

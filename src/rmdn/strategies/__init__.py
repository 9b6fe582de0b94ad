"""Ways of learning over stages, one file each, on the contract in `base`."""

from rmdn.strategies.acil import ACIL
from rmdn.strategies.base import Batch, Outcome, StageData, Strategy, Wrapper
from rmdn.strategies.brnet import BRNet
from rmdn.strategies.ewc import EWC
from rmdn.strategies.foal import FOAL
from rmdn.strategies.gate import Gate
from rmdn.strategies.hinges import Hinges
from rmdn.strategies.lwf import LwF
from rmdn.strategies.mdn import MDN
from rmdn.strategies.packnet import PackNet
from rmdn.strategies.pixel import Pixel
from rmdn.strategies.plain import Plain
from rmdn.strategies.pmdn import PMDN
from rmdn.strategies.stagewise import Stagewise

__all__ = [
    "ACIL",
    "EWC",
    "FOAL",
    "MDN",
    "PMDN",
    "BRNet",
    "Batch",
    "Gate",
    "Hinges",
    "LwF",
    "Outcome",
    "PackNet",
    "Pixel",
    "Plain",
    "StageData",
    "Stagewise",
    "Strategy",
    "Wrapper",
]

"""Training over stages: one loop, its settings, its result."""

from rmdn.training.evaluate import evaluate
from rmdn.training.loop import train
from rmdn.training.result import Epoch, Result
from rmdn.training.settings import Settings

__all__ = ["Epoch", "Result", "Settings", "evaluate", "train"]

"""Suites that say whether a strategy or a layer keeps its contract; for your own as well as for ours.

They need nothing but this package and `[study]`: call them in a test of your own, or at the prompt. What fails is an
AssertionError that says which promise was broken.
"""

from rmdn.testing.layer import check_layer
from rmdn.testing.strategy import check_strategy

__all__ = ["check_layer", "check_strategy"]

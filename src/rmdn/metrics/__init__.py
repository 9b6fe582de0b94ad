"""Measures of dependence, transfer, fairness and confounding; docs/metrics.md says which answers what.

`dcor2` and the transfer measures need torch and numpy alone. The rest loads at first use; a function that
needs an optional package says which extra brings it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rmdn.metrics.dependence import PerClass, dcor2, dcor2_per_class
from rmdn.metrics.dependence_inference import PermutationTest, dcor2_interval, dcor2_test
from rmdn.metrics.fairness import ClassRates, class_rates
from rmdn.metrics.resampling import Interval
from rmdn.metrics.transfer import (
    Transfer,
    TransferDistances,
    transfer,
    transfer_distances,
    transfer_intervals,
)

if TYPE_CHECKING:
    pass

_LAZY: dict[str, str] = {}

__all__ = [
    "ClassRates",
    "Interval",
    "PerClass",
    "PermutationTest",
    "Transfer",
    "TransferDistances",
    "class_rates",
    "dcor2",
    "dcor2_interval",
    "dcor2_per_class",
    "dcor2_test",
    "transfer",
    "transfer_distances",
    "transfer_intervals",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

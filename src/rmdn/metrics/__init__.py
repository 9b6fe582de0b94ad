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
from rmdn.metrics.identifiability import Identifiability, identifiability
from rmdn.metrics.resampling import Interval
from rmdn.metrics.transfer import (
    Transfer,
    TransferDistances,
    transfer,
    transfer_distances,
    transfer_intervals,
)

if TYPE_CHECKING:
    from rmdn.metrics.confounding import full_confounder_test, partial_confounder_test
    from rmdn.metrics.leakage import Leakage, leakage_check
    from rmdn.metrics.probe import probe_layers
    from rmdn.metrics.saliency import Saliency, glass_brain, region_saliency, saliency_map
    from rmdn.metrics.streaming import ClassRatesMetric, Collected, DistanceCorrelation, TransferMatrix
    from rmdn.metrics.tests import (
        Comparison,
        anova_tukey,
        critical_difference_picture,
        kruskal_conover,
        mean_interval,
    )
    from rmdn.metrics.variance import ConfounderCurve, VarianceShares, confounder_curve, variance_shares

_LAZY = {
    "confounding": ["full_confounder_test", "partial_confounder_test"],
    "leakage": ["Leakage", "leakage_check"],
    "probe": ["probe_layers"],
    "saliency": ["Saliency", "glass_brain", "region_saliency", "saliency_map"],
    "streaming": ["ClassRatesMetric", "Collected", "DistanceCorrelation", "TransferMatrix"],
    "tests": ["Comparison", "anova_tukey", "critical_difference_picture", "kruskal_conover", "mean_interval"],
    "variance": ["ConfounderCurve", "VarianceShares", "confounder_curve", "variance_shares"],
}
_HOME = {name: module for module, names in _LAZY.items() for name in names}

__all__ = [
    "ClassRates",
    "ClassRatesMetric",
    "Collected",
    "Comparison",
    "ConfounderCurve",
    "DistanceCorrelation",
    "Identifiability",
    "Interval",
    "Leakage",
    "PerClass",
    "PermutationTest",
    "Saliency",
    "Transfer",
    "TransferDistances",
    "TransferMatrix",
    "VarianceShares",
    "anova_tukey",
    "class_rates",
    "confounder_curve",
    "critical_difference_picture",
    "dcor2",
    "dcor2_interval",
    "dcor2_per_class",
    "dcor2_test",
    "full_confounder_test",
    "glass_brain",
    "identifiability",
    "kruskal_conover",
    "leakage_check",
    "mean_interval",
    "partial_confounder_test",
    "probe_layers",
    "region_saliency",
    "saliency_map",
    "transfer",
    "transfer_distances",
    "transfer_intervals",
    "variance_shares",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

"""Confounder-free features inside any PyTorch network."""

from __future__ import annotations

import importlib
from typing import Any

from rmdn import errors, recursion
from rmdn.deconfound import Deconfounded, deconfound
from rmdn.layers import MDN, PMDN, RMDN, ConfounderLayer
from rmdn.placement import vit_places
from rmdn.recalibration import recalibrate

__version__ = "0.1.0"
__all__ = [
    "MDN",
    "PMDN",
    "RMDN",
    "ConfounderLayer",
    "Deconfounded",
    "deconfound",
    "errors",
    "recalibrate",
    "recursion",
    "vit_places",
]

# Loaded at first use (`rmdn.metrics.dcor2`), so that `import rmdn` stays quick and needs torch and numpy alone.
_AT_FIRST_USE = ("data", "metrics", "models", "schema", "strategies", "testing", "training")


def __getattr__(name: str) -> Any:
    if name in _AT_FIRST_USE:
        return importlib.import_module(f"rmdn.{name}")
    raise AttributeError(f"module 'rmdn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_AT_FIRST_USE])

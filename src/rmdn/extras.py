"""Optional dependencies, imported where they are used."""

from __future__ import annotations

import importlib
from typing import Any

from rmdn.errors import MissingExtraError


def need(module: str, extra: str) -> Any:
    """Import a module of an optional extra, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise MissingExtraError(f"This needs {error.name}, which is not installed: pip install 'rmdn[{extra}]'.") from error

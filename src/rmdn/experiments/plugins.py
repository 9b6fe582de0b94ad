"""A user's own methods, data and experiments: Python files that register them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rmdn.errors import SettingError

PREFIX = "rmdn_plugin_"  # of the modules that the files become


def load(files: Sequence[str]) -> None:
    """Run files which register methods, problems and experiments, each once in a process."""
    for file in files:
        path = Path(file).resolve()
        if not path.is_file():
            raise SettingError(f"There is no plugin file {file}; give the path of a Python file.")
        _load(path, PREFIX + path.stem)


def _load(path: Path, name: str) -> None:
    if name in sys.modules:
        other = sys.modules[name].__file__
        if other != str(path):
            raise SettingError(f"Two plugin files have one name, {other} and {path}; rename one of them.")
        return
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SettingError(f"The plugin file {path} is no Python file: its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def own_code(made_by: Callable[..., Any]) -> tuple[str, ...]:
    """The plugin that a function stands in: it is part of the code that a run rests on."""
    return (made_by.__module__,) if made_by.__module__.startswith(PREFIX) else ()

"""What a run's numbers rest on: code, whatever its comments, docstrings and line breaks, the same on every Python."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import inspect
import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

from rmdn.errors import SettingError


def digest(value: Any) -> str:
    """A short name for a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


@functools.cache
def code_of(module: str) -> str:
    """A module's code."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise SettingError(f"There is no module {module!r}, whose code was named as part of a run.")
    return code_in(Path(spec.origin).read_text(encoding="utf-8"))


@functools.cache
def code_of_function(function: Callable[..., Any]) -> str:
    """A function's code, and that of the functions beside it which it calls."""
    found: dict[str, str] = {}

    def visit(one: FunctionType) -> None:
        text = textwrap.dedent(inspect.getsource(one))
        found[one.__name__] = code_in(text)
        for name in _names(text):
            other = one.__globals__.get(name)
            if isinstance(other, FunctionType) and other.__module__ == one.__module__ and name not in found:
                visit(other)

    if isinstance(function, FunctionType):
        visit(function)
    return json.dumps(found, sort_keys=True)


def _names(text: str) -> list[str]:
    """The names that a function's body uses, inner functions and comprehensions included; not those of its decorators.

    From the text, for what `__code__.co_names` tells of comprehensions depends on the version of Python.
    """
    (function,) = ast.parse(text).body
    parts = function.body if isinstance(function, ast.FunctionDef) else [function]
    return sorted({node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name)})


def code_in(text: str) -> str:
    """What Python makes of a text."""
    return json.dumps(_shape(ast.parse(text)))


def _shape(node: Any) -> Any:
    """A syntax tree as plain lists: without what is empty, for versions of Python differ in that."""
    if isinstance(node, ast.AST):
        parts = [[name, _shape(value)] for name, value in ast.iter_fields(node) if value is not None and value != []]
        return [type(node).__name__, *parts]
    if isinstance(node, list):
        return [_shape(part) for part in node if not _is_text(part)]
    return repr(node)


def _is_text(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)

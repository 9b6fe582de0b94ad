"""What every measure asks of its input: checked first, with errors that name the argument and the row."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rmdn.errors import InputError, MissingExtraError, SettingError


def matrix(values: Any, name: str, rows: int | None = None) -> Tensor:
    """Finite numbers as (n, p) in float64 (float32 where a device has no float64), on their own device."""
    tensor = values if isinstance(values, Tensor) else _tensor(values, name)
    if tensor.ndim == 0 or tensor.is_complex():
        raise InputError(f"{name} must be real numbers, one row a sample; got {_describe(tensor)}.")
    if rows is not None and len(tensor) != rows:
        raise InputError(f"{name} has {len(tensor)} rows, expected {rows}: one row a sample, in the same order.")
    tensor = tensor.reshape(len(tensor), -1) if len(tensor) else tensor.reshape(0, 1)
    if tensor.shape[1] == 0:
        raise InputError(f"{name} has no columns; got {_describe(tensor)}.")
    tensor = tensor.to(torch.float32 if tensor.device.type == "mps" else torch.float64)
    bad = (~torch.isfinite(tensor)).nonzero()
    if len(bad):
        row, column = bad[0].tolist()
        raise InputError(
            f"{name} has {len(bad)} NaN or infinite entries, the first in row {row}, column {column}. "
            "Drop or impute these rows first, in every argument alike."
        )
    return tensor


def array(values: Any, name: str, rows: int | None = None) -> NDArray[np.float64]:
    """The same as `matrix`, as a NumPy array on the host."""
    return np.asarray(matrix(values, name, rows).detach().cpu().numpy(), dtype=np.float64)


def groups(values: Any, name: str, rows: int | None = None) -> tuple[NDArray[np.intp], list[Any]]:
    """Codes 0..K-1 of each row (n,) and the K levels, for labels, sites, subjects: numbers or strings."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    column = np.asarray(values)
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.ndim != 1:
        raise InputError(f"{name} must be one value a row; got an array of shape {column.shape}.")
    if rows is not None and len(column) != rows:
        raise InputError(f"{name} has {len(column)} rows, expected {rows}: one row a sample, in the same order.")
    if column.dtype == object and any(_missing(value) for value in column):
        raise InputError(f"{name} has missing entries. Drop these rows first, in every argument alike.")
    if np.issubdtype(column.dtype, np.inexact) and not np.isfinite(column).all():
        row = int(np.flatnonzero(~np.isfinite(column))[0])
        raise InputError(f"{name} is NaN or infinite in row {row}. Drop these rows first, in every argument alike.")
    try:
        levels, codes = np.unique(column, return_inverse=True)
    except TypeError as error:
        raise InputError(f"{name} mixes kinds of values that have no order ({error}). Make them all strings.") from error
    return codes.astype(np.intp).reshape(-1), levels.tolist()


def level(confidence: float) -> float:
    """A confidence level strictly between 0 and 1."""
    if not 0 < confidence < 1:
        raise SettingError(f"confidence must lie between 0 and 1, for example 0.95; got {confidence}.")
    return confidence


def at_least(value: int, least: int, name: str) -> int:
    """A count that is not too small."""
    if value < least:
        raise SettingError(f"{name} must be at least {least}; got {value}.")
    return value


def need(module: str, extra: str, purpose: str) -> Any:
    """Import an optional dependency, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{purpose} needs {module.partition('.')[0]!r}: pip install 'rmdn[{extra}]' ({error})."
        ) from error


def _missing(value: Any) -> bool:
    """None, NaN, or pandas' NA, which cannot be compared."""
    return value is None or type(value).__name__ == "NAType" or bool(value != value)


def _tensor(values: Any, name: str) -> Tensor:
    """Lists, arrays and table columns as a tensor that may be read-only or reversed in the original."""
    try:
        numbers = np.array(values)
        if numbers.dtype.kind not in "biufcO":
            raise TypeError(f"entries are {numbers.dtype}")
        return torch.from_numpy(numbers.astype(np.complex128 if numbers.dtype.kind == "c" else np.float64))
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers; got {type(values).__name__}: {error}.") from error


def _describe(tensor: Tensor) -> str:
    return f"shape {tuple(tensor.shape)}, {tensor.dtype}"

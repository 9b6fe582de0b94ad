"""The two products of a narrow design X (B, p) with wide features Z (B, h), near the speed of memory."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_BLOCKS = 16  # of columns
_ROWS = 8  # a block
_WIDE = 4096  # features from which blocks of rows pay


def cross(X: Tensor, Z: Tensor) -> Tensor:
    """X'Z (p, h)."""
    batch, h = Z.shape
    if batch < _BLOCKS or h % _BLOCKS or Z.device.type != "cpu":
        return X.mT @ Z
    # One product with p rows keeps a single core busy; one a block of columns shares the work out.
    blocks = Z.unflatten(1, (_BLOCKS, h // _BLOCKS)).transpose(0, 1)  # (blocks, B, h / blocks)
    out = torch.bmm(X.mT.expand(_BLOCKS, -1, -1), blocks)  # (blocks, p, h / blocks)
    return out.transpose(0, 1).reshape(X.shape[1], h)


def subtract_product(Z: Tensor, X: Tensor, beta: Tensor) -> Tensor:
    """Z - X beta (B, h)."""
    rows = _rows_at_a_time(Z)
    if rows == 1:
        return torch.addmm(Z, X, beta, alpha=-1)
    return torch.baddbmm(*_blocks_of_rows(Z, X, beta, rows), alpha=-1).view(Z.shape)


def subtract_product_(Z: Tensor, X: Tensor, beta: Tensor) -> Tensor:
    """Z - X beta (B, h), written over Z."""
    rows = _rows_at_a_time(Z)
    if rows == 1:
        return Z.addmm_(X, beta, alpha=-1)
    blocks, *factors = _blocks_of_rows(Z, X, beta, rows)
    blocks.baddbmm_(*factors, alpha=-1)
    return Z


def _rows_at_a_time(Z: Tensor) -> int:
    """On CPUs a product over many wide rows waits for memory, most where they lie whole pages apart; of few it does not."""
    if torch.compiler.is_compiling():  # nothing that would hold for some batch sizes only
        return 1
    batch, h = Z.shape
    wide = h >= _WIDE and Z.device.type == "cpu" and Z.is_contiguous()
    return math.gcd(batch, _ROWS) if wide and batch > _ROWS else 1


def _blocks_of_rows(Z: Tensor, X: Tensor, beta: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    blocks = len(Z) // rows
    return Z.view(blocks, rows, -1), X.reshape(blocks, rows, -1), beta.expand(blocks, -1, -1)

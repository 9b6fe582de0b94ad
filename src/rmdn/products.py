"""The two products of a narrow design X (B, p) with wide features Z (B, h), near the speed of memory."""

from __future__ import annotations

import torch
from torch import Tensor

# On CPUs, rows that lie a multiple of this many bytes apart fall on the same few cache lines, and a product over many of
# them runs several times slower. Some rows at a time do not.
_PAGE = 4096
_BLOCKS = 16
_ROWS = 16


def cross(X: Tensor, Z: Tensor) -> Tensor:
    """X'Z (p, h)."""
    batch, h = Z.shape
    if batch < _BLOCKS or h % _BLOCKS or Z.device.type != "cpu":
        return X.mT @ Z
    # One product with p rows keeps a single core busy; one a block of columns shares the work out.
    blocks = Z.view(batch, _BLOCKS, -1).transpose(0, 1)  # (blocks, B, h / blocks)
    out = torch.bmm(X.mT.expand(_BLOCKS, -1, -1), blocks)  # (blocks, p, h / blocks)
    return out.transpose(0, 1).reshape(-1, h)


def subtract_product(Z: Tensor, X: Tensor, beta: Tensor) -> Tensor:
    """Z - X beta (B, h)."""
    if Z.requires_grad or not _collides(Z):
        return torch.addmm(Z, X, beta, alpha=-1)
    return subtract_product_(Z.clone(), X, beta)


def subtract_product_(Z: Tensor, X: Tensor, beta: Tensor) -> Tensor:
    """Z - X beta (B, h), written over Z."""
    if not _collides(Z):
        return Z.addmm_(X, beta, alpha=-1)
    for z, x in zip(Z.split(_ROWS // 2), X.split(_ROWS // 2), strict=True):  # read and written: half as many fit
        z.addmm_(x, beta, alpha=-1)
    return Z


def _collides(Z: Tensor) -> bool:
    if torch.compiler.is_compiling():  # nothing that would hold for some batch sizes only
        return False
    return len(Z) > 2 * _ROWS and Z.stride(0) * Z.element_size() % _PAGE == 0 and Z.device.type == "cpu"

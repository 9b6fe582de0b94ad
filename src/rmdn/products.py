"""The two products of a narrow design X (B, p) with wide features Z (B, h), near the speed of memory."""

from __future__ import annotations

import torch
from torch import Tensor

# On CPUs, rows that lie a multiple of this many bytes apart fall on the same few cache lines, and a product over many of
# them runs several times slower. Some rows at a time do not.
_PAGE = 4096
_ROWS = 16


def cross(X: Tensor, Z: Tensor) -> Tensor:
    """X'Z (p, h)."""
    if not _collides(Z):
        return X.mT @ Z
    first, *rest = zip(X.split(_ROWS), Z.split(_ROWS), strict=True)
    out = first[0].mT @ first[1]
    for x, z in rest:
        out.addmm_(x.mT, z)
    return out


def subtract_product(Z: Tensor, X: Tensor, beta: Tensor) -> Tensor:
    """Z - X beta (B, h)."""
    if Z.requires_grad or not _collides(Z):
        return torch.addmm(Z, X, beta, alpha=-1)
    return subtract_product_(Z.clone(), X, beta)


def subtract_product_(Z: Tensor, X: Tensor, beta: Tensor) -> Tensor:
    """Z - X beta (B, h), written over Z."""
    if not _collides(Z):
        return Z.addmm_(X, beta, alpha=-1)
    if X.shape[1] <= 2:
        for column, row in zip(X.mT, beta, strict=True):
            Z.addcmul_(column[:, None], row, value=-1)
        return Z
    for z, x in zip(Z.split(_ROWS), X.split(_ROWS), strict=True):
        z.addmm_(x, beta, alpha=-1)
    return Z


def _collides(Z: Tensor) -> bool:
    if torch.compiler.is_compiling():  # nothing that would hold for some batch sizes only
        return False
    return len(Z) > 2 * _ROWS and Z.stride(0) * Z.element_size() % _PAGE == 0 and Z.device.type == "cpu"

"""Ways to take X beta out of features, and what the backward pass makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from rmdn.products import subtract_product_

if TYPE_CHECKING:
    from rmdn.layers.rmdn import RMDN

# Operations whose backward pass does not read their output: its memory may be written over.
_OUTPUT_UNUSED = {
    "ConvolutionBackward0",
    "MkldnnConvolutionBackward0",
    "CudnnConvolutionBackward0",
    "AddmmBackward0",
    "NativeBatchNormBackward0",
    "CudnnBatchNormBackward0",
    "NativeLayerNormBackward0",
    "NativeGroupNormBackward0",
    "AddBackward0",
}


def writable(features: Tensor) -> bool:
    """Whether the residual may be written over the features without spoiling anybody's backward pass."""
    if not features.is_contiguous() or features.dtype not in (torch.float32, torch.float64) or features.is_leaf:
        return not features.requires_grad and features.is_contiguous() and features.dtype == torch.float32
    return type(features.grad_fn).__name__ in _OUTPUT_UNUSED and not features._is_view()


def subtract_in_place(features: Tensor, X: Tensor, beta: Tensor) -> Tensor:
    """Features - X beta, one coefficient for each feature, in the features' own memory.

    Past autograd, for which the features stay what they are: the gradient passes unchanged. The detached tensor shares
    their version, so that a backward pass which had saved them still says that they were written over.
    """
    subtract_product_(features.detach().view(len(features), -1), X, beta.flatten(1))
    return features


class Projection(NamedTuple):
    """The transposed derivative of a least-squares residual: g -> g - X M^-1 S E[x g]."""

    X: Tensor  # (B, p)
    weights: Tensor  # (p, c + 1): the columns of M^-1 / B that belong to removed columns
    share: float  # what this batch counts for in the running mean of X'g


def project_gradient(residual: Tensor, projection: Projection, layer: RMDN) -> Tensor:
    """The residual itself; in the backward pass its gradient loses what moves along the removed columns."""
    out: Tensor = _ProjectGradient.apply(residual, projection, layer)
    return out


class _ProjectGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, residual: Tensor, projection: Projection, layer: RMDN) -> Tensor:
        ctx.projection, ctx.layer = projection, layer
        return residual.view_as(residual)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        X, weights, share = ctx.projection
        gradient, first = grads[0], X.shape[1] - weights.shape[1]
        with torch.autocast(gradient.device.type, enabled=False):  # a backward pass may be run inside autocast
            along = X[:, first:].mT @ ctx.layer.pool(gradient).to(X.dtype)  # (c + 1, h)
            return ctx.layer.subtract(gradient, X, weights @ ctx.layer.smoothed(along, share)), None, None

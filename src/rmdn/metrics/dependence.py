"""Bias-corrected squared distance correlation: is there any dependence, of any form, between x and y?"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rmdn.errors import InputError, RMDNWarning
from rmdn.metrics._distances import Points, Sums, centred, centred_products, line_sums, tile_sums, tiles
from rmdn.metrics._inputs import groups, matrix

_LEAST = 4  # samples: the bias correction divides by n - 3


def dcor2(x: Any, y: Any) -> Tensor:
    """Bias-corrected squared distance correlation of paired samples x (n, ...) and y (n, ...).

    It assumes independent samples of finite first moment and sees dependence of any form, not only linear. It
    cannot show a direction, a cause, or that a dependence is not due to a third variable such as the label:
    take it within classes (`dcor2_per_class`) for that, and `dcor2_test` for a p-value.

    Not clipped: near independence it scatters around zero, below as well as above. NaN where it does not
    exist: one side is constant, or all its points are equally far apart. Computed in float64 with O(n)
    memory, on the device of the inputs (float32 on a device without float64); two columns of plain numbers
    take O(n log n) time. Gradients flow to inputs that require them, once; between exactly equal numbers the
    slope is one-sided.
    """
    x, y = paired(x, y)
    return correlation(x, y)


class PerClass(NamedTuple):
    """Distance correlation within each class, and their plain mean."""

    mean: Tensor
    classes: dict[Any, Tensor]


def dcor2_per_class(x: Any, y: Any, labels: Any) -> PerClass:
    """`dcor2` within each class of the labels (n,), and the mean over classes, as the paper reports it.

    It assumes that the label is measured without error and that the classes weigh alike. It cannot show
    dependence between classes (by design), nor anything for a class of under 4 samples: that reads NaN, with
    a warning, and the mean is over the classes that have a value.
    """
    x, y = paired(x, y)
    codes, levels = groups(labels, "labels", len(x))
    classes: dict[Any, Tensor] = {}
    for code, name in enumerate(levels):
        rows = torch.as_tensor(codes == code, device=x.device)
        enough = int(rows.sum()) >= _LEAST
        classes[name] = correlation(x[rows], y[rows]) if enough else x.new_tensor(float("nan"))
    missing = [name for name, value in classes.items() if bool(value.isnan())]
    if missing:
        warnings.warn(
            f"dcor2 does not exist in class {missing}: fewer than {_LEAST} samples, or constant values. "
            "The mean is over the other classes.",
            RMDNWarning,
            stacklevel=2,
        )
    return PerClass(torch.stack(list(classes.values())).nanmean(), classes)


def paired(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Two checked matrices with the same number of rows, at least four, on the same device."""
    x = matrix(x, "x")
    y = matrix(y, "y", len(x))
    if x.device != y.device:
        raise InputError(f"x is on {x.device} and y on {y.device}. Move one of them.")
    if len(x) < _LEAST:
        raise InputError(f"Distance correlation needs at least {_LEAST} samples; got {len(x)}.")
    return x, y


def correlation(x: Tensor, y: Tensor) -> Tensor:
    """`dcor2` of checked input."""
    if _constant(x) or _constant(y):
        return (x.sum() + y.sum()) * float("nan")
    x, y = standard(x), standard(y)
    if x.shape[1] == 1 and y.shape[1] == 1:
        value = _ratio(x, y, line_sums(x[:, 0], y[:, 0]))[0]
        if not bool(value.isnan()):
            return value
    return cast(Tensor, _DistanceCorrelation.apply(x, y))


def standard(x: Tensor) -> Tensor:
    """x moved to median 0 and scaled to at most 1: no distance correlation changes, and no square overflows.

    The median, not the mean: one far point must not move all others away from 0, where digits are dense.
    """
    with torch.no_grad():
        largest = x.abs().max().clamp_min(torch.finfo(x.dtype).tiny)
        centre = (x / largest).median(0).values
        spread = (x / largest - centre).abs().max().clamp_min(torch.finfo(x.dtype).tiny)
    return (x / largest - centre) / spread


def u_product(products: Tensor, crossed: Tensor, a_total: Tensor, b_total: Tensor, n: int | Tensor) -> Tensor:
    """n (n - 3) times the U-centred mean product, from the sums of products of entries and of row sums."""
    return products - 2 / (n - 2) * crossed + a_total * b_total / ((n - 1) * (n - 2))


def u_variance(x: Tensor, a: Tensor) -> Tensor:
    """The same for x (n, p) with itself; NaN where the sums cancel to fewer than about eight digits."""
    squares = _square_distances(x)
    value = u_product(squares, torch.dot(a, a), a.sum(), a.sum(), len(x))
    return torch.where(value > torch.finfo(x.dtype).eps ** 0.5 * squares.detach(), value, float("nan"))


def _square_distances(x: Tensor) -> Tensor:
    """sum_ij |x_i - x_j|^2 in closed form."""
    return 2 * len(x) * (x * x).sum() - 2 * (x.sum(0) ** 2).sum()


def _ratio(x: Tensor, y: Tensor, sums: Sums) -> tuple[Tensor, Tensor, Tensor]:
    """The correlation and both variances."""
    covariance = u_product(sums.products, torch.dot(sums.a, sums.b), sums.a.sum(), sums.b.sum(), len(x))
    x_variance, y_variance = u_variance(x, sums.a), u_variance(y, sums.b)
    return covariance / (x_variance.sqrt() * y_variance.sqrt()), x_variance, y_variance


def _careful_ratio(x: Tensor, y: Tensor, sums: Sums) -> tuple[Tensor, Tensor, Tensor]:
    """The same by a second pass over the distances; NaN where even there only rounding is left.

    A point far away adds nearly the same to all its distances. Centring takes that out again, but only
    entry by entry does it leave the digits of the others.
    """
    covariance, *variances = centred_products(Points(x), Points(y), sums.a, sums.b)
    least = (2**20 * torch.finfo(x.dtype).eps) ** 2
    x_variance, y_variance = (
        torch.where(variance > least * _square_distances(side), variance, float("nan"))
        for variance, side in zip(variances, (x, y), strict=True)
    )
    return covariance / (x_variance.sqrt() * y_variance.sqrt()), x_variance, y_variance


def _constant(x: Tensor) -> bool:
    return bool((x.detach() == x.detach()[0]).all())


class _DistanceCorrelation(torch.autograd.Function):
    """The row sums go forward; the distances are made again backward, so that memory stays O(n)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        sums = tile_sums(Points(x), Points(y))
        value, x_variance, y_variance = _ratio(x, y, sums)
        if bool(value.isnan()):
            value, x_variance, y_variance = _careful_ratio(x, y, sums)
        ctx.save_for_backward(x, y, sums.a, sums.b, value, x_variance, y_variance)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, y, a, b, value, x_variance, y_variance = ctx.saved_tensors
        x_points, y_points = Points(x), Points(y)
        scale = (x_variance * y_variance).sqrt()
        x_slope, y_slope = torch.zeros_like(x), torch.zeros_like(y)
        for rows, columns in tiles(len(x), x.device):
            a_tile, b_tile = x_points.tile(rows, columns), y_points.tile(rows, columns)  # (r, c)
            a_centred, b_centred = centred(a_tile, a, rows, columns), centred(b_tile, b, rows, columns)
            _add_slope(x_slope, x, a_tile, b_centred / scale - value * a_centred / x_variance, rows, columns)
            _add_slope(y_slope, y, b_tile, a_centred / scale - value * b_centred / y_variance, rows, columns)
        return gradient * x_slope, gradient * y_slope


def _add_slope(slope: Tensor, x: Tensor, distances: Tensor, weight: Tensor, rows: slice, columns: slice) -> None:
    """Add sum_j 2 w_ij (x_i - x_j) / |x_i - x_j|, for a mirrored tile also to j; nothing at distance 0."""
    pull = torch.where(distances > 0, 2 * weight / distances, 0.0)
    slope[rows] += pull.sum(1, keepdim=True) * x[rows] - pull @ x[columns]
    if rows != columns:
        slope[columns] += pull.sum(0)[:, None] * x[columns] - pull.T @ x[rows]

"""How sure a distance correlation is: permutation p-values, jackknife intervals over exchangeable units."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rmdn.errors import InputError
from rmdn.metrics._distances import Points, line_products, line_rows, mirrored, tile_sums, tiles
from rmdn.metrics._inputs import at_least, groups, level, need
from rmdn.metrics.dependence import correlation, paired, standard, u_product, u_variance
from rmdn.metrics.resampling import Interval, Permutations, permutation_p_value
from rmdn.progress import track

# Permuted copies held at once, in numbers; with the tiles, the memory of a test stays well under 1 GiB.
_CHUNK = 4_000_000
_LONG = 5e10  # distances, above which the work takes more than seconds


class PermutationTest(NamedTuple):
    """An observed statistic, its permutation p-value and the permuted statistics."""

    value: float
    p_value: float
    null: NDArray[np.float64]


def dcor2_test(
    x: Any, y: Any, *, units: Any = None, within: Any = None, permutations: int = 999, seed: int = 0
) -> PermutationTest:
    """Permutation test of independence of x (n, ...) and y (n, ...) by `dcor2`.

    `units` (subject, family) are exchanged whole, with others of the same number of rows; `within` (site,
    class) confines the exchange to equal levels: with the class there, it tests independence given the class.

    It assumes that under independence the units may be exchanged; rows that depend on each other need
    `units`. It cannot show how strong a dependence is, and a large p-value is no proof that there is none.

    Only one sum changes between permutations: distances of the wider side are made once per chunk, row sums
    and variances once. With `within`, the statistic is still the correlation over all rows. NaN where `dcor2`
    is NaN.
    """
    x, y = (standard(side.detach()) for side in paired(x, y))
    n = len(x)
    if y.shape[1] > x.shape[1]:
        x, y = y, x  # permuting either side is the same; the narrow one is cheaper to remake
    exchange = Permutations(n, units, within)
    value = float(correlation(x, y))
    at_least(permutations, 1, "permutations")
    if math.isnan(value):
        return PermutationTest(value, float("nan"), np.full(permutations, np.nan))
    a, b = (_row_sums(side) for side in (x, y))
    scale = float((u_variance(x, a) * u_variance(y, b)).sqrt())
    generator = np.random.default_rng(seed)
    chunk = max(1, min(permutations, _CHUNK // (n * y.shape[1])))
    sizes = [min(chunk, permutations - done) for done in range(0, permutations, chunk)]
    null = []
    for m in track(sizes, "Permutations of dcor2", long=permutations * n**2 > _LONG):
        taken = torch.as_tensor(np.stack([exchange.draw(generator) for _ in range(m)]), device=x.device)  # (m, n)
        products, crossed = _permuted_products(x, y, taken), b[taken] @ a  # (m,)
        null.append(u_product(products, crossed, a.sum(), b.sum(), n) / scale)
    drawn = torch.cat(null).cpu().numpy().astype(np.float64)
    return PermutationTest(value, permutation_p_value(value, drawn), drawn)


def dcor2_interval(x: Any, y: Any, *, units: Any = None, confidence: float = 0.95) -> Interval:
    """`dcor2` with a confidence interval from the delete-one-unit jackknife, in O(n^2) time.

    It assumes independent units (rows, or the subjects, families or sites named in `units`), enough of them
    for a t-distribution (say 20), and no single unit that carries the result. It cannot show whether there is
    dependence at all: near independence it is wider than need be, and `dcor2_test` is the test.

    NaN ends where leaving a unit out leaves no value, or one point lies so far away that sums lose digits. (A
    plain bootstrap would draw rows twice, and so put distances of zero where there are none, which pushes
    distance correlation upwards.)
    """
    x, y = (side.detach() for side in paired(x, y))
    n = len(x)
    value = float(correlation(x, y))
    if units is None:
        codes, count = torch.arange(n, device=x.device), n
    else:
        found, levels = groups(units, "units", n)
        codes, count = torch.as_tensor(found, device=x.device), len(levels)
    if count < 2:
        raise InputError(f"An interval needs at least two units; got {count}.")
    left = n - torch.bincount(codes, minlength=count)
    x, y = standard(x), standard(y)
    digits = u_variance(x, _row_sums(x)) * u_variance(y, _row_sums(y))
    if bool((value * digits).isnan()) or int(left.min()) < 4:
        return Interval(value, float("nan"), float("nan"))
    replicates = _leave_out(x, y, codes, left)
    error = math.sqrt((count - 1) / count * float(((replicates - replicates.mean()) ** 2).sum()))
    stats = need("scipy.stats", "study", "A confidence interval of dcor2")
    reach = float(stats.t.ppf((1 + level(confidence)) / 2, count - 1)) * error
    return Interval(value, value - reach, value + reach)


def _row_sums(x: Tensor) -> Tensor:
    """Row sums of the distances of x (n, p), (n,)."""
    if x.shape[1] == 1:
        return line_rows(x[:, 0])
    points = Points(x)
    return tile_sums(points, points).a


def _permuted_products(x: Tensor, y: Tensor, taken: Tensor) -> Tensor:
    """sum_ij a_ij b_ij for y in each of the orders `taken` (m, n), (m,)."""
    if x.shape[1] == 1 and y.shape[1] == 1:
        rows = max(1, _CHUNK // (16 * len(x)))  # the line algorithm holds about 16 arrays of its size
        return torch.cat([line_products(x[:, 0], y[taken[i : i + rows], 0]) for i in range(0, len(taken), rows)])
    points = Points(x)
    copies = [Points(y[order]) for order in taken]
    products = [x.new_zeros(()) for _ in copies]
    for down, across in tiles(len(x), x.device):
        a_tile = points.tile(down, across).reshape(-1) * mirrored(down, across)
        for total, copy in zip(products, copies, strict=True):
            total += torch.dot(a_tile, copy.tile(down, across).reshape(-1))
    return torch.stack(products)


def _leave_out(x: Tensor, y: Tensor, codes: Tensor, left: Tensor) -> Tensor:
    """`dcor2` without each unit, (U,), from the sums that it takes with it."""
    units = len(left)
    a, b = _row_sums(x), _row_sums(y)
    # For xy, xx, yy: sums of products of entries and of row sums; for x and y: totals. All without the unit.
    products, crossed = x.new_zeros(3, units), x.new_zeros(3, units)
    totals = x.new_zeros(2, units)
    x_points, y_points = Points(x), Points(y)
    size = max(1, min(512, _CHUNK // len(x)))
    everywhere = slice(None)
    whole = [slice(start, start + size) for start in range(0, len(x), size)]
    for rows in track(whole, "Jackknife of dcor2", long=len(x) ** 2 > _LONG / 10):
        a_rows, b_rows = x_points.tile(rows, everywhere), y_points.tile(rows, everywhere)  # (r, n)
        kept = codes[rows, None] != torch.arange(units, device=x.device)  # (r, U) the row is not of the unit
        a_left = torch.where(kept, a[rows, None] - _by_unit(a_rows, codes, units), 0.0)
        b_left = torch.where(kept, b[rows, None] - _by_unit(b_rows, codes, units), 0.0)
        totals += torch.stack([a_left.sum(0), b_left.sum(0)])
        pairs = (
            (a_rows, b_rows, a_left, b_left),
            (a_rows, a_rows, a_left, a_left),
            (b_rows, b_rows, b_left, b_left),
        )
        for k, (first, second, first_left, second_left) in enumerate(pairs):
            product = first * second
            without = product.sum(1, keepdim=True) - _by_unit(product, codes, units)
            products[k] += torch.where(kept, without, 0.0).sum(0)
            crossed[k] += (first_left * second_left).sum(0)
    a_total, b_total = totals
    covariance = u_product(products[0], crossed[0], a_total, b_total, left)
    x_variance = u_product(products[1], crossed[1], a_total, a_total, left)
    y_variance = u_product(products[2], crossed[2], b_total, b_total, left)
    return covariance / (x_variance * y_variance).sqrt()


def _by_unit(rows: Tensor, codes: Tensor, units: int) -> Tensor:
    """Columns summed by unit, (r, n) -> (r, U)."""
    return rows.new_zeros(len(rows), units).index_add_(1, codes, rows)

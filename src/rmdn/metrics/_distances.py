"""Euclidean distances made tile by tile, and the sums over them that distance correlation is built from.

With a_ij the distances among the x, b_ij among the y, the U-centred product (Szekely & Rizzo 2014) is

    n (n - 3) U(x, y) = sum_ij a_ij b_ij - 2 / (n - 2) sum_i a_i. b_i. + a.. b.. / ((n - 1) (n - 2))

so only the row sums and one sum of products are needed: no n x n matrix is ever held. For pairs of plain
numbers both come from sorting and cumulative sums alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

# A tile should stay in a core's cache; a GPU wants few large kernels.
_CPU_TILE, _DEVICE_TILE = 512, 4096
# Up to so many columns, differences are cheaper than a matrix product, and exact for equal points.
_FEW_COLUMNS = 8


class Points:
    """Points (n, p) that give any tile of their distance matrix."""

    def __init__(self, x: Tensor) -> None:
        self.x = x
        self.n, self.columns = x.shape
        if self.columns > _FEW_COLUMNS:
            squares = (x * x).sum(1, keepdim=True)  # (n, 1)
            ones = torch.ones_like(squares)
            self._left = torch.cat([-2 * x, squares, ones], 1)  # (n, p + 2): left_i . right_j = |x_i - x_j|^2
            self._right = torch.cat([x, ones, squares], 1)
            # Below the sum of two points' noise a squared distance is rounding: equal points must be at 0.
            self._noise = 16 * torch.finfo(x.dtype).eps * squares

    def tile(self, rows: slice | Tensor, columns: slice | Tensor) -> Tensor:
        """Distances of some points to some others, (r, c)."""
        if self.columns == 1:
            return (self.x[rows] - self.x[columns].T).abs_()
        if self.columns <= _FEW_COLUMNS:
            return torch.cdist(self.x[rows], self.x[columns], compute_mode="donot_use_mm_for_euclid_dist")
        squares = self._left[rows] @ self._right[columns].T
        return squares.masked_fill_(squares < self._noise[rows] + self._noise[columns].T, 0.0).sqrt_()


def tiles(n: int, device: torch.device) -> Iterator[tuple[slice, slice]]:
    """The tiles on and above the diagonal; one off the diagonal stands for itself and its mirror image."""
    size = _CPU_TILE if device.type == "cpu" else _DEVICE_TILE
    edges = [slice(start, min(start + size, n)) for start in range(0, n, size)]
    return ((rows, columns) for i, rows in enumerate(edges) for columns in edges[i:])


def mirrored(rows: slice, columns: slice) -> float:
    """How often a tile counts: twice off the diagonal, once on it."""
    return 1.0 if rows == columns else 2.0


class Sums(NamedTuple):
    """Sums over the distances of paired points."""

    products: Tensor  # () sum_ij a_ij b_ij
    a: Tensor  # (n,) row sums of a
    b: Tensor  # (n,) row sums of b


def tile_sums(x: Points, y: Points) -> Sums:
    """The sums in O(n^2) time and O(n) memory."""
    products = x.x.new_zeros(())
    a, b = x.x.new_zeros(x.n), x.x.new_zeros(x.n)
    for rows, columns in tiles(x.n, x.x.device):
        a_tile, b_tile = x.tile(rows, columns), y.tile(rows, columns)  # (r, c)
        products += mirrored(rows, columns) * torch.dot(a_tile.reshape(-1), b_tile.reshape(-1))
        a[rows] += a_tile.sum(1)
        b[rows] += b_tile.sum(1)
        if rows != columns:
            a[columns] += a_tile.sum(0)
            b[columns] += b_tile.sum(0)
    return Sums(products, a, b)


def centred(tile: Tensor, row_sums: Tensor, rows: slice, columns: slice) -> Tensor:
    """The U-centred distances of a tile (its diagonal, which never counts, is left as it falls)."""
    n = len(row_sums)
    return tile - row_sums[rows, None] / (n - 2) - row_sums[None, columns] / (n - 2) + row_sums.sum() / ((n - 1) * (n - 2))


def centred_products(x: Points, y: Points, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of U-centred products xy, xx, yy entry by entry: a second pass, for when the sums cancel."""
    found = x.x.new_zeros(3)
    for rows, columns in tiles(x.n, x.x.device):
        a_tile = centred(x.tile(rows, columns), a, rows, columns)
        b_tile = centred(y.tile(rows, columns), b, rows, columns)
        if rows == columns:
            a_tile.fill_diagonal_(0)
            b_tile.fill_diagonal_(0)
        products = (a_tile * b_tile).sum(), (a_tile * a_tile).sum(), (b_tile * b_tile).sum()
        found += mirrored(rows, columns) * torch.stack(products)
    return found[0], found[1], found[2]


def line_sums(x: Tensor, y: Tensor) -> Sums:
    """The sums for numbers x (n,) and y (n,) in O(n log n)."""
    return Sums(line_products(x, y[None])[0], line_rows(x), line_rows(y))


def line_rows(x: Tensor) -> Tensor:
    """sum_j |x_i - x_j| for numbers x (n,)."""
    n = len(x)
    ordered, order = torch.sort(x)
    rank = torch.arange(n, device=x.device, dtype=x.dtype)
    below = ordered.cumsum(0) - ordered  # the sum of all smaller ones
    sums = ordered * (2 * rank + 1 - n) - 2 * below + ordered.sum() - ordered
    return torch.zeros_like(sums).scatter(0, order, sums)


def line_products(x: Tensor, y: Tensor) -> Tensor:
    """sum_ij |x_i - x_j| |y_i - y_j| for x (n,) and each row of y (m, n), in O(m n log n).

    With the x sorted, |x_i - x_j| |y_i - y_j| is (x_i - x_j)(y_i - y_j), negated where y disagrees with the
    order of x. The pairs that agree are found as a merge sort finds them: all positions start in the order of
    y; at each level every block is split, in that order, into its lower and upper half of x; and what an
    upper element has before it among the lower ones are cumulative sums. Padding to a power of two makes all
    blocks alike.
    """
    batch, n = y.shape
    x, by_x = torch.sort(x)
    y = y[:, by_x]
    size = 1 << max(n - 1, 1).bit_length()
    padding = torch.arange(n, size, device=x.device).expand(batch, -1)
    position = torch.cat([torch.argsort(y, dim=1, stable=True), padding], 1).reshape(batch, 1, size)
    weight, x_, y_ = (torch.nn.functional.pad(v, (0, size - n)) for v in (torch.ones_like(x), x, y))
    agreeing = x.new_zeros(batch)
    half = size // 2
    while half >= 1:
        upper = (position & half) != 0  # (m, blocks, 2 half), half of each block
        flat = position.reshape(batch, size)
        w, u = weight[flat].view_as(position), x_[flat].view_as(position)
        v = y_.gather(1, flat).view_as(position)
        lower_w, lower_u, lower_v, lower_uv = (torch.where(upper, 0.0, values).cumsum(2) for values in (w, u, v, u * v))
        gain = u * v * lower_w - u * lower_v - v * lower_u + w * lower_uv
        agreeing = agreeing + torch.where(upper, gain, 0.0).sum((1, 2))
        blocks = position.shape[1]
        split = (position[~upper].view(batch, blocks, 1, half), position[upper].view(batch, blocks, 1, half))
        position = torch.cat(split, 2).view(batch, 2 * blocks, half)
        half //= 2
    everything = n * (y @ x) - x.sum() * y.sum(1)  # sum over i < j of (x_i - x_j)(y_i - y_j)
    return 2 * (2 * agreeing - everything)

"""What layers that learn in their forward pass have in common beside `base`: when they do, and what they refuse."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from rmdn.errors import InputError
from rmdn.layers.base import ConfounderLayer, Rows

Layer = TypeVar("Layer", bound=ConfounderLayer)
Train = Callable[[Layer, Tensor, Tensor | None, Tensor | None], Tensor]


def forward(
    layer: Layer, train: Train[Layer], features: Tensor, confounders: Tensor | None, labels: Tensor | None
) -> Tensor:
    """`train` while the layer learns, else its inference; in full precision, and training past the compiler."""
    device = layer.moments.device.type
    if torch.is_autocast_enabled(device):
        with torch.autocast(device, enabled=False):
            return forward(layer, train, features, confounders, labels)
    if not layer.learning:
        return layer.infer(features, confounders)
    if torch.compiler.is_compiling():  # the compiler must not see a step that updates state once a batch
        train = torch.compiler.disable(train)
    return train(layer, features, confounders, labels)


def standardized(layer: ConfounderLayer, rows: Rows) -> tuple[Tensor, Tensor]:
    """The design (B, p) in the layer's coordinates, and the same with zeros in rows that do not update the state."""
    X = (rows.X - layer.center) / layer.scale
    return X, X if rows.counted is None else X * rows.counted[:, None]


def check_finite(coefficients: Tensor, rows: Rows) -> None:
    """Refuse a batch whose coefficients (p, h) show that its features are not finite; nothing has changed yet."""
    if math.isfinite(coefficients[-1].sum().item()):
        return
    bad = (~torch.isfinite(rows.z)).any(1).nonzero().flatten().tolist()
    where = f"in row {bad[0]} of the batch ({len(bad)} such rows in all)" if bad else "once they are added up"
    raise InputError(
        f"features are NaN or infinite, or too large to add up, {where}; the layer's state was not changed. Look for a loss"
        " that diverged or a broken image."
    )

"""Exact coefficients for the weights as they are now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rmdn.deconfound import Batch, Deconfounded, Insertion, call, watching
from rmdn.errors import InputError, UsageError
from rmdn.layers import ranks
from rmdn.layers.rmdn import ELSEWHERE, RMDN
from rmdn.progress import track


class _Reached(Exception):
    """The layer that is being fitted has its features: the rest of the network need not run."""


class _Sums(NamedTuple):
    A: Tensor  # (p, p)
    G: Tensor  # (p, h) float64


@torch.no_grad()
def recalibrate(model: Deconfounded, batches: Iterable[Any], *, exact: bool = True) -> None:
    """Give every R-MDN layer the least-squares coefficients of its features under the present weights.

    While a network trains, the coefficients trail the weights. This takes the weights as they are (in evaluation mode) and
    fits the layers on all `batches`, one after the other in forward order, each behind layers that are fitted already.
    What the layers had learned before is replaced.

    Args:
        model: a network from `rmdn.deconfound`.
        batches: training batches (inputs, confounders, labels); inputs as `deconfound`'s sample. Only training data.
        exact: one pass over the batches for each layer. False fits all layers in a single pass, each behind layers that
            are still being fitted: quicker, and near the exact fit where a layer changes the features after it little.
    """
    insertions = model.insertions if isinstance(model, Deconfounded) else []
    layers = [insertion for insertion in insertions if isinstance(insertion.layer, RMDN)]
    if not layers:
        raise UsageError(f"This {type(model).__name__} has no R-MDN layers; give what rmdn.deconfound returned.")
    passes = len(layers) if exact else 1
    if passes > 1 and iter(batches) is batches:
        raise InputError(
            f"{type(batches).__name__} can be read only once, but {passes} layers need a pass each. Give a list or a"
            " DataLoader, or exact=False."
        )
    training, before = model.training, {id(one): _state(one.layer) for one in layers}
    model.eval()
    try:
        if exact:
            for insertion in _in_forward_order(model, layers, batches):
                _fit(model, insertion, batches)
        else:
            _fit_together(model, layers, batches)
    except BaseException:
        for insertion in layers:
            insertion.layer.load_state_dict(before[id(insertion)])
        raise
    finally:
        model.train(training)


def _in_forward_order(model: Deconfounded, layers: Sequence[Insertion], batches: Iterable[Any]) -> list[Insertion]:
    order: list[str] = []

    def watch(insertion: Insertion, features: Tensor, batch: Batch) -> Tensor:
        order.append(insertion.name)
        return features

    with watching(model, watch):
        for inputs, confounders, labels in batches:
            call(model, inputs, confounders=confounders, labels=labels)
            break
        else:
            raise InputError("There are no batches to recalibrate on.")
    return sorted(layers, key=lambda insertion: order.index(insertion.name))


def _fit(model: Deconfounded, target: Insertion, batches: Iterable[Any]) -> None:
    layer = target.layer
    assert isinstance(layer, RMDN)
    sums: list[_Sums] = []

    def watch(insertion: Insertion, features: Tensor, batch: Batch) -> Tensor:
        if insertion is not target:
            return insertion.layer(features, batch.confounders, batch.labels)
        new = _Sums(*layer.sums(features, batch.confounders, batch.labels, first=not sums))
        sums[:] = [_Sums(sums[0].A + new.A, sums[0].G + new.G) if sums else new]
        raise _Reached

    with watching(model, watch):
        for inputs, confounders, labels in track(batches, f"Recalibrating {target.name}"):
            try:
                call(model, inputs, confounders=confounders, labels=labels)
            except _Reached:
                continue
    A, G = ranks.add(ranks.world(layer.sync), *sums[0])
    if not torch.isfinite(G).all():
        raise InputError(ELSEWHERE)
    layer.refit(A, G)


def _fit_together(model: Deconfounded, layers: Sequence[Insertion], batches: Iterable[Any]) -> None:
    for insertion in layers:
        assert isinstance(insertion.layer, RMDN)
        insertion.layer.reset()
        insertion.layer.train()
    for inputs, confounders, labels in track(batches, "Recalibrating"):
        call(model, inputs, confounders=confounders, labels=labels)


def _state(layer: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in layer.state_dict().items()}

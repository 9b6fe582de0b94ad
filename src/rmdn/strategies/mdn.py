"""What MDN layers need to know ahead: the Gram matrix of each stage's whole training set."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch
from torch import nn

from rmdn.deconfound import Deconfounded
from rmdn.errors import SettingError
from rmdn.layers import ConfounderLayer, mdn
from rmdn.strategies.base import Batch, StageData, Wrapper

if TYPE_CHECKING:
    from lightning.fabric import Fabric

Layer = TypeVar("Layer", bound=ConfounderLayer)


class MDN(Wrapper):
    """Gives every MDN layer the Gram matrix of a stage's training rows, by one pass over them before its first batch."""

    def setup(self, network: nn.Module, fabric: Fabric, sample: Batch) -> None:
        """Refuse what MDN cannot do."""
        super().setup(network, fabric, sample)
        layers_of(network, mdn.MDN)
        if fabric.world_size > 1:
            raise SettingError("MDN estimates over a whole batch, which several ranks do not see; train on one device.")

    def begin_stage(self, network: nn.Module, data: StageData) -> None:
        """The pass, after the base has begun: the rows may depend on it."""
        super().begin_stage(network, data)
        confounders, labels = zip(*((batch.confounders, batch.labels) for batch in data), strict=True)
        for layer in layers_of(network, mdn.MDN):
            layer.set_gram(torch.cat(confounders), torch.cat(labels))


def layers_of(network: nn.Module, kind: type[Layer]) -> list[Layer]:
    """The network's confounder layers of a kind; at least one."""
    layers = network.layers.values() if isinstance(network, Deconfounded) else ()
    found = [layer for layer in layers if isinstance(layer, kind)]
    if not found:
        name = kind.__name__
        raise SettingError(
            f"The {type(network).__name__} has no {name} layers; make it by rmdn.deconfound(..., layer=rmdn.{name})."
        )
    return found

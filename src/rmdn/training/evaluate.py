"""A network's logits, and features where asked for, on a whole test set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from rmdn.models.probe import features as features_of
from rmdn.strategies.base import Batch, Strategy
from rmdn.training.data import Source

if TYPE_CHECKING:
    from lightning.fabric import Fabric


def evaluate(
    network: nn.Module,
    strategy: Strategy,
    source: Source,
    fabric: Fabric,
    batch_size: int = 256,
    features: str | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Logits (N, K), labels (N,) and the features of the module of that name (N, ...), in the source's order."""
    predicting = _Predicting(network, strategy)
    parts: list[tuple[Tensor, ...]] = []
    training = network.training
    network.eval()
    try:
        with torch.no_grad(), fabric.autocast():
            for batch in source.in_order(batch_size, fabric.global_rank, fabric.world_size):
                batch = strategy.prepare(batch)
                if features is None:
                    parts.append((predicting(batch), batch.labels))
                else:
                    seen = features_of(predicting, predicting.full_name(features), batch)
                    parts.append((predicting.logits, batch.labels, seen))
    finally:
        network.train(training)
    logits, labels, *rest = (_whole(torch.cat(column), source.rows, fabric) for column in zip(*parts, strict=True))
    return logits.float(), labels, rest[0].float() if rest else None


def _whole(mine: Tensor, rows: int, fabric: Fabric) -> Tensor:
    """Every rank's rows put together: each fills in its own, and the sum is the whole."""
    if fabric.world_size == 1:
        return mine
    whole = mine.new_zeros((rows, *mine.shape[1:]))
    whole[fabric.global_rank :: fabric.world_size] = mine
    return fabric.all_reduce(whole, reduce_op="sum")  # type: ignore[return-value]


class _Predicting(nn.Module):
    """The strategy's way to predict as a module, so that features can be read in the same pass."""

    logits: Tensor

    def __init__(self, network: nn.Module, strategy: Strategy) -> None:
        super().__init__()
        self.network, self.strategy = network, strategy

    def full_name(self, name: str) -> str:
        """A module's name as seen from here; a name that is not exact is left to `models.features` to complete."""
        return f"network.{name}" if name in dict(self.network.named_modules()) else name

    def forward(self, batch: Batch) -> Tensor:
        self.logits = self.strategy.predict(self.network, batch)
        return self.logits

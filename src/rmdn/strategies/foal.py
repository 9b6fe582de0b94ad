"""F-OAL (Zhuang et al. 2024): learns online and forward only, from features of several layers; each row is seen once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rmdn import recursion
from rmdn.models.probe import tapped
from rmdn.placement import At, choose
from rmdn.strategies.analytic import Analytic
from rmdn.strategies.base import Batch, Outcome, StageData, Strategy, check_batch, forward, inner, looking, unwrapped

if TYPE_CHECKING:
    from lightning.fabric import Fabric


class FOAL(Analytic):
    """A frozen backbone, the fused features of several layers, their sigmoid projection, a recursive classifier.

    The first stage trains the network as its base does, and then shows its rows to the classifier once. In later stages
    there is one epoch, whose steps are updates of the classifier by a batch each, without gradients.

    Args:
        at: the layers whose features are fused, as `rmdn.deconfound` takes places: names, a pattern or a rule.
        base: how the backbone is trained, in the first stage alone; plain training by default.
        size: how many random features.
        ridge: the paper's gamma.
    """

    def __init__(self, at: At, base: Strategy | None = None, *, size: int = 1000, ridge: float = 1.0) -> None:
        super().__init__(base, size=size, ridge=ridge)
        self.at = at

    def setup(self, network: nn.Module, fabric: Fabric, sample: Batch) -> None:
        """Find the layers and draw the projection."""
        self.names, self.fabric = choose(inner(network), self.at), fabric
        super().setup(network, fabric, sample)
        self.center = torch.zeros(len(self.projection), device=self.projection.device)  # (d,)
        self.scale = torch.ones_like(self.center)

    def look(self, network: nn.Module, batch: Batch) -> Tensor:
        """The layers' features, each pooled over its positions, side by side: the projection then sums them. (B, d)"""
        with looking(network), tapped(inner(network), self.names) as seen:
            forward(network, batch)
        return torch.cat([pooled(features).float() for features in seen], dim=1)

    def expand(self, features: Tensor) -> Tensor:
        """Sigmoid of the projection. (B, size) float64"""
        return torch.sigmoid((features - self.center) / self.scale @ self.projection).double()

    def epochs(self, stage: int, planned: int) -> int:
        """Each row once, after the first stage."""
        return planned if stage == 0 else 1

    def end_stage(self, network: nn.Module, data: StageData) -> None:
        """At the first stage's end: the features' scale, and the stage's rows, batch by batch."""
        super().end_stage(network, data)
        if self.learned is None:
            self.center, self.scale = moments(self.look(network, batch) for batch in data)
            self.learned = self.start()
            for batch in data:
                self.learn(self.look(network, batch), batch.labels)

    def step(
        self,
        network: nn.Module,
        batch: Batch,
        optimizer: torch.optim.Optimizer,
        backward: Callable[[Tensor], None],
    ) -> Outcome:
        """The base's in the first stage; then an update of the classifier, judged by what it said before it."""
        if self.learned is None:
            return super().step(network, batch, optimizer, backward)
        check_batch(batch)
        features, targets = self.look(unwrapped(network), batch), self.targets(batch.labels)
        expanded = self.expand(features)
        loss = (expanded @ self.learned.beta - targets).square().sum(1).mean().float()
        outcome = Outcome(loss, self.scores(expanded))
        self.learn(self.everyones(features), self.everyones(batch.labels))
        return outcome

    def learn(self, features: Tensor, labels: Tensor) -> None:
        """Take rows up into the classifier."""
        assert self.learned is not None
        self.learned = recursion.update(self.learned, self.expand(features), self.targets(labels))

    def everyones(self, rows: Tensor) -> Tensor:
        """The rows of all ranks, which learn the same classifier. (world B, ...)"""
        if self.fabric.world_size == 1:
            return rows
        gathered = self.fabric.all_gather(rows)  # (world, B, ...)
        assert isinstance(gathered, Tensor)
        return gathered.flatten(0, 1)

    def state_dict(self) -> dict[str, Any]:
        """The classifier and the features' scale."""
        return {**super().state_dict(), "center": self.center, "scale": self.scale}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take both up."""
        super().load_state_dict(state)
        self.center, self.scale = state["center"], state["scale"]


def pooled(features: Tensor) -> Tensor:
    """The mean over positions: of channels (B, C, ...), of tokens (B, T, h); features (B, h) as they are. (B, h)"""
    if features.ndim == 3:
        return features.mean(dim=1)
    return features.flatten(2).mean(dim=2) if features.ndim > 3 else features


def moments(batches: Any) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each column over all batches (B, d); 1 for a column that does not vary. (d,) each"""
    count, total, squares = 0, torch.zeros(()), torch.zeros(())
    for z in batches:
        z = z.double()
        count, total, squares = count + len(z), total.to(z) + z.sum(0), squares.to(z) + z.square().sum(0)
    mean = total / count
    scale = (squares / count - mean.square()).clamp_min(0).sqrt()
    return mean.float(), torch.where(scale > 1e-6 * mean.abs() + 1e-12, scale, 1.0).float()

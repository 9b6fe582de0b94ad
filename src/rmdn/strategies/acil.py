"""ACIL (Zhuang et al. 2022): least squares on random features that goes on by recursion, and equals joint training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rmdn import recursion
from rmdn.models.probe import tapped
from rmdn.strategies.analytic import Analytic
from rmdn.strategies.base import Batch, StageData, Strategy, forward, inner, looking, pre_logits

if TYPE_CHECKING:
    from lightning.fabric import Fabric


class ACIL(Analytic):
    """A frozen backbone, ReLU of a random projection of its features, and a ridge classifier that goes on by recursion.

    The first stage trains the network as its base does. Then, and in every later stage, the classifier takes up the
    stage's rows in one pass, without gradients and without epochs.

    Args:
        base: how the backbone is trained, in the first stage alone; plain training by default.
        at: the name of the module whose output the features are; by default what the network names `pre_logits_name`.
        size: how many random features.
        ridge: the paper's gamma.
    """

    def __init__(
        self, base: Strategy | None = None, *, at: str | None = None, size: int = 1024, ridge: float = 0.1
    ) -> None:
        super().__init__(base, size=size, ridge=ridge)
        self.at = at

    def setup(self, network: nn.Module, fabric: Fabric, sample: Batch) -> None:
        """Find the features and draw the projection."""
        self.name = pre_logits(network, self.at)
        super().setup(network, fabric, sample)

    def look(self, network: nn.Module, batch: Batch) -> Tensor:
        """The features of one module. (B, d)"""
        with looking(network), tapped(inner(network), [self.name]) as seen:
            forward(network, batch)
        return seen[0].flatten(1).float()

    def expand(self, features: Tensor) -> Tensor:
        """ReLU of the projection. (B, size) float64"""
        return F.relu(features @ self.projection).double()

    def epochs(self, stage: int, planned: int) -> int:
        """Gradient steps in the first stage alone."""
        return planned if stage == 0 else 0

    def end_stage(self, network: nn.Module, data: StageData) -> None:
        """The stage's rows into the classifier: their sums first, which then enter at once."""
        super().end_stage(network, data)
        learned = self.start() if self.learned is None else self.learned
        A = torch.zeros_like(learned.P)  # (size, size)
        G = torch.zeros_like(learned.beta)  # (size, K)
        for batch in data:
            X, Y = self.expand(self.look(network, batch)), self.targets(batch.labels)
            A.addmm_(X.mT, X)
            G.addmm_(X.mT, Y)
        self.learned = recursion.update_from_sums(learned, A, G, data.rows)

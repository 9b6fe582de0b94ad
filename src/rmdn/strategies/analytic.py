"""What ACIL and F-OAL share: a backbone trained in the first stage, and a least-squares classifier on random features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rmdn import recursion
from rmdn.errors import SettingError
from rmdn.strategies.base import Batch, StageData, Strategy, Wrapper, check_labels, count_classes

if TYPE_CHECKING:
    from lightning.fabric import Fabric


class Analytic(Wrapper):
    """The first stage's training is the base's; from its end the network stays, and a linear classifier is solved for.

    A subclass says what the classifier sees (`expand`), and when it learns.

    Args:
        base: how the backbone is trained, in the first stage alone; plain training by default.
        size: how many random features.
        ridge: the paper's gamma, which holds the coefficients small.
    """

    def __init__(self, base: Strategy | None, *, size: int, ridge: float) -> None:
        super().__init__(base)
        if size < 1 or ridge <= 0:
            raise SettingError(f"size={size}, ridge={ridge}: give at least one random feature, and more than 0.")
        self.size, self.ridge = size, ridge
        self.learned: recursion.State | None = None  # none before the first stage's end

    def setup(self, network: nn.Module, fabric: Fabric, sample: Batch) -> None:
        """Count the classes and draw the projection; drawn on the CPU, it is the same on every device."""
        super().setup(network, fabric, sample)
        self.classes, self.logits = count_classes(network, sample)
        width = self.look(network, sample).shape[1]
        self.projection = torch.randn(width, self.size).div_(width**0.5).to(sample.images.device)

    def look(self, network: nn.Module, batch: Batch) -> Tensor:
        """The backbone's features, in evaluation mode. (B, d)"""
        raise NotImplementedError

    def expand(self, features: Tensor) -> Tensor:
        """What the classifier sees of features (B, d). (B, size) float64"""
        raise NotImplementedError

    def start(self) -> recursion.State:
        """The classifier before any row: P = I / gamma."""
        return recursion.start(self.size, self.classes, epsilon=1 / self.ridge, device=self.projection.device)

    def targets(self, labels: Tensor) -> Tensor:
        """One column a class, 1 for the row's own. (B, K) float64"""
        check_labels(labels, self.classes)
        return F.one_hot(labels, self.classes).double()

    def begin_stage(self, network: nn.Module, data: StageData) -> None:
        """The base's, in the first stage alone."""
        if data.stage == 0:
            super().begin_stage(network, data)

    def end_stage(self, network: nn.Module, data: StageData) -> None:
        """The base's, in the first stage alone; a subclass's classifier learns after it."""
        if data.stage == 0:
            super().end_stage(network, data)

    def predict(self, network: nn.Module, batch: Batch) -> Tensor:
        """The classifier's; before the first stage's end the network's own."""
        if self.learned is None:
            return super().predict(network, batch)
        return self.scores(self.expand(self.look(network, batch)))

    def scores(self, expanded: Tensor) -> Tensor:
        """What least squares says of each class, in the shape of the network's own logits."""
        assert self.learned is not None
        scores = (expanded @ self.learned.beta).float()  # (B, K)
        return scores if self.logits > 1 else scores[:, 1:] - scores[:, :1]

    def state_dict(self) -> dict[str, Any]:
        """The projection and the classifier."""
        learned = None if self.learned is None else dict(self.learned._asdict())
        return {**super().state_dict(), "projection": self.projection, "learned": learned}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take both up."""
        super().load_state_dict(state)
        self.projection = state["projection"]
        self.learned = None if state["learned"] is None else recursion.State(**state["learned"])

"""P-MDN's second descent: the coefficients' learning rate falls as the network's does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rmdn.layers import pmdn
from rmdn.strategies.base import Batch, Outcome, StageData, Wrapper, unwrapped
from rmdn.strategies.mdn import layers_of

if TYPE_CHECKING:
    from lightning.fabric import Fabric


class PMDN(Wrapper):
    """In turn with the network's steps, the P-MDN layers take theirs (see `rmdn.PMDN`), by one schedule with them."""

    first_lr: float | None = None  # of the network, in this stage
    lr: float | None = None  # of the network, at the last step

    def setup(self, network: nn.Module, fabric: Fabric, sample: Batch) -> None:
        """Refuse a network without such layers."""
        super().setup(network, fabric, sample)
        layers_of(network, pmdn.PMDN)

    def begin_stage(self, network: nn.Module, data: StageData) -> None:
        """A stage begins at the full learning rate."""
        super().begin_stage(network, data)
        self.first_lr = self.lr = None
        self._set_decay(network, 1.0)

    def step(
        self,
        network: nn.Module,
        batch: Batch,
        optimizer: torch.optim.Optimizer,
        backward: Callable[[Tensor], None],
    ) -> Outcome:
        """The base's step; then the layers' learning rate for the next."""
        outcome = super().step(network, batch, optimizer, backward)
        lr = optimizer.param_groups[0]["lr"]
        if lr != self.lr:
            self.first_lr, self.lr = self.first_lr or lr, lr
            self._set_decay(unwrapped(network), lr / self.first_lr)
        return outcome

    def _set_decay(self, network: nn.Module, share: float) -> None:
        for layer in layers_of(network, pmdn.PMDN):
            layer.decay.fill_(share)

    def state_dict(self) -> dict[str, Any]:
        """The base's state and the learning rate at the stage's start."""
        return {**super().state_dict(), "first_lr": self.first_lr}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take both up."""
        super().load_state_dict(state)
        self.first_lr = state["first_lr"]

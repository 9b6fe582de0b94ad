"""A network of its own for each stage: what can be reached where nothing is carried over from one to the next."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from torch import nn

from rmdn.errors import UsageError
from rmdn.strategies.base import Batch, StageData, Wrapper

if TYPE_CHECKING:
    from lightning.fabric import Fabric


class Stagewise(Wrapper):
    """Puts the network, and the base, back to where they were before the first stage, whenever a stage begins.

    The loop evaluates each stage's network on all stages. With `Settings.schedule_scope="stage"` the optimizer is fresh
    in each stage, too.
    """

    initial: dict[str, Any] | None = None

    def setup(self, network: nn.Module, fabric: Fabric, sample: Batch) -> None:
        """Keep the start."""
        super().setup(network, fabric, sample)
        self.initial = copy.deepcopy({"network": network.state_dict(), "base": self.base.state_dict()})

    def begin_stage(self, network: nn.Module, data: StageData) -> None:
        """Back to the start; then the base begins the stage."""
        if self.initial is None:
            raise UsageError("Stagewise keeps the network's start in setup(network, ...), which was not called.")
        network.load_state_dict(self.initial["network"])
        self.base.load_state_dict(copy.deepcopy(self.initial["base"]))
        super().begin_stage(network, data)

    def state_dict(self) -> dict[str, Any]:
        """The base's state and the start."""
        return {**super().state_dict(), "initial": self.initial}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take both up."""
        super().load_state_dict(state)
        self.initial = state["initial"]

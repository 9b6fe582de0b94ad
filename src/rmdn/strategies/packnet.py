"""PackNet (Mallya & Lazebnik 2018): each stage gets weights of its own, which no later stage may touch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rmdn.errors import SettingError
from rmdn.strategies.base import Batch, Outcome, StageData, Strategy, Wrapper, unwrapped

if TYPE_CHECKING:
    from lightning.fabric import Fabric

Tensors = dict[str, Tensor]
FREE = 0  # in `owner`; stage k's weights carry k + 1


class PackNet(Wrapper):
    """Trains the free weights, prunes the smallest of them, trains on with the rest, which then belong to the stage.

    The weights of linear layers and convolutions are shared out so. All other parameters are trained in the first stage
    and stay; buffers (running statistics, R-MDN's coefficients) are kept for each stage. A test batch of stage k, which
    `Batch.stage` tells, is predicted by the weights of stages 0 to k with stage k's buffers; one of a stage not yet
    trained, by all weights so far.

    Args:
        base: how a stage is trained; plain training by default.
        prune: the share of a stage's free weights in each layer that is given back for later stages.
        retrain: the share of a stage's epochs that follows the pruning.
    """

    def __init__(self, base: Strategy | None = None, *, prune: float = 0.75, retrain: float = 1 / 3) -> None:
        super().__init__(base)
        if not (0 <= prune < 1 and 0 <= retrain < 1):
            raise SettingError(f"prune={prune} and retrain={retrain} are shares: give 0 or more, and less than 1.")
        self.prune, self.retrain = prune, retrain
        self.stage, self.taken, self.prune_at = -1, 0, 0
        self.owner: Tensors = {}  # uint8, by parameter name
        self.held: Tensors = {}  # values that a step must leave as they are: earlier stages' weights, 0 where pruned
        self.fixed: Tensors = {}  # where `held` holds
        self.buffers: list[Tensors] = []  # of each finished stage

    def setup(self, network: nn.Module, fabric: Fabric, sample: Batch) -> None:
        """All weights of linear layers and convolutions are free."""
        super().setup(network, fabric, sample)
        self.owner = {name: torch.zeros_like(p, dtype=torch.uint8) for name, p in packed(network).items()}
        if not self.owner:
            raise SettingError("PackNet shares out the weights of linear layers and convolutions; there are none.")

    def begin_stage(self, network: nn.Module, data: StageData) -> None:
        """Hold what earlier stages own, and after the first all that is not shared out."""
        super().begin_stage(network, data)
        self.stage, self.taken = self.stage + 1, 0
        self.prune_at = round(data.steps * (1 - self.retrain))
        fixed = {name: owner != FREE for name, owner in self.owner.items()}
        for name, parameter in network.named_parameters():
            fixed.setdefault(name, torch.full_like(parameter, self.stage > 0, dtype=torch.bool))
        self._hold(network, fixed)

    def step(
        self,
        network: nn.Module,
        batch: Batch,
        optimizer: torch.optim.Optimizer,
        backward: Callable[[Tensor], None],
    ) -> Outcome:
        """The base's step, after which held weights get their values back: momentum and weight decay move them too."""
        outcome = super().step(network, batch, optimizer, backward)
        self._restore(unwrapped(network))
        self.taken += 1
        if self.taken == self.prune_at:
            self._prune(unwrapped(network))
        return outcome

    def end_stage(self, network: nn.Module, data: StageData) -> None:
        """What is left of the stage's weights is its own, from now on."""
        if self.taken < self.prune_at:  # the stage took fewer steps than it planned
            self._prune(network)
        for name, owner in self.owner.items():
            owner[~self.fixed[name]] = self.stage + 1
        self.buffers.append({name: buffer.detach().clone() for name, buffer in network.named_buffers()})
        super().end_stage(network, data)

    def predict(self, network: nn.Module, batch: Batch) -> Tensor:
        """By the weights and buffers of the batch's stage."""
        if batch.stage >= len(self.buffers) - 1:
            return super().predict(network, batch)
        with self.as_after(batch.stage, network):
            return super().predict(network, batch)

    @contextmanager
    def as_after(self, stage: int, network: nn.Module) -> Iterator[None]:
        """The network as it was at the end of an earlier stage."""
        tensors = {**dict(network.named_parameters()), **dict(network.named_buffers())}
        then = {name: tensors[name].data * (owner <= stage + 1) for name, owner in self.owner.items()}
        then.update(self.buffers[stage])
        now = {name: tensors[name].data for name in then}
        try:
            for name, value in then.items():
                tensors[name].data = value
            yield
        finally:
            for name, value in now.items():
                tensors[name].data = value

    @torch.no_grad()
    def _prune(self, network: nn.Module) -> None:
        """Give the smallest of the stage's weights back: they are 0 until a later stage takes them."""
        parameters, fixed = dict(network.named_parameters()), dict(self.fixed)
        for name, owner in self.owner.items():
            free = (owner == FREE).flatten().nonzero().flatten()
            sizes = parameters[name].flatten()[free].abs()
            smallest = free[sizes.argsort()[: int(self.prune * len(free))]]
            pruned = torch.zeros_like(fixed[name]).flatten().index_fill(0, smallest, True).view_as(owner)
            parameters[name].masked_fill_(pruned, 0)
            fixed[name] = fixed[name] | pruned
        self._hold(network, fixed)

    def _hold(self, network: nn.Module, fixed: Tensors) -> None:
        self.fixed = fixed
        self.held = {name: p.detach().clone() for name, p in network.named_parameters() if fixed[name].any()}

    @torch.no_grad()
    def _restore(self, network: nn.Module) -> None:
        parameters = dict(network.named_parameters())
        for name, values in self.held.items():
            parameters[name].copy_(torch.where(self.fixed[name], values, parameters[name]))

    def state_dict(self) -> dict[str, Any]:
        """The masks, what they hold, each finished stage's buffers, and where the stage stands."""
        numbers = {"stage": self.stage, "taken": self.taken, "prune_at": self.prune_at}
        tensors = {"owner": self.owner, "held": self.held, "fixed": self.fixed, "buffers": self.buffers}
        return {**super().state_dict(), **numbers, **tensors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up masks, held values and buffers."""
        super().load_state_dict(state)
        self.stage, self.taken, self.prune_at = state["stage"], state["taken"], state["prune_at"]
        self.owner, self.held, self.fixed = dict(state["owner"]), dict(state["held"]), dict(state["fixed"])
        self.buffers = list(state["buffers"])


def packed(network: nn.Module) -> Tensors:
    """The weights that are shared out: those of linear layers and convolutions, by name."""
    kinds = (nn.Linear, nn.modules.conv._ConvNd)
    return {
        f"{name}.weight".lstrip("."): module.weight
        for name, module in network.named_modules()
        if isinstance(module, kinds) and module.weight is not None
    }

"""Learning without forgetting (Li & Hoiem 2017): a copy from the stage before says what it would have answered."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rmdn.errors import SettingError
from rmdn.strategies.base import Batch, Outcome, StageData, Strategy, Wrapper, class_scores, forward

if TYPE_CHECKING:
    from lightning.fabric import Fabric


class LwF(Wrapper):
    """Adds strength * KL(teacher || student) at a temperature; the teacher is the network at the last stage's end.

    Args:
        base: the strategy whose loss it adds to; plain training by default.
        strength: the paper's lambda_o.
        temperature: the paper's T; above 1 the small probabilities count more.
    """

    def __init__(self, base: Strategy | None = None, *, strength: float = 1.0, temperature: float = 2.0) -> None:
        super().__init__(base)
        if strength < 0 or temperature <= 0:
            raise SettingError(f"strength={strength}, temperature={temperature}: give 0 or more, and more than 0.")
        self.strength, self.temperature = strength, temperature
        self.network: nn.Module | None = None
        self.teacher: nn.Module | None = None

    def setup(self, network: nn.Module, fabric: Fabric, sample: Batch) -> None:
        """Remember the network, whose copy a teacher is."""
        super().setup(network, fabric, sample)
        self.network = network

    def loss(self, network: nn.Module, batch: Batch) -> Outcome:
        """The base's loss and the distillation."""
        loss, logits = self.base.loss(network, batch)
        if self.teacher is None:
            return Outcome(loss, logits)
        with torch.no_grad():
            wanted = forward(self.teacher, batch)
        return Outcome(loss + self.strength * distillation(logits, wanted, self.temperature), logits)

    def end_stage(self, network: nn.Module, data: StageData) -> None:
        """The network as it is now (recalibrated, if that was asked for) teaches the next stage."""
        super().end_stage(network, data)
        self.teacher = frozen_copy(network)

    def state_dict(self) -> dict[str, Any]:
        """The teacher's weights and buffers; None before the second stage."""
        return {**super().state_dict(), "teacher": self.teacher.state_dict() if self.teacher is not None else None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Build the teacher from the network of `setup` and its weights."""
        super().load_state_dict(state)
        self.teacher = None
        if state["teacher"] is not None:
            if self.network is None:
                raise SettingError("LwF can take up a teacher only after setup(network, ...).")
            self.teacher = frozen_copy(self.network)
            self.teacher.load_state_dict(state["teacher"])


def frozen_copy(network: nn.Module) -> nn.Module:
    """A copy in evaluation mode that nothing trains: its layers' state stays, too."""
    return copy.deepcopy(network).eval().requires_grad_(False)


def distillation(logits: Tensor, wanted: Tensor, temperature: float) -> Tensor:
    """KL(wanted || logits) of the softened predictions, mean over rows; 0 where they agree. Both (B, K)."""
    log_p = F.log_softmax(class_scores(logits) / temperature, dim=-1)
    log_q = F.log_softmax(class_scores(wanted) / temperature, dim=-1)
    return F.kl_div(log_p, log_q, reduction="batchmean", log_target=True)

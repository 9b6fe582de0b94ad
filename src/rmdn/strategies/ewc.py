"""Elastic weight consolidation (Kirkpatrick et al. 2017): weights that mattered before are held by springs."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rmdn.errors import SettingError
from rmdn.strategies.base import (
    Batch,
    Outcome,
    StageData,
    Strategy,
    Wrapper,
    class_scores,
    forward,
    frozen,
    task_loss,
    unwrapped,
)

Tensors = dict[str, Tensor]


class EWC(Wrapper):
    """Adds strength / 2 * sum_i F_i (theta_i - theta*_i)^2 for what was learned in earlier stages.

    Args:
        base: the strategy whose loss it adds to; plain training by default.
        strength: the paper's lambda.
        fisher: "true" takes gradients for labels drawn from the network's own predictions, "empirical" for the labels
            given.
        mode: "stage" keeps a Fisher and an anchor for each stage; "online" one running Fisher, decayed by `decay` at
            each stage, and the last anchor (Schwarz et al. 2018).
        decay: of the running Fisher; 1 forgets nothing.
        samples: how many rows of a stage, picked at random, the Fisher is the mean over; None takes all.
    """

    def __init__(
        self,
        base: Strategy | None = None,
        *,
        strength: float = 400.0,
        fisher: Literal["true", "empirical"] = "true",
        mode: Literal["stage", "online"] = "stage",
        decay: float = 1.0,
        samples: int | None = 1024,
    ) -> None:
        super().__init__(base)
        if fisher not in ("true", "empirical") or mode not in ("stage", "online"):
            raise SettingError(f"fisher={fisher!r}, mode={mode!r}: give 'true' or 'empirical', and 'stage' or 'online'.")
        if strength < 0 or not 0 <= decay <= 1 or (samples is not None and samples < 1):
            raise SettingError(
                f"strength={strength}, decay={decay}, samples={samples} do not fit; give 0 or more, 0 to 1, and 1 or "
                "more (None: all)."
            )
        self.strength, self.fisher, self.mode, self.decay, self.samples = strength, fisher, mode, decay, samples
        self.anchors: list[tuple[Tensors, Tensors]] = []  # (F, theta*) by parameter name

    def loss(self, network: nn.Module, batch: Batch) -> Outcome:
        """The base's loss and the springs."""
        loss, logits = self.base.loss(network, batch)
        return Outcome(loss + self.penalty(network), logits) if self.anchors else Outcome(loss, logits)

    def penalty(self, network: nn.Module) -> Tensor:
        """strength / 2 * sum_i F_i (theta_i - theta*_i)^2, over all that is kept."""
        parameters = dict(unwrapped(network).named_parameters())
        total = torch.zeros((), device=next(iter(parameters.values())).device)
        for fisher, anchor in self.anchors:
            for name, importance in fisher.items():
                total = total + (importance * (parameters[name] - anchor[name]).square()).sum()
        return self.strength / 2 * total

    def end_stage(self, network: nn.Module, data: StageData) -> None:
        """Estimate this stage's Fisher at the weights it ended with, and keep both."""
        super().end_stage(network, data)
        fisher = diagonal_fisher(network, data, self.fisher, self.samples)
        anchor = {name: parameter.detach().clone() for name, parameter in network.named_parameters() if name in fisher}
        if self.mode == "online" and self.anchors:
            before, _ = self.anchors.pop()
            fisher = {name: self.decay * before[name] + importance for name, importance in fisher.items()}
        self.anchors.append((fisher, anchor))

    def state_dict(self) -> dict[str, Any]:
        """The Fishers and anchors."""
        return {**super().state_dict(), "anchors": [list(pair) for pair in self.anchors]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up Fishers and anchors."""
        super().load_state_dict(state)
        self.anchors = [(dict(fisher), dict(anchor)) for fisher, anchor in state["anchors"]]


def diagonal_fisher(
    network: nn.Module, data: StageData, kind: Literal["true", "empirical"] = "true", samples: int | None = None
) -> Tensors:
    """The mean over rows of each row's squared gradient of log p(label | row), by parameter name.

    One row at a time, in evaluation mode: the square of a batch's gradient is not the sum of its rows' squares.
    """
    parameters = {name: parameter for name, parameter in network.named_parameters() if parameter.requires_grad}
    total = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
    random = torch.Generator().manual_seed(data.stage)  # the same on all ranks, whose Fishers must agree
    chosen = torch.zeros(data.rows, dtype=torch.bool)
    chosen[torch.randperm(data.rows, generator=random)[:samples]] = True
    training, first = network.training, 0
    network.eval()
    try:
        with frozen(network):
            for batch in data:
                for i in chosen[first : first + len(batch.labels)].nonzero().flatten().tolist():
                    one = slice(i, i + 1)
                    row = Batch(batch.images[one], batch.confounders[one], batch.labels[one], batch.stage)
                    logits = forward(network, row)
                    labels = row.labels if kind == "empirical" else drawn(logits, random)
                    loss = task_loss(logits, labels)
                    gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
                    for name, gradient in zip(parameters, gradients, strict=True):
                        if gradient is not None:
                            total[name].addcmul_(gradient, gradient)
                first += len(batch.labels)
    finally:
        network.train(training)
    return {name: squares / int(chosen.sum()) for name, squares in total.items()}


def drawn(logits: Tensor, random: torch.Generator) -> Tensor:
    """A label for each row, drawn from the network's own prediction. (B,)"""
    chances = F.softmax(class_scores(logits.detach()), dim=-1).cpu()
    return torch.multinomial(chances, 1, generator=random)[:, 0].to(logits.device)

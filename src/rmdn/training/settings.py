"""How to train: plain values, the paper's as defaults; and what follows from them alone."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from rmdn.errors import SettingError

OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


@dataclass(frozen=True)
class Settings:
    """All that determines a training beside the network, the data and the strategy.

    Args:
        epochs: epochs of each stage.
        batch_size: rows of one optimizer step, over all ranks together, so that ranks do not change what is learned.
        optimizer: "adam", "adamw" or "sgd" (with momentum).
        lr: the learning rate at the start.
        weight_decay: L2 in "adam" and "sgd", decoupled in "adamw". The paper's text has none for its CNNs; the authors'
            published code has 1e-3.
        momentum: of "sgd".
        schedule: "step" (times `decay` every `decay_every` epochs), "cosine" (down to 0) or "constant".
        schedule_scope: "stage": a fresh optimizer and schedule at each stage; "run": both run on through all stages.
        precision: of the forward pass: "32-true", "bf16-mixed" or "16-mixed".
        seed: of the order of the rows and of everything random in training; the network's weights come as they are.
        recalibration: when the layers of a deconfounded network get coefficients exact for the weights as they are:
            "never", "stage" (at each stage's end) or a number n (every n epochs, and at each stage's end).
        holdout: the share of each stage's training rows that no step and no recalibration sees, for strategies that judge
            what a stage has brought (`Gate`).
        fused: one kernel for a whole optimizer step.
        drop_last: leave out an epoch's last rows where they do not fill a batch. With several ranks, rows that cannot
            be shared evenly are left out of an epoch in any case, so that each row counts the same.
        eval_batch_size: rows at a time where no gradient is taken.
        workers: processes that load a `Dataset`; none for tensors.
    """

    epochs: int = 100
    batch_size: int = 128
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    lr: float = 5e-4
    weight_decay: float = 0.0
    momentum: float = 0.9
    schedule: Literal["step", "cosine", "constant"] = "step"
    decay: float = 0.8
    decay_every: int = 20
    schedule_scope: Literal["stage", "run"] = "stage"
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    seed: int = 0
    recalibration: Literal["never", "stage"] | int = "never"
    holdout: float = 0.0
    fused: bool = True
    drop_last: bool = False
    eval_batch_size: int = 256
    workers: int = 0

    def __post_init__(self) -> None:
        self._check_choice("optimizer", OPTIMIZERS)
        self._check_choice("schedule", ("step", "cosine", "constant"))
        self._check_choice("schedule_scope", ("stage", "run"))
        self._check_choice("precision", ("32-true", "bf16-mixed", "16-mixed"))
        for name in ("epochs", "batch_size", "decay_every", "eval_batch_size"):
            self._check(name, getattr(self, name) >= 1, "1 or more")
        for name in ("weight_decay", "momentum", "seed", "workers"):
            self._check(name, getattr(self, name) >= 0, "0 or more")
        for name in ("lr", "decay"):
            self._check(name, 0 < getattr(self, name) < math.inf, "a positive number")
        self._check("holdout", 0 <= self.holdout < 1, "a share of the rows, 0 or more and less than 1")
        if isinstance(self.recalibration, int):
            self._check("recalibration", self.recalibration >= 1, "'never', 'stage' or a number of epochs, 1 or more")
        else:
            self._check_choice("recalibration", ("never", "stage"))

    def _check_choice(self, name: str, choices: Iterable[str]) -> None:
        self._check(name, getattr(self, name) in choices, "one of " + ", ".join(map(repr, choices)))

    def _check(self, name: str, fits: bool, expected: str) -> None:
        if not fits:
            raise SettingError(f"{name}={getattr(self, name)!r} does not fit; give {expected}.")

    def build_optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """A fresh optimizer over all of a network's parameters (one without a gradient is passed over in a step)."""
        options = {"momentum": self.momentum} if self.optimizer == "sgd" else {}
        return OPTIMIZERS[self.optimizer](
            network.parameters(), lr=self.lr, weight_decay=self.weight_decay, fused=self.fused, **options
        )

    def learning_rate(self, stage: int, epoch: int, epochs: int, stages: int) -> float:
        """The learning rate of an epoch (from 0) in a stage (from 0) that has so many epochs, in a run of so many."""
        if self.schedule_scope == "run":
            epoch, epochs = stage * self.epochs + epoch, stages * self.epochs
        if self.schedule == "step":
            return self.lr * self.decay ** (epoch // self.decay_every)
        if self.schedule == "cosine":
            return self.lr * (1 + math.cos(math.pi * min(epoch / epochs, 1))) / 2
        return self.lr

    def recalibrates(self, epoch: int, last: bool) -> bool:
        """Whether recalibration is due after an epoch (from 0)."""
        if self.recalibration == "never":
            return False
        return last or (self.recalibration != "stage" and (epoch + 1) % self.recalibration == 0)

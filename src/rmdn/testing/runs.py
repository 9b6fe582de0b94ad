"""Runs on small problems, and how to compare two of them, for the suites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rmdn.strategies.base import Batch, Strategy

if TYPE_CHECKING:
    from rmdn.training import Result, Settings


@dataclass
class Done:
    """A run that is over."""

    network: nn.Module
    strategy: Strategy
    result: Result


@dataclass(frozen=True)
class Stage:
    """What the loop takes as a stage."""

    train: tuple[Tensor, Tensor, Tensor]
    test: tuple[Tensor, Tensor, Tensor]


def two_linear_layers(num_logits: int, num_confounders: int) -> nn.Module:
    """A network for images (B, 1, 8, 8)."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, num_logits))


def make_batch(num_logits: int, num_confounders: int, rows: int, stage: int) -> Batch:
    """Classes that lie apart by many times the noise, confounders that have nothing to do with them."""
    random = torch.Generator().manual_seed(stage * 1000 + rows)
    classes = max(num_logits, 2)
    labels = torch.arange(rows) % classes
    images = 0.3 * torch.randn(rows, 64, generator=random)
    images[torch.arange(rows), 9 * labels] += 3.0
    confounders = torch.randn(rows, num_confounders, generator=random)
    return Batch(images.view(rows, 1, 8, 8), confounders, labels, stage)


def run(
    strategy: Strategy, network: nn.Module, num_logits: int = 2, num_confounders: int = 1, folder: Path | None = None
) -> Done:
    """Two stages of a separable problem, from equal weights."""
    stages = [
        Stage(*(make_batch(num_logits, num_confounders, rows, stage)[:3] for rows in (140, 42))) for stage in range(2)
    ]
    return train_on(stages, strategy, network, make_settings(), folder)


def train_on(
    stages: Sequence[Stage], strategy: Strategy, network: nn.Module, settings: Settings, folder: Path | None = None
) -> Done:
    """A run of the loop on the CPU; every run begins with the same weights, however the network was made."""
    from lightning.fabric import Fabric

    from rmdn.training import train

    fabric = Fabric(accelerator="cpu", devices=1)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        random = torch.Generator().manual_seed(1)
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=random) / max(parameter[0].numel(), 4) ** 0.5)
    result = train(network, stages, strategy, settings, fabric=fabric, folder=folder, checkpoint_minutes=0, progress=False)
    return Done(network, strategy, result)


def make_settings(**changes: Any) -> Settings:
    """Short, but with a schedule and several batches an epoch."""
    from rmdn.training import Settings

    return Settings(**{"epochs": 12, "batch_size": 28, "lr": 1e-2, "schedule": "cosine", "seed": 3, **changes})


def state_of(done: Done) -> Any:
    """All that a run has learned."""
    return {"network": done.network.state_dict(), "strategy": done.strategy.state_dict()}


def assert_same(one: Done, other: Done, problem: str) -> None:
    """Two runs were the same, bit for bit."""
    assert same(one.network.state_dict(), other.network.state_dict()), f"{problem}: the networks."
    assert same(one.strategy.state_dict(), other.strategy.state_dict()), f"{problem}: the strategies' states."
    assert torch.equal(one.result.R, other.result.R), f"{problem}: the accuracies."
    losses = [[(e.loss, e.accuracy) for e in done.result.history] for done in (one, other)]
    assert losses[0] == losses[1], f"{problem}: the losses on the way."


def same(one: Any, other: Any) -> bool:
    """Whether two nests of dicts, lists, tensors and numbers are equal, bit for bit."""
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)

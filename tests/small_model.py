"""A small network with two confounder layers, its data, and how to compare two of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import rmdn


class Network(nn.Module):
    """Two places for layers, a body that can be checkpointed, and layers whose gradients need the residuals."""

    def __init__(self, reentrant: bool | None = None) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.conv = nn.Conv2d(1, 4, 3)
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(4 * 4 * 4, 8)
        self.head = nn.Linear(8, 2)

    def body(self, x: Tensor) -> Tensor:
        return self.fc(self.drop(self.conv(x).tanh()).flatten(1)).tanh()

    def forward(self, x: Tensor) -> Tensor:
        if self.reentrant is None:
            return self.head(self.body(x))
        return self.head(checkpoint(self.body, x, use_reentrant=self.reentrant))


def make_model(reentrant: bool | None = None, seed: int = 0, backwards: bool = False, **options: Any) -> rmdn.Deconfounded:
    torch.manual_seed(seed)
    network = Network(reentrant)
    if backwards:  # modules that do not stand in the order of the forward pass
        network._modules = dict(reversed(network._modules.items()))
    return rmdn.deconfound(network, at=["conv", "fc"], num_confounders=2, num_classes=2, **options)


def make_batch(seed: int, rows: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(2, (rows,), generator=generator)
    c = torch.randn(rows, 2, generator=generator) * torch.tensor([10.0, 1.0]) + torch.tensor([50.0, 0.0])
    x = torch.randn(rows, 1, 6, 6, generator=generator) + (c[:, :1] / 20 + y[:, None])[:, :, None, None]
    return x, c, y


def layers(model: nn.Module) -> list[rmdn.RMDN]:
    return [module for module in model.modules() if isinstance(module, rmdn.RMDN)]


def kept(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def assert_same(ours: nn.Module, theirs: nn.Module, **tolerances: float) -> None:
    """State and gradients; to the bit where no tolerance is given."""
    exact = {"rtol": 0.0, "atol": 0.0}
    torch.testing.assert_close(dict(ours.state_dict()), dict(theirs.state_dict()), **(tolerances or exact))
    grads = [{name: p.grad for name, p in m.named_parameters() if p.grad is not None} for m in (ours, theirs)]
    torch.testing.assert_close(*grads, **(tolerances or exact))

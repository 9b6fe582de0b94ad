"""BR-Net (Adeli et al. 2021): an adversary reads the confounder from the features until there is nothing to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor, nn

from rmdn.errors import InputError, SettingError
from rmdn.models.probe import tapped
from rmdn.strategies.base import (
    Batch,
    Outcome,
    Strategy,
    Wrapper,
    count_classes,
    forward,
    frozen,
    inner,
    looking,
    pre_logits,
)

if TYPE_CHECKING:
    from lightning.fabric import Fabric

TINY = 1e-6  # of a variance: below it a column does not vary


class BRNet(Wrapper):
    """Three updates a batch, each by an optimizer of its own.

    1. encoder and classifier on the task (the base's step);
    2. the predictor, on features of the encoder as it is, to tell the confounders;
    3. the encoder, through the predictor as it is, to bring the squared correlation of what it tells with the
       confounders to 0.

    The encoder is all that the features depend on. The confounders are used in training alone.

    Args:
        base: how the task is learned; plain training by default.
        at: the name of the module whose output the features are; by default what the network names `pre_logits_name`.
        group: whose rows 2. and 3. are done on: a class (the paper's control group), "each" (every class's by themselves,
            so that what goes along with the label need not vanish), or None (all rows together).
        predictor_lr, encoder_lr: the learning rates of 2. and 3., constant. As Adam takes steps of a size that does not
            depend on a loss's weight, `encoder_lr` beside the task's learning rate stands for the paper's lambda.
        hidden: the widths of the predictor's two hidden layers.
    """

    def __init__(
        self,
        base: Strategy | None = None,
        *,
        at: str | None = None,
        group: int | Literal["each"] | None = "each",
        predictor_lr: float = 2e-4,
        encoder_lr: float = 2e-4,
        hidden: tuple[int, int] = (64, 32),
    ) -> None:
        super().__init__(base)
        if not (predictor_lr > 0 and encoder_lr > 0 and min(hidden) > 0):
            raise SettingError(f"predictor_lr={predictor_lr}, encoder_lr={encoder_lr}, hidden={hidden}: give more than 0.")
        self.at, self.group, self.hidden = at, group, tuple(hidden)
        self.predictor_lr, self.encoder_lr = predictor_lr, encoder_lr

    def setup(self, network: nn.Module, fabric: Fabric, sample: Batch) -> None:
        """The predictor for features of the sample's width, and the two further optimizers."""
        super().setup(network, fabric, sample)
        if fabric.world_size > 1:
            raise SettingError("BRNet correlates over a whole batch, which several ranks do not see; train on one device.")
        self.name, (self.classes, _) = pre_logits(network, self.at), count_classes(network, sample)
        if self.group not in (None, "each", *range(self.classes)):
            raise SettingError(
                f"group={self.group!r} is none of {self.classes} classes; give one, 'each' or None (all rows)."
            )
        with looking(network), tapped(inner(network), [self.name]) as seen:
            forward(network, sample)
        widths = [seen[0].flatten(1).shape[1], *self.hidden]
        self.confounders = sample.confounders.shape[1]
        layers = [part for a, b in zip(widths, self.hidden, strict=False) for part in (nn.Linear(a, b), nn.Tanh())]
        self.predictor = nn.Sequential(*layers, nn.Linear(widths[-1], self.confounders)).to(fabric.device)
        self.reading = self._optimizer(fabric, self.predictor, self.predictor_lr)
        # The classifier's parameters have no gradient in the third update, and so no part in it.
        self.hiding = self._optimizer(fabric, network, self.encoder_lr)

    def _optimizer(self, fabric: Fabric, module: nn.Module, lr: float) -> torch.optim.Optimizer:
        return cast(torch.optim.Optimizer, fabric.setup_optimizers(torch.optim.Adam(module.parameters(), lr=lr)))

    def step(
        self,
        network: nn.Module,
        batch: Batch,
        optimizer: torch.optim.Optimizer,
        backward: Callable[[Tensor], None],
    ) -> Outcome:
        """The base's step on the task, then the adversaries'."""
        self._check_confounders(batch.confounders)
        outcome = super().step(network, batch, optimizer, backward)
        features = self.features(network, batch)  # (B, h)
        self.read(features.detach(), batch, backward)
        self.hide(features, batch, backward)
        return outcome

    def features(self, network: nn.Module, batch: Batch) -> Tensor:
        """The encoder's features, by which gradients can pass. (B, h)"""
        with frozen(network), tapped(inner(network), [self.name]) as seen:
            forward(network, batch)
        return seen[0].flatten(1).float()

    def read(self, features: Tensor, batch: Batch, backward: Callable[[Tensor], None]) -> None:
        """Train the predictor to tell the standardized confounders from features that stay as they are."""
        self.reading.zero_grad()
        loss = torch.zeros((), device=features.device)
        told = self.predictor(features)  # (B, c)
        for rows in self.groups(batch, told):
            loss = loss + (rows * (told - standardized(batch.confounders, rows)).square()).sum() / rows.sum().clamp_min(1)
        backward(loss / self.confounders)
        self.reading.step()

    def hide(self, features: Tensor, batch: Batch, backward: Callable[[Tensor], None]) -> None:
        """Train the encoder so that what the predictor tells does not go along with the confounders."""
        self.hiding.zero_grad()
        self.predictor.requires_grad_(False)
        told = self.predictor(features)  # (B, c)
        groups = self.groups(batch, told)
        loss = torch.stack([squared_correlation(told, batch.confounders, rows).sum() for rows in groups]).sum()
        backward(loss / len(groups))
        self.hiding.step()
        self.predictor.requires_grad_(True)

    def groups(self, batch: Batch, told: Tensor) -> list[Tensor]:
        """1 for the rows that count together, else 0, (B, 1) each; as weights, so that no device waits for counts."""
        if self.group is None:
            return [torch.ones_like(told[:, :1])]
        classes = range(self.classes) if self.group == "each" else [self.group]
        return [(batch.labels == k).to(told.dtype)[:, None] for k in classes]

    def _check_confounders(self, confounders: Tensor) -> None:
        if confounders.ndim == 2 and confounders.shape[1] != self.confounders:
            raise InputError(
                f"A batch has {confounders.shape[1]} confounders; the predictor was built for {self.confounders}."
            )
        if not torch.isfinite(confounders.sum()):
            raise InputError("A batch's confounders hold NaN or infinity; fill them or leave these rows out.")

    def state_dict(self) -> dict[str, Any]:
        """The predictor and both optimizers."""
        own = {name: part.state_dict() for name, part in self._parts().items()}
        return {**super().state_dict(), **own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take them up."""
        super().load_state_dict(state)
        for name, part in self._parts().items():
            part.load_state_dict(state[name])

    def _parts(self) -> dict[str, Any]:
        return {"predictor": self.predictor, "reading": self.reading, "hiding": self.hiding}


def standardized(c: Tensor, rows: Tensor) -> Tensor:
    """Columns (B, c) with mean 0 and variance 1 over the rows of weight 1. (B, c)"""
    count = rows.sum().clamp_min(1)
    centred = c - (rows * c).sum(0) / count
    return centred / ((rows * centred.square()).sum(0) / count).clamp_min(TINY).sqrt()


def squared_correlation(told: Tensor, c: Tensor, rows: Tensor) -> Tensor:
    """Pearson's squared, of each column of `told` (B, c) with the same of `c`, over the rows of weight 1. (c,)"""
    return ((rows * standardized(told, rows) * standardized(c, rows)).sum(0) / rows.sum().clamp_min(1)).square()

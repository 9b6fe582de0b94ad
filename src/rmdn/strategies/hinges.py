"""Confounders as piecewise-linear functions, so that a linear regression takes out what depends on them in bends."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rmdn.errors import SettingError, UsageError
from rmdn.strategies.base import Batch, StageData, Strategy, Wrapper


class Hinges(Wrapper):
    """Hands every confounder c on as c, max(c - k1, 0), max(c - k2, 0), ...; the layers regress on all of them.

    A layer removes what is linear in its columns. A network that is denied the line can still bend: a step of the
    confounder is, within each class, only partly a line, and what is left of it tells the classes apart. With hinges the
    columns span all piecewise-linear functions with these knots. The network is deconfounded with
    `num_confounders=hinges.columns(c)`. Every confounder should be a number: of a 0/1 column a hinge says nothing new.

    Args:
        base: how a stage is trained; plain training by default.
        knots: of each confounder, at quantiles of the first stage's training rows, and kept from then on.
    """

    def __init__(self, base: Strategy | None = None, *, knots: int = 5) -> None:
        super().__init__(base)
        if knots < 1:
            raise SettingError(f"knots={knots} was given; give 1 or more, or leave Hinges out.")
        self.knots = knots
        self.at: Tensor | None = None  # (c, knots)

    def columns(self, confounders: int) -> int:
        """How many columns so many confounders become."""
        return confounders * (1 + self.knots)

    def begin_stage(self, network: nn.Module, data: StageData) -> None:
        """The first stage's rows place the knots."""
        if self.at is None:
            seen = torch.cat([batch.confounders for batch in data.raw()]).double()  # (N, c)
            shares = torch.linspace(0, 1, self.knots + 2, dtype=torch.float64, device=seen.device)[1:-1]
            self.at = torch.nanquantile(seen, shares, dim=0).T
        super().begin_stage(network, data)

    def prepare(self, batch: Batch) -> Batch:
        """The batch with (B, c * (1 + knots)) confounders, the base's preparation following."""
        if self.at is None:
            raise UsageError("Hinges has no knots before the first stage has begun; call begin_stage, or load a state.")
        c = batch.confounders  # (B, c)
        bent = (c[:, :, None] - self.at.to(c)).clamp_min(0).flatten(1)  # (B, c * knots)
        return super().prepare(batch._replace(confounders=torch.cat([c, bent], dim=1)))

    def state_dict(self) -> dict[str, Any]:
        """The base's state and the knots."""
        return {**super().state_dict(), "at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take both up."""
        super().load_state_dict(state)
        self.at = state["at"]

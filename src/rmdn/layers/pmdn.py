"""P-MDN (Vento et al. 2022): coefficients that descend the regression's loss, a step a batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from rmdn.design import Missing
from rmdn.errors import InputError, SettingError
from rmdn.layers import ranks
from rmdn.layers.base import ConfounderLayer, Rows, Share, graph_task
from rmdn.layers.training import check_finite, forward, standardized
from rmdn.products import cross, subtract_product


class PMDN(ConfounderLayer):
    """Takes out of features (B, ...) what the confounders explain beside the labels, by coefficients that are learned.

    A training batch first moves the coefficients one step down the penalty gamma ||z - X beta||^2 / B, the features held;
    then it is residualized by the new ones, and the network's step follows with the coefficients held. The step's length
    is bounded by where it would begin to overshoot, so that no batch size or unit of a column makes it diverge.

    Args:
        num_confounders, num_classes, share, missing, standardize, sync, names: as in `RMDN`.
        gamma: the penalty's weight.
        lr: the coefficients' own learning rate; `rmdn.strategies.PMDN` lets it fall with the network's.
    """

    decay: Tensor  # () float64: what a schedule makes of lr at the moment

    def __init__(
        self,
        num_confounders: int,
        num_classes: int | None = None,
        *,
        gamma: float = 1.0,
        lr: float = 0.1,
        share: Share | None = None,
        missing: Missing = "error",
        standardize: bool = True,
        sync: bool = True,
        names: Sequence[str] = (),
    ) -> None:
        super().__init__(num_confounders, num_classes, share=share, missing=missing, standardize=standardize, names=names)
        if not (0 <= gamma < math.inf and 0 < lr < math.inf):
            raise SettingError(f"gamma={gamma}, lr={lr} were given; expected gamma of 0 or more, and lr above 0.")
        self.gamma, self.lr, self.sync = gamma, lr, sync
        self.register_buffer("decay", torch.ones((), dtype=torch.float64))

    def forward(self, features: Tensor, confounders: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        """Residuals of the features' shape; in training the coefficients take their step first."""
        return forward(self, PMDN._train, features, confounders, labels)

    def _train(self, features: Tensor, confounders: Tensor | None, labels: Tensor | None) -> Tensor:
        # What activation checkpointing computes again finds the coefficients that the batch itself has left.
        if graph_task() is None:
            rows = self._descend(features, confounders, labels)
        else:
            rows = self.rows(features, confounders, labels)
        first = self.columns.labels
        X, _ = standardized(self, rows)
        return self.subtract(features, X[:, first:], self.beta[first:])

    @torch.no_grad()
    def _descend(self, features: Tensor, confounders: Tensor | None, labels: Tensor | None) -> Rows:
        world = ranks.world(self.sync)
        try:
            rows = self.rows(features, confounders, labels)
        except InputError:
            ranks.refuse(world, torch.cat([self.moments, self.beta.flatten(1)], dim=1))
            raise
        _, X = standardized(self, rows)
        A, G = ranks.add(world, X.mT @ X * rows.positions, cross(X.to(rows.z.dtype), rows.z))
        before = self.beta.flatten(1) if self.beta.shape[1] else torch.zeros_like(G)
        beta = before + self._step(A) * subtract_product(G, A.to(G.dtype), before)  # (p, h)
        check_finite(beta, rows)
        self.adopt(features)
        known = world == 1 and rows.counted is None
        self._commit(beta, A, len(rows.X) * rows.positions if known else A[-1, -1].item())
        return rows

    def _step(self, A: Tensor) -> Tensor:
        """How far to go along X'(z - X beta): the gradient of the penalty is -2 gamma / B times that."""
        wanted = 2 * self.gamma * self.lr * self.decay / A[-1, -1].clamp_min(1)
        return torch.minimum(wanted, 1 / A.trace().clamp_min(1))

    def _commit(self, beta: Tensor, A: Tensor, added: float) -> None:
        before = self.seen
        self.replace(before + added, beta=beta.view(self.beta.shape), moments=self.moments + A)
        if math.frexp(before)[1] == math.frexp(before + added)[1]:
            return
        if self.standardize:  # at every doubling of the rows
            self.move(*self.recentred(self.moments))
        if self.seen >= 4 * len(A):
            self.warn_of_collinear()

"""MDN (Lu et al. 2021): least squares in closed form, by the Gram matrix of the whole training set."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rmdn import recursion
from rmdn.design import Missing, confounder_columns, label_columns, refuse_missing
from rmdn.errors import InputError, SettingError, UsageError
from rmdn.layers.base import ConfounderLayer, Share, graph_task
from rmdn.layers.training import check_finite, forward, standardized
from rmdn.products import cross


class MDN(ConfounderLayer):
    """Takes out of features (B, ...) what the confounders explain beside the labels, by each batch's own estimate.

    Training needs `set_gram` first; `rmdn.strategies.MDN` calls it at the start of every stage. A batch then gives the
    coefficients N (X'X)^-1 x'z / B: X'X and N of the whole training set, x'z of the batch. Gradients pass through them.
    In evaluation a running average of them is used. Ranks do not share their batches: each estimates from its own rows.

    Args:
        num_confounders, num_classes, share, missing, standardize, names: as in `RMDN`.
        momentum: what the coefficients so far count for in the running average, at each batch.
    """

    inverse: Tensor  # (p, p) float64: of the mean of x x' over the training set
    weight: Tensor  # () float64: what the running average holds so far, 1 after many batches

    def __init__(
        self,
        num_confounders: int,
        num_classes: int | None = None,
        *,
        momentum: float = 0.9,
        share: Share | None = None,
        missing: Missing = "error",
        standardize: bool = True,
        names: Sequence[str] = (),
    ) -> None:
        super().__init__(num_confounders, num_classes, share=share, missing=missing, standardize=standardize, names=names)
        if not 0 <= momentum < 1:
            raise SettingError(f"momentum={momentum} was given; expected 0 or more and less than 1.")
        self.momentum = momentum
        self.register_buffer("inverse", torch.zeros_like(self.moments))
        self.register_buffer("weight", torch.zeros((), dtype=torch.float64))

    def forward(self, features: Tensor, confounders: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        """Residuals of the features' shape: in training by the batch's coefficients, else by their running average."""
        return forward(self, MDN._train, features, confounders, labels)

    @torch.no_grad()
    def set_gram(self, confounders: Tensor, labels: Tensor | None = None) -> None:
        """Take the Gram matrix of a whole training set, confounders (N, c) and labels (N,), in place of the last one."""
        raw = self._whole_design(confounders, labels)  # (N, p)
        if self.standardize:
            now = (raw - self.center) / self.scale
            self.move(*self.recentred(now.mT @ now))
        X = (raw - self.center) / self.scale
        gram = X.mT @ X
        inverse = recursion.solve(gram / len(X), torch.eye(len(gram), dtype=gram.dtype, device=gram.device))
        self.replace(len(X), moments=gram, inverse=inverse)
        self.warn_of_collinear()

    def _whole_design(self, confounders: Tensor, labels: Tensor | None) -> Tensor:
        """Checked, and without gaps: filled by the mean, or the rows left out."""
        columns, device = self.columns, self.moments.device
        if labels is None and columns.labels:
            raise InputError("labels are missing: the Gram matrix of the training set has columns for them.")
        c = confounder_columns(confounders, columns, len(confounders)).to(device)
        kept = torch.ones(len(c), dtype=torch.bool, device=device)
        if self.missing == "error" or torch.isinf(c).any():
            refuse_missing(c, columns.names[columns.labels : -1])
        elif self.missing == "skip":
            kept = ~c.isnan().any(1)
        c = torch.where(c.isnan(), c.nanmean(0).nan_to_num(), c)
        parts = [c, c.new_ones(len(c), 1)]
        if labels is not None and columns.labels:
            parts.insert(0, label_columns(labels, columns, len(c)).to(device))
        X = torch.cat(parts, dim=1)[kept]  # (N, p)
        if not len(X) or not torch.isfinite(X).all():
            raise InputError(
                f"Of {len(c)} rows of the training set {len(X)} are complete, and every label must be finite; the layer's"
                " state was not changed."
            )
        return X

    def _train(self, features: Tensor, confounders: Tensor | None, labels: Tensor | None) -> Tensor:
        rows = self.rows(features, confounders, labels)
        if not self.seen:
            raise UsageError(
                "This MDN layer does not know the Gram matrix of the training set. Train with rmdn.strategies.MDN, or call"
                " layer.set_gram(confounders, labels) with all training rows for each layer of model.layers first."
            )
        count = len(rows.X) if rows.counted is None else int(rows.counted.sum())
        if not count:
            return self.infer(features, confounders)
        X, counted = standardized(self, rows)
        known = self.beta.shape[1] > 0
        wide = self.beta.dtype if known else torch.promote_types(features.dtype, torch.float32)
        weights = (counted @ self.inverse / count).to(wide)  # (B, p)
        z = self.pool(features).to(wide)  # (B, h), with gradients
        beta = cross(weights, z if rows.positions == 1 else z / rows.positions)  # (p, h)
        check_finite(beta, rows)
        if graph_task() is None:  # activation checkpointing computes a batch again
            self._average(features, beta.detach())
        first = self.columns.labels
        return self.subtract(features, X[:, first:], beta[first:])

    def _average(self, features: Tensor, beta: Tensor) -> None:
        self.adopt(features)
        new = 1 - self.momentum
        weight = torch.lerp(self.weight, torch.ones_like(self.weight), new)
        beta = torch.lerp(self.beta, beta.view(self.beta.shape), (new / weight).to(beta.dtype))
        self.replace(self.seen, beta=beta, weight=weight)

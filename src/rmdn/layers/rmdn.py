"""R-MDN: a layer whose coefficients follow the features by recursive least squares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from rmdn import recursion
from rmdn.design import Missing
from rmdn.errors import InputError, SettingError, UsageError
from rmdn.layers import ranks
from rmdn.layers.base import ConfounderLayer, Rows, Share, graph_task, one_of
from rmdn.layers.subtraction import Projection, project_gradient, subtract_in_place, writable
from rmdn.layers.training import forward
from rmdn.products import cross, subtract_product, subtract_product_

Gradient = Literal["constant", "projected"]
# gradient="projected" averages over about this many rows for each column.
MEMORY_PER_COLUMN = 16
# Features that the sketch of a batch keeps, for `lag` and to recognize the batch when it is computed again.
SKETCH = 256


ELSEWHERE = (
    "The sums over the ranks are not finite: another rank met a batch that does not fit (its own message says which). No"
    " rank's state was changed."
)


class Design(NamedTuple):
    """A batch's design matrix in the coordinates of the moment."""

    X: Tensor  # (B, p) float64
    counted: Tensor  # (B, p) float64: X, zero in rows that do not update the state
    wide: Tensor  # (B, p): counted, in the coefficients' precision
    A: Tensor  # (p, p) float64: sum of x x' over rows and positions


class Step(NamedTuple):
    """What a batch makes of the state: gain times error is what the coefficients learn."""

    P: Tensor  # (p, p) float64, lambda still to come
    gain: Tensor  # (p, n)
    error: Tensor  # (n, h): of the batch's n rows, or of their p sums
    total: Tensor  # (p, p) float64: sum of x x' over all ranks
    sketch: Tensor  # (p, about SKETCH): X'Z of some of the features, of this rank alone


class Memo(NamedTuple):
    """The last training batch: for the recompute of activation checkpointing, and for `lag`. None of it is large."""

    X: Tensor  # (B, c + 1): removed columns
    beta: Tensor  # (c + 1, *features): the batch's fresh coefficients
    projection: Projection | None
    design: Design
    sketch: Tensor  # (p, about SKETCH): X'Z of some of the features
    graph_tasks: set[int]  # backward passes that have computed this batch again

    def serves(self, z: Tensor, task: int) -> bool:
        """Whether features that are computed again (B, h) are this batch's, for the first time in this backward pass."""
        if task in self.graph_tasks or len(z) != len(self.X):
            return False
        self.graph_tasks.add(task)
        again = self.design.wide.mT @ sketched(z.to(self.sketch.dtype))
        return bool((again - self.sketch).norm() <= 1e-3 * self.sketch.norm())


class RMDN(ConfounderLayer):
    """Takes out of features (B, ...) what the confounders explain beside the labels, batch after batch.

    In training, `layer(features, confounders, labels)` updates the coefficients with the batch and subtracts the
    confounders' part by the new ones; in evaluation, `layer(features, confounders)` subtracts it and changes nothing.

    Args:
        num_confounders: columns of `confounders` (batch, num_confounders); one may come as (batch,).
        num_classes: K classes, numbered from 0; None for a real-valued target, 0 to leave labels out.
        epsilon: the start of P, epsilon I; a larger one trusts the first rows more.
        regularization: lambda, added to P's diagonal after every batch: how fast the coefficients follow features that
            change. With gradient accumulation every micro-batch counts as one batch.
        forgetting: what the rows so far count for at the next batch; 1 keeps all.
        gradient: "constant" passes gradients unchanged (the paper); "projected" passes the gradient of the least-squares
            residual that the layer stands for, so that nothing is gained by moving features along the confounders.
        share: None has a coefficient for each feature element, "spatial" one for each channel of (B, C, ...) maps and
            each dimension of (B, T, D) tokens, for inputs of varying size too.
        missing: what a NaN confounder means: "error", "mean" (it takes the training mean) or "skip" (the same, and the
            row does not update the state).
        standardize: lambda and epsilon act on standardized columns; False is the paper's raw form.
        inplace: write the residual over the features where autograd allows it, which saves their memory.
        sync: with torch.distributed, add the ranks' batches up, so that they keep one state. Every rank must take part in
            every training pass: one without rows by an empty batch (x[:0]), or all within `rmdn.distributed.join`.
        names: the confounders' names, for messages.
    """

    P: Tensor  # (p, p) float64
    recent: Tensor  # (p + 1, p) float64: the design's running second moment, and in the last row its weight
    flow: Tensor  # (c + 1, h): running sum of x g over a batch's rows, with gradient="projected"
    flow_weight: Tensor  # () float64

    def __init__(
        self,
        num_confounders: int,
        num_classes: int | None = None,
        *,
        epsilon: float = 1e3,
        regularization: float = 1e-4,
        forgetting: float = 1.0,
        gradient: Gradient = "constant",
        share: Share | None = None,
        missing: Missing = "error",
        standardize: bool = True,
        inplace: bool = False,
        sync: bool = True,
        names: Sequence[str] = (),
    ) -> None:
        super().__init__(num_confounders, num_classes, share=share, missing=missing, standardize=standardize, names=names)
        if not (epsilon > 0 and regularization >= 0 and 0 < forgetting <= 1):
            raise SettingError(
                f"epsilon={epsilon}, regularization={regularization}, forgetting={forgetting} were given; expected"
                " epsilon > 0, regularization >= 0 and 0 < forgetting <= 1."
            )
        one_of("gradient", gradient, get_args(Gradient))
        self.epsilon, self.regularization, self.forgetting = epsilon, regularization, forgetting
        self.gradient: Gradient = gradient
        self.inplace, self.sync = inplace, sync
        self._memo: Memo | None = None
        p = self.columns.total
        self.register_buffer("P", torch.eye(p, dtype=torch.float64) * epsilon)
        self.register_buffer("recent", torch.zeros(p + 1, p, dtype=torch.float64))
        self.register_buffer("flow", torch.zeros(num_confounders + 1, 0))
        self.register_buffer("flow_weight", torch.zeros((), dtype=torch.float64))

    def forward(self, features: Tensor, confounders: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        """Residuals of the features' shape; in training the state takes the batch in first."""
        return forward(self, RMDN._train, features, confounders, labels)

    def reset(self) -> None:
        """Forget all rows; the features' shape and the columns' standardization stay."""
        fresh = {
            name: torch.zeros_like(self.get_buffer(name)) for name in ("beta", "moments", "recent", "flow", "flow_weight")
        }
        self.replace(P=torch.eye(len(self.P), dtype=self.P.dtype, device=self.P.device) * self.epsilon, **fresh)
        self._memo = None

    def sums(
        self, features: Tensor, confounders: Tensor | None, labels: Tensor | None, *, first: bool
    ) -> tuple[Tensor, Tensor]:
        """X'X (p, p) and X'Z (p, h) of a batch in float64; the `first` of a pass standardizes a layer that is new."""
        rows = self._taken(features, confounders, labels, ranks.world(self.sync), first and not self.seen)
        design = self._design(rows)
        return design.A, cross(design.counted, rows.z.double())

    def refit(self, A: Tensor, G: Tensor) -> None:
        """Take exactly the least-squares fit of these sums, X'X (p, p) and X'Z (p, h) in present coordinates."""
        self.reset()
        self.replace(
            P=recursion.absorb(self.P, A),
            beta=recursion.solve(A, G).to(self.beta.dtype).view(self.beta.shape),
            moments=A,
            recent=torch.cat([A / A[-1, -1].clamp_min(1), torch.ones_like(A[:1])]),
        )

    @property
    def lag(self) -> float:
        """How far the coefficients trail the weights: what one more update with the last batch would still change.

        The root mean square of that change of the residual, as a share of what is removed; NaN before the first batch.
        Near 0 is settled. A value that grows through training says that the network outruns the layer.
        """
        if self._memo is None:
            return math.nan
        A, G, first = self._memo.design.A, self._memo.sketch, self.columns.labels
        beta = sketched(self.beta.flatten(1)).to(G.dtype)
        P = recursion.absorb(recursion.forget(self.P, self.forgetting), A)
        change = (recursion.advance(beta, P, A, G) - beta)[first:].double()
        removed, inner = beta[first:].double(), A[first:, first:]
        size = (removed * (inner @ removed)).sum()
        return float((((change * (inner @ change)).sum()) / size).sqrt()) if size > 0 else math.nan

    # The training step ----------------------------------------------------------------------------------------------

    def _train(self, features: Tensor, confounders: Tensor | None, labels: Tensor | None) -> Tensor:
        task, memo = graph_task(), self._memo
        if task is None:
            # Past a module's slow assignment.
            self.__dict__["_memo"] = memo = self._learn(features, confounders, labels)
        elif memo is None or not memo.serves(self.pool(features.detach()), task):
            raise UsageError(
                "Activation checkpointing computes a batch again that is not this layer's last one, or computes it twice in"
                " one backward pass. Run backward after each forward, and call the layer once in it."
            )
        X, beta, projection = memo.X, memo.beta, memo.projection
        if self.inplace and writable(features):
            residual = subtract_in_place(features, X, beta)
        else:
            residual = self.subtract(features, X, beta)
        return residual if projection is None else project_gradient(residual, projection, self)

    @torch.no_grad()
    def _learn(self, features: Tensor, confounders: Tensor | None, labels: Tensor | None) -> Memo:
        world = ranks.world(self.sync)
        rows = self._taken(features, confounders, labels, world, first=not self.seen)
        design = self._design(rows)
        step = self._absorbed(design, rows, world)
        added = len(rows.X) * rows.positions if world == 1 and rows.counted is None else step.total[-1, -1].item()
        sketch = step.sketch
        if added and self._commit(step, added):
            design = self._design(rows)
            sketch = design.wide.mT @ sketched(rows.z)
        return self._memorized(design, rows, sketch)

    def _taken(self, features: Tensor, confounders: Tensor | None, labels: Tensor | None, world: int, first: bool) -> Rows:
        """The batch, checked; the other ranks, who wait for its sums, hear of one that does not fit."""
        try:
            rows = self.rows(features, confounders, labels)
            # Later training batches show it in their sums, without a look at every feature.
            if (first or not self.learning) and not math.isfinite(rows.z.sum().item()):
                raise self._not_finite(rows)
        except InputError:
            ranks.refuse(world, self.P if first else torch.cat([self.P, self.beta.flatten(1)], dim=1))
            raise
        if first:
            self._begin(rows, world)
        self.adopt(features)
        return rows

    def _begin(self, rows: Rows, world: int) -> None:
        """Standardize by the first batch, so that not even its own sums suffer from large means.

        Its sums X'X go round by themselves: a rank whose first batch does not fit need not know the features' shape.
        """
        X = rows.X if rows.counted is None else rows.X[rows.counted]
        (A,) = ranks.add(world, X.mT @ X)
        if not torch.isfinite(A).all():
            raise InputError(ELSEWHERE)
        if self.standardize:
            self.center, self.scale = self.recentred(A)

    def _design(self, rows: Rows) -> Design:
        X = (rows.X - self.center) / self.scale if self.standardize else rows.X  # (B, p)
        counted = X if rows.counted is None else X * rows.counted[:, None]
        A = counted.mT @ counted
        return Design(X, counted, counted.to(self.beta.dtype), A if rows.positions == 1 else A * rows.positions)

    def _absorbed(self, design: Design, rows: Rows, world: int) -> Step:
        P = recursion.forget(self.P, self.forgetting)
        beta = self.beta.flatten(1)
        if world == 1 and len(rows.X) < len(P) and rows.positions == 1:
            P, gain = recursion.absorb_rows(P, design.counted)
            total, error = design.A, subtract_product(rows.z, design.wide, beta)  # (B, h)
            sketch, shown = design.wide.mT @ sketched(rows.z), error
        else:
            G = cross(design.wide, rows.z)
            sketch = sketched(G).clone()  # G is about to be written over
            total, G = ranks.add(world, design.A, G)
            P = gain = recursion.absorb(P, total)
            error = subtract_product_(G, total.to(G.dtype), beta)  # (p, h)
            shown = error[-1]
        if not math.isfinite(shown.sum().item()):
            raise self._not_finite(rows)
        return Step(P, gain.to(beta.dtype), error, total, sketch)

    def _commit(self, step: Step, added: float) -> bool:
        """Take the new state; says whether the coordinates moved with it."""
        P, gain, error, total, _ = step
        before, recent, beta = self.seen, self.recent, self.beta.flatten(1)
        if beta.is_inference():  # made under torch.inference_mode, outside of which it cannot be written to
            beta = beta.clone()
        if self.gradient == "projected":
            share = self._share(added)
            recent = torch.lerp(recent, torch.cat([total / added, torch.ones_like(total[:1])]), share)
        self.replace(
            before + added,
            P=recursion.regularize(P, self.regularization),
            beta=beta.addmm_(gain, error).view(self.beta.shape),
            moments=self.moments + total,
            recent=recent,
        )
        if math.frexp(before)[1] == math.frexp(before + added)[1]:
            return False
        if self.standardize:  # at every doubling of the rows
            self.move(*self.recentred(self.moments))
        if self.seen >= 4 * len(P):
            self.warn_of_collinear()
        return self.standardize

    def moved(self, old_of_new: Tensor) -> dict[str, Tensor]:
        """P and the running moment in new coordinates."""
        new_of_old = torch.linalg.inv(old_of_new)
        recent = torch.cat([new_of_old.mT @ self.recent[:-1] @ new_of_old, self.recent[-1:]])
        return {"P": old_of_new @ self.P @ old_of_new.mT, "recent": recent}

    def _memorized(self, design: Design, rows: Rows, sketch: Tensor) -> Memo:
        first = self.columns.labels
        projection = None
        if self.gradient == "projected" and self.seen:
            M = self.recent[:-1] / self.recent[-1, 0]
            M.diagonal().add_(1 / (self.epsilon * self.seen))
            samples = design.A[-1, -1].item()
            weights = torch.linalg.inv(M)[:, first:] / max(samples, 1)  # (p, c + 1)
            projection = Projection(design.wide, weights.to(design.wide.dtype), self._share(samples))
        removed = design.wide if rows.counted is None else design.X.to(design.wide.dtype)
        return Memo(removed[:, first:], self.beta[first:], projection, design, sketch, set())

    def smoothed(self, along: Tensor, share: float) -> Tensor:
        """The running mean of X'g (c + 1, h) after a batch's; a batch of one row says nothing of it by itself.

        Rows times their own gradients would even turn it around: x x' in place of its mean has p times its size.
        """
        before = self.flow if self.flow.shape == along.shape else torch.zeros_like(along)
        if not math.isfinite(along.sum().item()):  # an overflow that a loss scaler is about to skip
            return along
        flow = torch.lerp(before, along, share)
        weight = torch.lerp(self.flow_weight, torch.ones_like(self.flow_weight), share)
        self._buffers.update(flow=flow, flow_weight=weight)
        return flow / weight.to(flow.dtype)

    def _share(self, rows: float) -> float:
        return rows / (rows + MEMORY_PER_COLUMN * len(self.P))

    def _not_finite(self, rows: Rows) -> InputError:
        bad = (~torch.isfinite(rows.z)).any(1).nonzero().flatten().tolist()
        if not bad:
            return InputError(ELSEWHERE)
        return InputError(
            f"features are NaN or infinite, or too large to add up, in row {bad[0]} of the batch ({len(bad)} such rows in"
            " all); the layer's state was not changed. Look for a loss that diverged or a broken image."
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_memo": None, "_frozen": False}


def sketched(z: Tensor) -> Tensor:
    """The columns of some of the features (..., h), spread evenly."""
    return z[:, :: max(1, z.shape[1] // SKETCH)]

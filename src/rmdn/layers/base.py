"""What every layer that takes confounders out of features has in common.

A layer holds coefficients `beta` of its features on the columns of `design.Columns`, in coordinates in which confounders
are standardized (`center`, `scale`), and the second moments of all training rows in the same coordinates. How
the coefficients are found is the subclass's one concern: `learn`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from rmdn import recursion
from rmdn.design import Columns, Missing, confounder_columns, label_columns, refuse_missing
from rmdn.errors import InputError, RMDNWarning, SettingError, UsageError
from rmdn.products import subtract_product

Share = Literal["spatial"]


class Rows(NamedTuple):
    """A training batch as the regression sees it."""

    X: Tensor  # (B, p) float64, standardized; a row that only takes the mean has its missing entries filled
    counted: Tensor | None  # (B,) bool: rows that update the state; None for all
    z: Tensor  # (B, h): one coefficient a feature; with share="spatial" the sum over the positions of a channel
    positions: int  # samples that a row stands for


class ConfounderLayer(nn.Module):
    """Features (B, ...) without what the confounders explain; see the subclasses for how the coefficients are found."""

    beta: Tensor  # (p, *features) float32 or wider; (p, 0) until the first batch
    moments: Tensor  # (p, p) float64: sum of x x' over all training rows
    center: Tensor  # (p,) float64
    scale: Tensor  # (p,) float64

    def __init__(
        self,
        num_confounders: int,
        num_classes: int | None = None,
        *,
        share: Share | None = None,
        missing: Missing = "error",
        standardize: bool = True,
        names: Sequence[str] = (),
    ) -> None:
        super().__init__()
        one_of("share", share, (None, *get_args(Share)))
        one_of("missing", missing, get_args(Missing))
        self.columns = Columns(num_confounders, num_classes, tuple(names))
        self.share = share
        self.missing = missing
        self.standardize = standardize
        self._frozen = False
        self._seen: float | None = None
        self._warned: set[str] = set()
        p, exact = self.columns.total, torch.float64
        self.register_buffer("beta", torch.zeros(p, 0))
        self.register_buffer("moments", torch.zeros(p, p, dtype=exact))
        self.register_buffer("center", torch.zeros(p, dtype=exact))
        self.register_buffer("scale", torch.ones(p, dtype=exact))

    def extra_repr(self) -> str:
        """What stands in the brackets when the layer is printed."""
        return (
            f"removes={list(self.columns.names[self.columns.labels : -1])}, num_classes={self.columns.num_classes},"
            f" features={tuple(self.beta.shape[1:])}"
        )

    # Training and inference -----------------------------------------------------------------------------------------

    @property
    def learning(self) -> bool:
        """Whether a forward pass now updates the state."""
        return self.training and not self._frozen

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Passes in here leave the state alone and residualize as in evaluation, whatever the mode."""
        before, self._frozen = self._frozen, True
        try:
            yield
        finally:
            self._frozen = before

    def infer(self, features: Tensor, confounders: Tensor | None) -> Tensor:
        """Residuals by the coefficients as they are; pure."""
        self._check_features(features)
        if self.beta.shape[1] == 0:  # nothing learned yet
            return features
        labels = self.columns.labels
        return self.subtract(features, self.removed_columns(confounders, features.shape[0]), self.beta[labels:])

    def removed_columns(self, confounders: Tensor | None, rows: int) -> Tensor:
        """Confounders and ones at inference (B, c + 1), standardized; missing ones at the training mean."""
        first, p = self.columns.labels, self.columns.total
        center, scale, means = self.center[first:-1], self.scale[first:-1], self.means()[first:-1]
        if confounders is None:
            if self.missing == "error" and p - 1 > first:
                raise InputError(
                    "confounders are missing. Give them, or construct the layer with missing='mean' or missing='skip' to"
                    " residualize at the training mean without them."
                )
            x = means.expand(rows, -1)
        else:
            x = (confounder_columns(confounders, self.columns, rows) - center) / scale
            if self.missing != "error":
                x = torch.where(x.isnan(), means, x)
            elif not torch.compiler.is_compiling() and not torch.isfinite(x.sum()):
                refuse_missing(confounders.reshape(rows, -1), self.columns.names[first:-1])
        return torch.cat([x, x.new_ones(rows, 1)], dim=1)

    def subtract(self, features: Tensor, X: Tensor, beta: Tensor) -> Tensor:
        """Features - X beta, computed at the coefficients' precision, in the features' own dtype."""
        X = X.to(beta.dtype)
        if self.share is None:
            z = features.flatten(1).to(beta.dtype)
            return subtract_product(z, X, beta.flatten(1)).view(features.shape).to(features.dtype)
        return (features.to(beta.dtype) - self.spread(X @ beta, features)).to(features.dtype)

    # A training batch -----------------------------------------------------------------------------------------------

    def rows(self, features: Tensor, confounders: Tensor | None, labels: Tensor | None) -> Rows:
        """The batch, checked: whatever does not fit raises here, before anything has changed."""
        self._check_features(features)
        batch = len(features)
        columns = self.columns
        if confounders is None and columns.num_confounders:
            raise InputError("confounders are missing: training needs them with every batch.")
        if labels is None and columns.labels:
            raise InputError(
                "labels are missing: training needs them with every batch, so that what the label explains is not taken"
                " out with the confounder. Give them, call .eval() or .frozen() for inference, or construct the layer"
                " with num_classes=0."
            )
        parts = []
        if labels is not None and columns.labels:
            parts.append(label_columns(labels, columns, batch))
        if confounders is not None:
            parts.append(confounder_columns(confounders, columns, batch))
        X = torch.cat([*parts, self.center.new_ones(batch, 1)], dim=1)  # (B, p)
        counted = None
        if not math.isfinite(X.sum().item()):
            X, counted = self._fill_missing(X)
        z = self.pool(features.detach())
        positions = 1 if self.share is None else features.numel() // max(z.numel(), 1)
        return Rows(X, counted, z.to(self.beta.dtype if self.seen else _wide(z.dtype)), positions)

    def _fill_missing(self, X: Tensor) -> tuple[Tensor, Tensor | None]:
        labels = self.columns.labels
        confounders = X[:, labels:-1]
        bad_label = ~torch.isfinite(X[:, :labels])
        if bad_label.any():
            raise InputError(f"labels are not finite in {int(bad_label.sum())} rows; the layer's state was not changed.")
        if self.missing == "error" or torch.isinf(confounders).any():
            refuse_missing(confounders, self.columns.names[labels:-1])
        gaps = confounders.isnan()
        means = self.center[labels:-1] + self.scale[labels:-1] * self.means()[labels:-1]
        if not self.seen:
            means = confounders.nanmean(0).nan_to_num()
        filled = torch.cat([X[:, :labels], torch.where(gaps, means, confounders), X[:, -1:]], dim=1)
        return filled, ~gaps.any(1) if self.missing == "skip" else None

    def pool(self, features: Tensor) -> Tensor:
        """Features as (B, h): flattened, or with share="spatial" summed over positions, channels left."""
        if self.share is None or features.ndim == 2:
            return features.flatten(1)
        if features.ndim == 3:  # tokens (B, T, D)
            return features.sum(1)
        return features.flatten(2).sum(2)  # maps (B, C, ...)

    def spread(self, fit: Tensor, features: Tensor) -> Tensor:
        """(B, h) back to the features' shape, or one that broadcasts to it."""
        if self.share is None:
            return fit.view(features.shape)
        if features.ndim == 3:
            return fit[:, None, :]
        return fit.view(*fit.shape, *[1] * (features.ndim - 2))

    def adopt(self, features: Tensor) -> None:
        """Take the features' shape over from the first batch."""
        if self.beta.shape[1] == 0:
            shape = self.feature_shape(features)
            self.beta = torch.zeros(len(self.moments), *shape, dtype=_wide(features.dtype), device=features.device)

    def feature_shape(self, features: Tensor) -> tuple[int, ...]:
        """The part of the features' shape that has coefficients of its own."""
        if self.share is None or features.ndim == 2:
            return features.shape[1:]
        return (features.shape[-1] if features.ndim == 3 else features.shape[1],)

    @property
    def seen(self) -> float:
        """How many training rows the state holds, without asking the device each time."""
        if self._seen is None:
            self._seen = self.moments[-1, -1].item()
        return self._seen

    def replace(self, seen: float | None = None, /, **buffers: Tensor) -> None:
        """Take new buffers, all at once, past a module's slow assignment; `seen`: the rows they hold, where known."""
        self._buffers.update(buffers)
        self.__dict__["_seen"] = seen

    def _check_features(self, features: Tensor) -> None:
        if not isinstance(features, Tensor) or not features.is_floating_point() or features.ndim < 2:
            given = f"{features.dtype} {tuple(features.shape)}" if isinstance(features, Tensor) else type(features).__name__
            raise InputError(f"features are {given}; expected a floating-point tensor of shape (batch, ...).")
        known = self.beta.shape[1:]
        if known[0] and self.feature_shape(features) != known:
            hint = "" if self.share else " For inputs of varying size construct the layer with share='spatial'."
            raise InputError(
                f"features have the shape {tuple(features.shape)}; this layer learned coefficients for"
                f" {tuple(known)}.{hint} The state was not changed."
            )

    # Standardized coordinates ---------------------------------------------------------------------------------------

    def means(self) -> Tensor:
        """The columns' means over all training rows (p,), in the present coordinates."""
        return self.moments[-1] / self.moments[-1, -1].clamp_min(1)

    def recentred(self, moments: Tensor) -> tuple[Tensor, Tensor]:
        """By how much coordinates must move, and by what they must shrink (p,), to standardize rows of these moments."""
        real = torch.ones_like(self.center, dtype=torch.bool)
        real[-1] = False
        real[: self.columns.labels] = False  # to move a label would move the intercept, which is taken out
        rows = moments[-1, -1].clamp_min(1)
        mean = moments[-1] / rows
        square = moments.diagonal() / rows
        spread = (square - mean**2).clamp_min(0)
        varies = real & (spread > 1e-12 * square)
        return torch.where(real, mean, 0.0), torch.where(varies, spread.sqrt(), 1.0)

    def move(self, shift: Tensor, factor: Tensor) -> None:
        """Change coordinates to (x - shift) / factor and carry the whole state along: the fit stays what it was."""
        old_of_new = torch.diag(factor)  # x_old = x_new @ old_of_new; the ones carry the shift
        old_of_new[-1] += shift
        new_of_old = torch.diag(1 / factor)
        new_of_old[-1] -= shift / factor
        moved = self.moved(old_of_new)
        beta = old_of_new @ self.beta.flatten(1).double()
        self.replace(
            beta=beta.to(self.beta.dtype).view(self.beta.shape),
            moments=new_of_old.mT @ self.moments @ new_of_old,
            center=self.center + self.scale * shift,
            scale=self.scale * factor,
            **moved,
        )

    def moved(self, old_of_new: Tensor) -> dict[str, Tensor]:
        """What else a subclass holds in these coordinates, after the change."""
        return {}

    def warn_of_collinear(self) -> None:
        """Say which columns the training rows cannot tell apart."""
        for column, sources in recursion.collinear(self.moments, self.columns.names):
            if column in self._warned:
                continue
            self._warned.add(column)
            reason = "is constant" if sources == ["ones"] else f"is determined by {', '.join(sources)}"
            warnings.warn(
                f"Column '{column}' {reason} in the {int(self.moments[-1, -1])} training rows so far. What is removed from"
                " the features stays right in such rows, but the columns' effects cannot be told apart: drop one of them.",
                RMDNWarning,
                stacklevel=2,
            )

    # State ----------------------------------------------------------------------------------------------------------

    def _apply(self, fn: Any, recurse: bool = True) -> ConfounderLayer:
        """Follow moves between devices, but never a narrowing of dtype: .half() must not ruin the state."""

        def guarded(tensor: Tensor) -> Tensor:
            moved: Tensor = fn(tensor)
            if not tensor.is_floating_point() or torch.promote_types(tensor.dtype, moved.dtype) == moved.dtype:
                return moved
            return tensor.to(moved.device)

        super()._apply(guarded, recurse)
        return self

    def _replicate_for_data_parallel(self) -> Any:
        raise UsageError(
            "nn.DataParallel makes copies of the model that are thrown away after each batch, and with them what the layers"
            " have learned. Use DistributedDataParallel (or Lightning Fabric), which keeps one state over all ranks."
        )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name, own in self._buffers.items():  # shapes that come with the features
            incoming = state_dict.get(prefix + name)
            if own is not None and isinstance(incoming, Tensor) and 0 in (own.numel(), incoming.numel()):
                self._buffers[name] = own.new_zeros(incoming.shape, dtype=incoming.dtype)
        self._seen = None
        super()._load_from_state_dict(state_dict, prefix, *args)


def graph_task() -> int | None:
    """The number of the backward pass that runs this very call again for activation checkpointing; None in a forward.

    PyTorch has no public way to ask; this is the one place that uses the private one.
    """
    task = int(torch._C._current_graph_task_id())
    return None if task == -1 else task


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def one_of(name: str, value: object, allowed: Sequence[object]) -> None:
    """Refuse an option that does not exist, and list those that do."""
    if value not in allowed:
        raise SettingError(f"{name}={value!r} was given; expected one of {', '.join(map(repr, allowed))}.")

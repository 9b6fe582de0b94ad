"""Labels and confounders of a batch -> the design matrix X, and which of its columns are removed from features.

The columns stand in this order: labels, confounders, ones. Only confounders and ones are ever taken out of features;
the labels are there so that what the disease explains is not blamed on a confounder that goes along with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from rmdn.errors import InputError, SettingError

Missing = Literal["error", "mean", "skip"]


@dataclass(frozen=True)
class Columns:
    """What stands in X: `num_classes` K gives K - 1 indicators, None one real-valued column, 0 no label column."""

    num_confounders: int
    num_classes: int | None
    names: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.num_confounders < 0 or (self.num_classes is not None and self.num_classes < 0):
            raise SettingError(
                f"num_confounders={self.num_confounders} and num_classes={self.num_classes} were given; counts are 0 or"
                " more (num_classes=None: a real-valued target, 0: no labels)."
            )
        confounders = list(self.names) or [f"confounder {i}" for i in range(self.num_confounders)]
        if len(confounders) != self.num_confounders:
            raise SettingError(
                f"{len(confounders)} names were given for {self.num_confounders} confounders: {confounders}."
            )
        labels = ["label"] if self.labels == 1 else [f"label {k}" for k in range(1, self.labels + 1)]
        object.__setattr__(self, "names", (*labels, *confounders, "ones"))

    @property
    def labels(self) -> int:
        """How many label columns there are."""
        if self.num_classes is None:
            return 1
        return max(self.num_classes - 1, 0)

    @property
    def total(self) -> int:
        """All columns: p."""
        return self.labels + self.num_confounders + 1


def label_columns(labels: Tensor, columns: Columns, rows: int) -> Tensor:
    """The label columns (B, p_labels) of a batch; every label is checked."""
    classes = columns.num_classes
    if not isinstance(labels, Tensor):
        raise InputError(f"labels are a {type(labels).__name__}; expected a tensor of {rows} values.")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (rows,):
        raise InputError(
            f"labels have the shape {tuple(labels.shape)} for a batch of {rows}; expected ({rows},): class numbers, not"
            " one-hot rows."
        )
    if classes is None:
        return labels.double()[:, None]
    if rows:
        if labels.dtype == torch.bool:
            labels = labels.long()
        low, high = (end.item() for end in torch.aminmax(labels))
        whole = not labels.is_floating_point() or bool((labels == labels.round()).all())
        if not (low >= 0 and high <= classes - 1 and whole):
            raise InputError(
                f"labels run from {low:g} to {high:g}; with num_classes={classes} they are whole numbers from 0 to"
                f" {classes - 1}. The layer's state was not changed."
            )
    if classes == 2:
        return labels.double()[:, None]
    return (labels[:, None] == torch.arange(1, classes, device=labels.device)).double()


def confounder_columns(confounders: Tensor, columns: Columns, rows: int) -> Tensor:
    """The confounder columns (B, c) in float64, missing entries still NaN; infinite ones are refused."""
    if not isinstance(confounders, Tensor):
        raise InputError(
            f"confounders are a {type(confounders).__name__}; expected a tensor of shape (batch, confounders)."
        )
    if confounders.ndim == 1 and columns.num_confounders == 1:
        confounders = confounders[:, None]
    if confounders.shape != (rows, columns.num_confounders):
        raise InputError(
            f"confounders have the shape {tuple(confounders.shape)}; expected ({rows}, {columns.num_confounders}): one row"
            " for each sample of the batch, one column for each confounder."
        )
    return confounders.double()


def refuse_missing(confounders: Tensor, names: Sequence[str]) -> None:
    """Name the first entry that is not a number."""
    bad = (~torch.isfinite(confounders)).nonzero()
    if len(bad):
        row, column = bad[0].tolist()
        raise InputError(
            f"confounder '{names[column]}' is {confounders[row, column].item()} in row {row} of the batch ({len(bad)} such"
            " entries in all); the layer's state was not changed. Fill or drop them, or construct the layer with"
            " missing='mean' or missing='skip'."
        )

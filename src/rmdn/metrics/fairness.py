"""Rates of a classifier that do not reward guessing the larger class, with bootstrap intervals."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rmdn.errors import InputError, SettingError
from rmdn.metrics._inputs import groups
from rmdn.metrics.resampling import Interval, bootstrap_weights, percentile_interval

Floats = NDArray[np.float64]
_NOTHING = float("nan")


class ClassRates(NamedTuple):
    """Rates of a classifier; TPR, TNR and their difference are NaN where there are not two classes."""

    accuracy: Interval
    balanced_accuracy: Interval
    distance_to_best: Interval
    TPR: Interval
    TNR: Interval
    difference: Interval


def class_rates(
    predictions: Any,
    labels: Any,
    *,
    positive: Any = None,
    best: float | None = None,
    units: Any = None,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> ClassRates:
    """Accuracy, balanced accuracy, |bAcc - A|, TPR, TNR, TPR - TNR of predicted classes (n,), with intervals.

    Balanced accuracy is the mean of the classes' recalls; `best` is the theoretical accuracy A. For two
    classes, `positive` names the positive one (the larger level if not given). Intervals are percentiles of a
    bootstrap that draws `units` (rows, or the subjects, families or sites given) with replacement.

    It assumes that units are independent and that predictions were made without them (a test set). It
    cannot show that a classifier is fair: equal rates may hide a confounder used alike in both classes.

    NaN: |bAcc - A| without `best`; TPR, TNR and difference unless there are just two classes; the rates that
    a class absent from the labels leaves empty (balanced accuracy is then over the classes that are present).
    """
    predicted, truth, levels = _codes(predictions, labels)
    units_of_rows = np.arange(len(truth)) if units is None else groups(units, "units", len(truth))[0]
    K, U = len(levels), int(units_of_rows.max()) + 1
    cells = np.bincount((units_of_rows * K + truth) * K + predicted, minlength=U * K * K)
    counts = cells.reshape(U, K * K).astype(np.float64)  # each unit's confusion matrix
    column = _positive(positive, levels)
    value = rates_of_confusion(counts.sum(0).reshape(1, K, K), column, best)[0]
    draws = np.concatenate(
        [
            rates_of_confusion((weights @ counts).reshape(-1, K, K), column, best)
            for weights in bootstrap_weights(U, resamples, seed)
        ]
    )
    return ClassRates(*(percentile_interval(v, d, confidence) for v, d in zip(value, draws.T, strict=True)))


def rates_of_confusion(confusion: Floats, positive: int | None, best: float | None) -> Floats:
    """The rates, in the order of `ClassRates`, of confusion matrices (m, K, K), rows the truth: (m, 6)."""
    sizes, right = confusion.sum(2), np.diagonal(confusion, axis1=1, axis2=2)  # (m, K)
    with np.errstate(invalid="ignore", divide="ignore"):
        recall = right / sizes  # NaN where a class is absent
        accuracy = right.sum(1) / sizes.sum(1)
        balanced = np.where(sizes > 0, recall, 0).sum(1) / (sizes > 0).sum(1)
    distance = np.full(len(confusion), _NOTHING) if best is None else np.abs(balanced - best)
    if positive is None:
        hit = miss = np.full(len(confusion), _NOTHING)
    else:
        hit, miss = recall[:, positive], recall[:, 1 - positive]
    return np.stack([accuracy, balanced, distance, hit, miss, hit - miss], 1)


def _codes(predictions: Any, labels: Any) -> tuple[NDArray[np.intp], NDArray[np.intp], list[Any]]:
    """Both as codes of their common levels."""
    truth, true_levels = groups(labels, "labels")
    predicted, predicted_levels = groups(predictions, "predictions", len(truth))
    if not len(truth):
        raise InputError("There are no labels. Give at least one row.")
    if len(predicted_levels) > max(20, 2 * len(true_levels)) and isinstance(predicted_levels[0], float):
        raise InputError(
            f"predictions have {len(predicted_levels)} different values: give predicted classes, "
            "for example logits.argmax(1), not scores."
        )
    if {type(v) is str for v in true_levels} != {type(v) is str for v in predicted_levels}:
        raise InputError(f"labels like {true_levels[0]!r} and predictions like {predicted_levels[0]!r} do not match.")
    levels = np.unique(np.array(true_levels + predicted_levels))
    return (
        np.searchsorted(levels, predicted_levels)[predicted],
        np.searchsorted(levels, true_levels)[truth],
        levels.tolist(),
    )


def _positive(positive: Any, levels: list[Any]) -> int | None:
    """The position of the positive class; None where there are not two."""
    positive = positive.item() if isinstance(positive, torch.Tensor | np.generic) else positive
    if len(levels) != 2:
        if positive is not None and positive not in levels:
            raise SettingError(f"positive={positive!r} is not a class; the classes are {levels}.")
        return None
    if positive is None:
        return 1
    if positive not in levels:
        raise SettingError(f"positive={positive!r} is not a class; the classes are {levels}.")
    return levels.index(positive)

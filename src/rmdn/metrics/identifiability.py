"""Can label and confounder be told apart at all? Asked before training, when it costs nothing."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmdn.errors import InputError, RMDNWarning
from rmdn.metrics._bases import Variable
from rmdn.metrics._inputs import array

Floats = NDArray[np.float64]
_HIGH_VIF, _HIGH_CONDITION, _LOW_OVERLAP = 10.0, 30.0, 0.1
_BINS = 10


class Identifiability(NamedTuple):
    """How well the columns of label and confounders can be told apart; `inseparable`: problems that are the label's."""

    vif: dict[str, float]
    condition: float
    overlap: dict[str, float]
    problems: tuple[str, ...]
    inseparable: tuple[str, ...]


def identifiability(
    confounders: Any, labels: Any = None, *, names: Sequence[str] | None = None, warn: bool = True
) -> Identifiability:
    """VIF of each column, condition number, overlap of confounders between classes; warns, naming columns.

    confounders (n, q) as the layer gets them; labels (n,) classes, numbers or None. A VIF is 1 for a column
    that no other explains and infinite for one that is a sum of others; the condition number is of the
    standardized columns. The overlap is the share of a confounder's histogram common to two classes, the
    least over pairs of classes: 1 is alike, 0 apart.

    It assumes linear effects (VIF, condition) and enough samples a class for a histogram of ten bins
    (overlap). It cannot show that a removal will be right: columns that are well apart may still have the
    wrong form.

    NaN where a column is constant (VIF; a problem is named), and for the overlap without classes.
    """
    columns = array(confounders, "confounders")
    n, q = columns.shape
    names = [f"confounder {k}" for k in range(q)] if names is None else [str(name) for name in names]
    if len(names) != q:
        raise InputError(f"names has {len(names)} entries for {q} confounder columns: {names}.")
    everything, titles, classes = columns, list(names), None
    if labels is not None:
        label = Variable(labels, "labels", n)
        classes = label.codes if label.discrete else None
        parts = label.curves()[:, 1:] if label.discrete else np.stack([numbers for _, numbers in label.columns], 1)
        everything = np.concatenate([columns, parts], 1)
        titles += ["label"] if parts.shape[1] == 1 else [f"label {k + 1}" for k in range(parts.shape[1])]
    centred = everything - everything.mean(0)
    vif, condition, problems = of_covariance(centred.T @ centred / n, everything.mean(0), titles)
    overlap = {name: _least_overlap(columns[:, k], classes) for k, name in enumerate(names)}
    apart = tuple(
        f"{name!r} hardly overlaps between classes (overlap {value:.2g}): its effect and the label's are one"
        for name, value in overlap.items()
        if value < _LOW_OVERLAP
    )
    problems += apart
    given = [f"{title!r} (VIF {vif[title]:.3g})" for title in titles[q:] if vif[title] > _HIGH_VIF]
    inseparable = (f"{', '.join(given)} is all but a sum of {', '.join(map(repr, names))}", *apart) if given else apart
    if problems and warn:
        warnings.warn(
            "Label and confounders can hardly be told apart. " + "; ".join(problems) + ". Leave one of the columns "
            "out, merge levels, or gather samples where they differ.",
            RMDNWarning,
            stacklevel=2,
        )
    return Identifiability(vif, condition, overlap, problems, inseparable)


def of_covariance(covariance: Floats, mean: Floats, names: list[str]) -> tuple[dict[str, float], float, tuple[str, ...]]:
    """VIFs, condition number and problems from the covariance (k, k) of the columns."""
    variance = np.diag(covariance)
    varies = variance > 1e-12 * (mean**2 + variance)
    problems = [f"{name!r} is constant" for name, moves in zip(names, varies, strict=True) if not moves]
    vif = dict.fromkeys(names, float("nan"))
    kept = [name for name, moves in zip(names, varies, strict=True) if moves]
    if not kept:
        return vif, float("nan"), tuple(problems)
    scale = np.sqrt(variance[varies])
    correlation = covariance[np.ix_(varies, varies)] / np.outer(scale, scale)
    values, vectors = np.linalg.eigh(correlation)
    free = np.maximum(values, 0) > 1e-10
    for k, name in enumerate(kept):
        stuck = (vectors[k, ~free] ** 2).sum() > 1e-8  # part of an exact relation
        vif[name] = float("inf") if stuck else float((vectors[k, free] ** 2 / values[free]).sum())
    condition = float(np.sqrt(values[-1] / values[0])) if free.all() else float("inf")
    high = [f"{name!r} (VIF {vif[name]:.3g})" for name in kept if vif[name] > _HIGH_VIF]
    if high:
        problems.append("collinear columns: " + ", ".join(high))
    elif condition > _HIGH_CONDITION:
        weights = np.abs(vectors[:, 0])
        part = [repr(name) for name, weight in zip(kept, weights, strict=True) if weight > 0.3]
        problems.append(f"nearly collinear (condition number {condition:.3g}): " + ", ".join(part))
    return vif, condition, tuple(problems)


def _least_overlap(column: Floats, classes: NDArray[np.intp] | None) -> float:
    """The least common share of histograms over pairs of classes; NaN without two classes."""
    if classes is None or classes.max() == 0:
        return float("nan")
    values = np.unique(column)
    if len(values) > _BINS:
        edges = np.unique(np.quantile(column, np.linspace(0, 1, _BINS + 1)))[1:-1]
        bins = np.searchsorted(edges, column, side="right")
    else:
        bins = np.searchsorted(values, column)
    size = int(bins.max()) + 1
    shares = [np.bincount(bins[classes == k], minlength=size) / (classes == k).sum() for k in np.unique(classes)]
    return float(min(np.minimum(a, b).sum() for i, a in enumerate(shares) for b in shares[:i]))

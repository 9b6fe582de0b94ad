"""What moves the prediction: label, confounder, or what the two share; and what the confounder alone does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rmdn.errors import InputError
from rmdn.metrics._bases import Variable, standardized
from rmdn.metrics._inputs import groups
from rmdn.metrics.resampling import Interval, bootstrap_weights, percentile_interval

Floats = NDArray[np.float64]


class VarianceShares(NamedTuple):
    """Shares of the variance in predictions; they sum to one."""

    label: Interval
    confounder: Interval
    both: Interval
    neither: Interval


def variance_shares(
    predictions: Any,
    labels: Any,
    confounders: Any,
    *,
    units: Any = None,
    resamples: int = 500,
    confidence: float = 0.95,
    seed: int = 0,
) -> VarianceShares:
    """Shares of the variance in predictions explained by label alone, confounder alone, both, and neither.

    Regression shares in the manner of Dinga et al. (2020), cubics of numbers and indicators of classes taken
    in: "label" is what it adds to the confounder, "confounder" what it adds to the label, "both" what either
    could explain. Intervals are percentiles of a bootstrap over `units`.

    It assumes additive effects of label and confounder, and far more units than regression columns. It cannot
    show which of the two the "both" share is due to; that share is negative where one hides the other.

    NaN where predictions are constant.
    """
    prediction = Variable(np.reshape(_host(predictions), (len(predictions), -1)), "predictions")
    n = prediction.n
    parts = [
        prediction.numbers(),
        *(standardized(Variable(v, name, n).curves()) for v, name in ((labels, "labels"), (confounders, "confounders"))),
    ]
    sizes = [part.shape[1] for part in parts]
    rows = np.concatenate([np.ones((n, 1)), *parts], 1)  # (n, 1 + k)
    unit = np.arange(n) if units is None else groups(units, "units", n)[0]
    value = shares_of_moments((rows.T @ rows)[None], sizes)[0]
    draws = []
    for weights in bootstrap_weights(int(unit.max()) + 1, resamples, seed):
        moments = [(rows * weight[unit, None]).T @ rows for weight in weights]
        draws.append(shares_of_moments(np.stack(moments), sizes))
    drawn = np.concatenate(draws)
    return VarianceShares(*(percentile_interval(v, d, confidence) for v, d in zip(value, drawn.T, strict=True)))


def shares_of_moments(moments: Floats, sizes: list[int]) -> Floats:
    """The shares (m, 4) from moments (m, 1 + k, 1 + k) of ones, predictions, labels, confounders."""
    d, label, confounder = sizes
    mean = moments[:, 0, 1:] / moments[:, :1, 0]
    covariance = moments[:, 1:, 1:] / moments[:, :1, :1] - mean[:, :, None] * mean[:, None]
    total = np.trace(covariance[:, :d, :d], axis1=1, axis2=2)

    def explained(columns: NDArray[np.intp]) -> Floats:
        inner = covariance[:, columns[:, None], columns[None]]
        cross = covariance[:, columns, :d]  # (m, k, d)
        coefficients = np.linalg.pinv(inner, rcond=1e-9, hermitian=True) @ cross
        return np.asarray((cross * coefficients).sum((1, 2)))

    whole = np.arange(d, d + label + confounder)
    with np.errstate(invalid="ignore", divide="ignore"):
        full, by_label, by_confounder = (explained(columns) / total for columns in (whole, whole[:label], whole[label:]))
    return np.stack([full - by_confounder, full - by_label, by_label + by_confounder - full, 1 - full], 1)


class ConfounderCurve(NamedTuple):
    """Predictions while one confounder column is moved and all else stays."""

    values: Floats  # (g,) where the confounder was put
    mean: Floats  # (g, k) mean prediction
    low: Floats  # (g, k) 5 % quantile over samples
    high: Floats  # (g, k) 95 % quantile
    reach: float  # largest change of a mean prediction along the curve


def confounder_curve(
    predict: Callable[[Any], Any], confounders: Any, column: int = 0, values: Any = None
) -> ConfounderCurve:
    """Mean prediction when one confounder column is moved and images, weights and other columns stay.

    `predict` maps confounders (n, q), of the kind given, to outputs (n, k), for example
    `lambda c: model(x, confounders=c)` in eval mode; `values` are the places (default: 21 quantiles from 5 to
    95 %).

    It assumes that the model takes the confounder beside the image and that the values make sense for every
    sample. It cannot show what the image itself carries of the confounder: a flat curve and a confounded
    model go together.
    """
    columns = _host(confounders).astype(np.float64)
    columns = columns[:, None] if columns.ndim == 1 else columns
    if columns.ndim != 2 or not 0 <= column < columns.shape[1] or not len(columns):
        raise InputError(f"confounders must be (n, q) with a column {column}; got shape {columns.shape}.")
    if values is None:
        places = np.unique(np.nanquantile(columns[:, column], np.linspace(0.05, 0.95, 21)))
    else:
        places = np.asarray(_host(values), np.float64).reshape(-1)
    found = []
    for place in places:
        moved = _copy(confounders)
        moved.reshape(len(columns), -1)[:, column] = place
        with torch.no_grad():
            output = _host(predict(moved)).astype(np.float64)
        if len(output) != len(columns):
            raise InputError(f"predict gave {len(output)} rows for {len(columns)} rows of confounders.")
        found.append(output.reshape(len(columns), -1))
    outputs = np.stack(found)  # (g, n, k)
    mean = outputs.mean(1)
    low, high = np.quantile(outputs, [0.05, 0.95], axis=1)
    return ConfounderCurve(places, mean, low, high, float((mean.max(0) - mean.min(0)).max()))


def _copy(confounders: Any) -> Any:
    """A copy of the same kind that can hold fractions."""
    if not isinstance(confounders, torch.Tensor):
        return np.array(confounders, np.float64)
    return confounders.detach().clone() if confounders.is_floating_point() else confounders.float()


def _host(values: Any) -> NDArray[Any]:
    return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)

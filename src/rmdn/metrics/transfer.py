"""What learning one stage does to the others, from the stage-by-stage matrix R.

R[i, j] is the score (accuracy, or any other measure) on the test set of stage j after training on stage i.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmdn.errors import InputError
from rmdn.metrics._inputs import groups
from rmdn.metrics.resampling import Interval, bootstrap_weights, percentile_interval

Floats = NDArray[np.float64]


class Transfer(NamedTuple):
    """Average score, backward and forward transfer; larger is better."""

    ACC: float
    BWT: float
    FWT: float


class TransferDistances(NamedTuple):
    """The paper's distances to the theoretical scores; smaller is better."""

    ACCd: float
    BWTd: float
    FWTd: float


def transfer(R: Any, baseline: Any = None) -> Transfer:
    """ACC, BWT and FWT of Lopez-Paz & Ranzato (2017) from a matrix R (S, S).

    ACC is the mean of R[S, i] and BWT the mean over i < S of R[S, i] - R[i, i]. FWT is the mean over i > 1 of
    R[i-1, i] - baseline[i]: GEM subtracts the score of the untrained network, which is `baseline` (S,);
    without it nothing is subtracted, and that is the FWT of the paper's HAM10000 table.

    It assumes that the scores of all stages mean the same and weigh alike. It cannot show whether a high
    score was earned or taken from the confounder: that is what `transfer_distances` is for.

    NaN where R has a NaN that is needed, and for BWT and FWT of a single stage. Entries never needed may be
    NaN.
    """
    R = _square(R)
    start = np.zeros(len(R)) if baseline is None else _per_stage(baseline, "baseline", len(R))
    return Transfer(*(float(value) for value in _transfer(R, start)))


def transfer_distances(R: Any, best: Any) -> TransferDistances:
    """ACCd, BWTd and FWTd of the paper's section 4.1, from R (S, S) and the theoretical best scores (S,).

    ACCd = 1/S sum_i |R[S, i] - A[i]|; BWTd = 1/(S-1) sum_{i<S} |R[S, i] - A[i]| - |R[i, i] - A[i]|;
    FWTd = 1/(S-1) sum_{i>1} |R[i-1, i] - A[i]|. A score above the theoretical best counts as far as one
    below.

    It assumes that the best score without the confounder is known, as in synthetic data (one number for all
    stages, or one a stage). It cannot show why a score is off: a model that cheats and one that learned
    nothing may lie equally far away.
    """
    R = _square(R)
    return TransferDistances(*(float(value) for value in _distances(R, _per_stage(best, "best", len(R)))))


def transfer_intervals(
    scores: Sequence[Sequence[Any]],
    units: Sequence[Any] | None = None,
    *,
    best: Any = None,
    baseline: Any = None,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval]:
    """Bootstrap intervals of ACC, BWT, FWT, and of the distances where `best` is given, for one training.

    `scores[i][j]` holds one score a row (1 for a correct prediction, else 0) of stage j's test set after
    training on stage i, or None where it was not evaluated; `units[j]` names each row's subject, family or
    site in that set. Units are drawn with replacement, the same draw for all stages, so that a subject seen
    in several stages stays whole.

    It assumes that units are independent draws of the population that you speak about. It cannot show
    the spread between training runs: for that, give the values of several seeds to `mean_interval`.
    """
    stages = len(scores)
    if stages == 0 or any(len(row) != stages for row in scores):
        raise InputError(f"scores must be S lists of S entries; got lengths {[len(row) for row in scores]}.")
    sums, counts = _sums_by_unit(scores, units)  # (S, S, U), (S, U)
    start = np.zeros(stages) if baseline is None else _per_stage(baseline, "baseline", stages)
    aim = None if best is None else _per_stage(best, "best", stages)

    def measures(weights: Floats) -> Floats:  # (m, U) -> (m, k)
        with np.errstate(invalid="ignore", divide="ignore"):
            R = np.einsum("mu,iju->mij", weights, sums) / (weights @ counts.T)[:, None, :]
        found = np.stack(_transfer(R, start), -1)
        return found if aim is None else np.concatenate([found, np.stack(_distances(R, aim), -1)], -1)

    values = measures(np.ones((1, counts.shape[1])))[0]
    draws = np.concatenate([measures(weights) for weights in bootstrap_weights(counts.shape[1], resamples, seed)])
    names = Transfer._fields + (() if aim is None else TransferDistances._fields)
    return {name: percentile_interval(values[k], draws[:, k], confidence) for k, name in enumerate(names)}


def _sums_by_unit(scores: Sequence[Sequence[Any]], units: Sequence[Any] | None) -> tuple[Floats, Floats]:
    """Sums of scores (S, S, U) and numbers of rows (S, U) for each unit of any stage."""
    stages = len(scores)
    sizes = [next((len(row[j]) for row in scores if row[j] is not None), 0) for j in range(stages)]
    if not all(sizes):
        raise InputError(f"Test sets of stages {[j for j, size in enumerate(sizes) if not size]} (from 0) have no scores.")
    if units is None:
        codes = np.arange(sum(sizes))
    elif len(units) != stages or [len(part) for part in units] != sizes:
        raise InputError(f"units must name every row of the {stages} test sets, which have {sizes} rows.")
    else:
        codes = groups(np.concatenate([np.asarray(part) for part in units]), "units")[0]
    parts = np.split(codes, np.cumsum(sizes)[:-1])
    U = int(codes.max()) + 1
    sums = np.full((stages, stages, U), np.nan)
    for i, row in enumerate(scores):
        for j, column in enumerate(row):
            if column is None:
                continue
            values = _floats(column).reshape(-1)
            if not np.isfinite(values).all():
                raise InputError(f"scores[{i}][{j}] has NaN or infinite entries. Drop these rows for every stage i.")
            if len(values) != sizes[j]:
                raise InputError(f"scores[{i}][{j}] has {len(values)} rows, expected {sizes[j]} as elsewhere.")
            sums[i, j] = np.bincount(parts[j], values, U)
    return sums, np.stack([np.bincount(part, minlength=U).astype(np.float64) for part in parts])


def _transfer(R: Floats, baseline: Floats) -> tuple[Floats, Floats, Floats]:
    last, own, ahead = _parts(R)
    return last.mean(-1), _mean(last[..., :-1] - own[..., :-1]), _mean(ahead - baseline[1:])


def _distances(R: Floats, best: Floats) -> tuple[Floats, Floats, Floats]:
    last, own, ahead = _parts(R)
    last_off, own_off, ahead_off = np.abs(last - best), np.abs(own - best), np.abs(ahead - best[1:])
    return last_off.mean(-1), _mean(last_off[..., :-1] - own_off[..., :-1]), _mean(ahead_off)


def _parts(R: Floats) -> tuple[Floats, Floats, Floats]:
    """The last row, the diagonal and the diagonal above it."""
    return R[..., -1, :], np.diagonal(R, 0, -2, -1), np.diagonal(R, 1, -2, -1)


def _mean(values: Floats) -> Floats:
    """The mean over the last axis, NaN where there is nothing: one stage has no transfer."""
    return np.asarray(values.mean(-1) if values.shape[-1] else np.full(values.shape[:-1], np.nan))


def _floats(values: Any) -> Floats:
    values = values.detach().cpu().numpy() if hasattr(values, "detach") else values
    try:
        numbers: Floats = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"Expected numbers, all rows of one length; got {values!r} ({error}).") from error
    return numbers


def _square(R: Any) -> Floats:
    matrix = _floats(R)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise InputError(f"R must be S x S, R[i, j] the score on stage j after stage i; got shape {matrix.shape}.")
    return matrix


def _per_stage(values: Any, name: str, stages: int) -> Floats:
    each = _floats(values)
    if each.ndim == 0:
        return np.full(stages, float(each))
    if each.shape != (stages,):
        raise InputError(f"{name} must be one number, or one for each of the {stages} stages; got shape {each.shape}.")
    return each

"""Draws that meet published distributions even when few are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rmdn.data.stages import quotas
from rmdn.extras import need


def dealt(n: int, shares: Mapping[str, float], rng: np.random.Generator) -> np.ndarray:
    """(n,) levels in random order, each as often as its share of n says, up to rounding."""
    counts = quotas(n, np.array(list(shares.values()), dtype=np.float64))
    return np.asarray(rng.permutation(np.repeat(np.array(list(shares)), counts)))


def whole_numbers(n: int, mean: float, deviation: float, values: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """(n,) of these whole numbers, with this mean and deviation, by the most even such distribution."""
    shares = maximum_entropy(mean, deviation, values)
    return dealt(n, dict(zip(map(str, values), shares, strict=True)), rng).astype(np.int64)


def maximum_entropy(mean: float, deviation: float, values: Sequence[int]) -> np.ndarray:
    """The distribution on `values`, proportional to exp(a v + b v^2), with this mean and deviation."""
    z = (np.asarray(values, dtype=np.float64) - mean) / deviation
    features = np.stack([z, z**2])  # (2, values)
    weights = np.zeros(2)
    for _ in range(200):  # damped Newton on a convex problem of two unknowns
        shares = _softmax(weights @ features)
        gap = np.array([0.0, 1.0]) - features @ shares
        if np.abs(gap).max() < 1e-12:
            break
        centred = features - (features @ shares)[:, None]
        step = np.linalg.solve((centred * shares) @ centred.T + 1e-12 * np.eye(2), gap)
        weights = weights + step * min(1.0, 2.0 / float(np.abs(step).max()))
    return shares


def ages(n: int, mean: float, deviation: float, low: float, high: float, rng: np.random.Generator) -> np.ndarray:
    """(n,) normal ages kept within bounds; n evenly spaced quantiles in random order, so the mean is met."""
    normal = need("scipy.stats", "study").norm
    places = (rng.permutation(n) + rng.random(n)) / max(n, 1)
    drawn = mean + deviation * normal.ppf(np.clip(places, 1e-4, 1 - 1e-4))
    return np.asarray(np.clip(drawn, low, high))


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return np.asarray(e / e.sum())

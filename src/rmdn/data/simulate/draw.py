"""Draws that meet published distributions even when few are drawn."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rmdn.data.stages import quotas
from rmdn.extras import need


def dealt(n: int, shares: Mapping[str, float], rng: np.random.Generator) -> np.ndarray:
    """(n,) levels in random order, each as often as its share of n says, up to rounding."""
    counts = quotas(n, np.array(list(shares.values()), dtype=np.float64))
    return np.asarray(rng.permutation(np.repeat(np.array(list(shares)), counts)))


def scores(n: int, mean: float, deviation: float, highest: int, rng: np.random.Generator) -> np.ndarray:
    """(n,) whole numbers from 1 to `highest` with this mean and deviation, of the most even distribution."""
    shares = maximum_entropy(mean, deviation, highest)
    drawn = dealt(n, {str(i + 1): share for i, share in enumerate(shares)}, rng)
    return drawn.astype(np.int64)


def maximum_entropy(mean: float, deviation: float, highest: int) -> np.ndarray:
    """(highest,) the distribution on 1..highest, proportional to exp(a k + b k^2), with these two moments."""
    k = np.arange(1, highest + 1, dtype=np.float64)
    features = np.stack([k, k**2])  # (2, highest)
    target = np.array([mean, deviation**2 + mean**2])
    weights = np.zeros(2)
    for _ in range(200):  # damped Newton on a convex problem of two unknowns
        shares = _softmax(weights @ features)
        gap = target - features @ shares
        if np.abs(gap).max() < 1e-12:
            break
        centred = features - (features @ shares)[:, None]
        step = np.linalg.solve((centred * shares) @ centred.T + 1e-12 * np.eye(2), gap)
        weights = weights + step * min(1.0, 2.0 / float(np.abs(step).max()))
    return shares


def ages(
    n: int, mean: float, deviation: float, low: float, high: float, rng: np.random.Generator
) -> np.ndarray:
    """(n,) normal ages kept within bounds; n evenly spaced quantiles in random order, so the mean is met."""
    normal = need("scipy.stats", "study").norm
    places = (rng.permutation(n) + rng.random(n)) / max(n, 1)
    drawn = mean + deviation * normal.ppf(np.clip(places, 1e-4, 1 - 1e-4))
    return np.asarray(np.clip(drawn, low, high))


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return np.asarray(e / e.sum())

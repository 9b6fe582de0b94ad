"""Does a prediction use the confounder? Tests by conditional permutation, after Spisak (2022).

Both tests exchange one variable between samples in such a way that its relation to a second one stays as it
is, and watch its relation to the prediction. Where the second is classes, that is an exchange within classes,
and the test is exact. Otherwise swaps are accepted by a fitted model of the one given the other (the
conditional permutation test of Berrett et al. 2020): nothing is assumed of the predictions, and they are
never made again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmdn.errors import InputError
from rmdn.metrics._bases import Variable, orthonormal, without
from rmdn.metrics._inputs import at_least, need
from rmdn.metrics.dependence_inference import PermutationTest
from rmdn.metrics.resampling import Indices, Permutations, permutation_p_value
from rmdn.progress import track

Floats = NDArray[np.float64]
_STEPS = 50  # rounds of swaps from the data to the hub, and from the hub to each copy
_CHUNK = 20_000_000


def partial_confounder_test(
    predictions: Any,
    labels: Any,
    confounders: Any,
    *,
    units: Any = None,
    permutations: int = 999,
    seed: int = 0,
) -> PermutationTest:
    """Is the prediction independent of the confounder given the label? A small p-value says: it is not.

    Predictions are classes (n,) or scores (n, ...); labels and confounders (n,) or (n, columns) are classes
    or numbers; `units` (subject, family) are exchanged whole. The value is the share of the prediction's
    variance left by the label that the confounder explains, cubics of the numbers taken in.

    It assumes samples (or units) independent of each other, and, for a label that is not classes, confounders
    that scatter around a cubic in it with one Gaussian spread (classes: a logistic model). It cannot show
    that a prediction is free of the confounder when p is large, nor dependence that leaves the mean
    prediction unmoved.

    NaN where the label leaves nothing of the prediction, or the confounder is constant.
    """
    prediction, label, confounder = _variables(predictions, labels, confounders)
    return _test(prediction, confounder, label, units, permutations, seed)


def full_confounder_test(
    predictions: Any,
    labels: Any,
    confounders: Any,
    *,
    units: Any = None,
    permutations: int = 999,
    seed: int = 0,
) -> PermutationTest:
    """Is the prediction independent of the label given the confounder? A large p: it may be all confounder.

    Input as for `partial_confounder_test`. The value is the share of the prediction's variance left by the
    confounder that the label explains.

    It assumes samples (or units) independent of each other, and, for confounders that are not classes, labels
    that follow a logistic model in their cubics (numbers: scatter around them with one Gaussian spread). It
    cannot show that the confounder is not used: a small p-value only says that the label's own signal is used
    as well.

    NaN where the confounder leaves nothing of the prediction, or the label is constant.
    """
    prediction, label, confounder = _variables(predictions, labels, confounders)
    return _test(prediction, label, confounder, units, permutations, seed)


def _variables(predictions: Any, labels: Any, confounders: Any) -> tuple[Variable, Variable, Variable]:
    shape = np.shape(predictions)
    if len(shape) > 2:
        predictions = predictions.reshape(shape[0], -1)
    prediction = Variable(predictions, "predictions")
    if prediction.n < 4:
        raise InputError(f"A confounder test needs at least 4 samples; got {prediction.n}.")
    return (
        prediction,
        Variable(labels, "labels", prediction.n),
        Variable(confounders, "confounders", prediction.n),
    )


def _test(
    prediction: Variable, moved: Variable, given: Variable, units: Any, permutations: int, seed: int
) -> PermutationTest:
    """Share of the prediction's variance beyond `given` that `moved` explains, against exchanges."""
    at_least(permutations, 1, "permutations")
    whole = prediction.numbers()
    left = without(whole, orthonormal(given.curves()))  # (n, d)
    basis = orthonormal(moved.curves())  # (n, r)
    scale = float((left**2).sum())
    if basis.shape[1] == 0 or scale <= 1e-20 * max(float((whole**2).sum()), 1e-300):
        return PermutationTest(float("nan"), float("nan"), np.full(permutations, np.nan))

    def share(taken: Indices) -> Floats:  # (m, n) -> (m,)
        return np.asarray((np.einsum("mnr,nd->mrd", basis[taken], left, optimize=True) ** 2).sum((1, 2)) / scale)

    value = float(share(np.arange(prediction.n)[None])[0])
    generator = np.random.default_rng(seed)
    if given.discrete:
        exchange = Permutations(prediction.n, units, given.codes)
        taken = np.stack([exchange.draw(generator) for _ in range(permutations)])
    else:
        taken = _conditional_orders(moved, given, Permutations(prediction.n, units), permutations, generator)
    chunk = max(1, _CHUNK // (prediction.n * basis.shape[1]))
    null = np.concatenate([share(taken[start : start + chunk]) for start in range(0, permutations, chunk)])
    return PermutationTest(value, permutation_p_value(value, null), null)


def _conditional_orders(
    moved: Variable, given: Variable, exchange: Permutations, copies: int, generator: np.random.Generator
) -> Indices:
    """Orders (m, n) in which `moved` is as likely given `given` as it is in the data, up to its model.

    One chain leads from the data to a hub, and one from the hub to each copy, by the same rounds of random
    pairs backwards and forwards: each round is reversible, so the data and the copies are exchangeable.
    """
    place, self_ = _affinities(moved, given)  # (n, d) each
    rounds = [[_pairs(len(rows), generator) for rows in exchange.sets] for _ in range(_STEPS)]
    hub = np.arange(moved.n)[None]
    for pairs in reversed(rounds):
        _swap(hub, pairs, exchange.sets, place, self_, generator)
    at_once = max(1, _CHUNK // (4 * moved.n))
    sizes = [min(at_once, copies - done) for done in range(0, copies, at_once)]
    found = []
    long = copies * moved.n * _STEPS > 1e9
    for size in track(sizes, "Conditional permutations", long=long):
        orders = hub.repeat(size, axis=0)
        for pairs in rounds:
            _swap(orders, pairs, exchange.sets, place, self_, generator)
        found.append(orders)
    return np.concatenate(found)


def _affinities(moved: Variable, given: Variable) -> tuple[Floats, Floats]:
    """F and phi with log q(value of b | given of a) = F_a . phi_b + what no swap changes."""
    design = orthonormal(given.curves()) * np.sqrt(given.n)  # (n, k)
    if len(moved.columns) == 1 and moved.discrete:
        indicators = moved.codes[:, None] == np.arange(moved.codes.max() + 1)  # (n, K)
        if indicators.shape[1] == 1:
            return np.zeros((moved.n, 1)), indicators.astype(np.float64)
        linear = need("sklearn.linear_model", "study", "The confounder test of classes given numbers")
        model = linear.LogisticRegression(C=100.0, max_iter=1000).fit(design, moved.codes)
        probability = np.clip(model.predict_proba(design), 1e-12, None)
        return np.log(probability), indicators.astype(np.float64)
    values = moved.numbers()  # (n, d)
    residual = without(values, orthonormal(given.curves()))
    freedom = max(moved.n - design.shape[1] - 1, 1)
    covariance = residual.T @ residual / freedom
    return (values - residual) @ np.linalg.pinv(covariance, rcond=1e-8), values


def _pairs(count: int, generator: np.random.Generator) -> tuple[Indices, Indices]:
    """Random pairs among `count` units; with an odd number one stays alone."""
    order = generator.permutation(count)
    half = count // 2
    return order[:half], order[half : 2 * half]


def _swap(
    orders: Indices,
    pairs: list[tuple[Indices, Indices]],
    sets: list[Indices],
    place: Floats,
    self_: Floats,
    generator: np.random.Generator,
) -> None:
    """Swap the units of each pair with the odds of the swapped state to the present one, in every order."""
    for (one, other), rows in zip(pairs, sets, strict=True):
        a, b = rows[one], rows[other]  # (pairs, rows of a unit)
        log_odds = np.zeros((len(orders), len(a)))
        for k in range(place.shape[1]):
            change = self_[orders[:, b], k] - self_[orders[:, a], k]  # (m, pairs, rows)
            log_odds += ((place[a, k] - place[b, k]) * change).sum(2)
        chosen = generator.random(log_odds.shape) < 1 / (1 + np.exp(np.minimum(-log_odds, 700)))
        at_a, at_b = orders[:, a], orders[:, b]
        orders[:, a] = np.where(chosen[..., None], at_b, at_a)
        orders[:, b] = np.where(chosen[..., None], at_a, at_b)

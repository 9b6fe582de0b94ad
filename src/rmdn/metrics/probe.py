"""Can the confounder be read out of a layer, by a curve as well as by a line?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmdn.errors import InputError
from rmdn.metrics._bases import Variable, orthonormal, without
from rmdn.metrics._inputs import array, at_least, groups, need
from rmdn.metrics.dependence_inference import PermutationTest
from rmdn.metrics.resampling import Permutations, permutation_p_value
from rmdn.progress import track

Floats = NDArray[np.float64]
_CENTRES = 300  # of the kernel; the probe is a ridge regression on so many radial functions
_ALPHAS = np.logspace(-3, 4, 8)


def probe_layers(
    features: Mapping[str, Any],
    confounder: Any,
    *,
    labels: Any = None,
    units: Any = None,
    folds: int = 5,
    permutations: int = 199,
    seed: int = 0,
) -> dict[str, PermutationTest]:
    """How much of the confounder a nonlinear probe reads from each layer's features {name: (n, ...)}.

    The value is the cross-validated share of the confounder's variance (beyond the labels (n,), if given)
    that kernel ridge regression predicts on folds whose `units` it has not seen: 1 is all, 0 or less is
    nothing. The p-value is by permutation of the confounder within equal labels; for labels that are numbers,
    of what they leave of it, which is an approximation.

    It assumes that features were computed by one fixed network on data it was not trained on, and independent
    units. It cannot show that the network uses what the probe reads, nor that another probe would not read
    more.

    NaN where the labels leave nothing of the confounder.
    """
    target = Variable(confounder, "confounder")
    n = target.n
    layers = {name: array(values, f"features[{name!r}]", n) for name, values in features.items()}
    if not layers:
        raise InputError("features is empty: give {layer name: features (n, ...)}.")
    unit = np.arange(n) if units is None else groups(units, "units", n)[0]
    values = target.numbers()  # (n, q)
    within = None
    if labels is not None:
        label = Variable(labels, "labels", n)
        values = without(values, orthonormal(label.curves()))
        within = label.codes if label.discrete else None
    exchange, generator = Permutations(n, units, within), np.random.default_rng(seed)
    orders = [
        np.arange(n),
        *(exchange.draw(generator) for _ in range(at_least(permutations, 1, "permutations"))),
    ]
    if values.size == 0 or (values**2).sum() < 1e-20 * n:
        nothing = PermutationTest(float("nan"), float("nan"), np.full(permutations, np.nan))
        return dict.fromkeys(layers, nothing)
    targets = values[np.stack(orders, 1)]  # (n, 1 + permutations, q)
    splits = list(held_out(unit, folds, generator))
    found = {}
    for name, x in track(layers.items(), "Probing layers", long=n * len(layers) > 5000):
        scores = _skill(x, targets, splits, seed)
        found[name] = PermutationTest(float(scores[0]), permutation_p_value(scores[0], scores[1:]), scores[1:])
    return found


def held_out(unit: NDArray[np.intp], folds: int, generator: np.random.Generator) -> Iterator[NDArray[np.bool_]]:
    """Masks of the test rows of each fold; all rows of a unit lie in one fold."""
    count = int(unit.max()) + 1
    if not 2 <= folds <= count:
        raise InputError(f"folds must be between 2 and the number of units, {count}; got {folds}.")
    fold = generator.permutation(np.arange(count) % folds)
    for k in range(folds):
        yield fold[unit] == k


def _skill(x: Floats, targets: Floats, splits: list[NDArray[np.bool_]], seed: int) -> Floats:
    """1 - squared error / variance on held-out rows, for each of the m targets (n, m, q): (m,)."""
    _, m, q = targets.shape
    predicted = np.empty_like(targets)
    for test in splits:
        model = _probe(x[~test], seed)
        model.fit(x[~test], targets[~test].reshape(-1, m * q))
        predicted[test] = model.predict(x[test]).reshape(-1, m, q)
    return np.asarray(1 - ((targets - predicted) ** 2).sum((0, 2)) / (targets**2).sum((0, 2)))


def _probe(x: Floats, seed: int) -> Any:
    """Scaling, radial functions as wide as the data, and a ridge that picks its penalty for each target."""
    kernels = need("sklearn.kernel_approximation", "study", "The probe of layers")
    linear = need("sklearn.linear_model", "study", "The probe of layers")
    pipeline = need("sklearn.pipeline", "study", "The probe of layers")
    scaling = need("sklearn.preprocessing", "study", "The probe of layers")
    columns = int((x.max(0) > x.min(0)).sum())  # a standardized column adds 2 to the mean squared distance
    kernel = kernels.Nystroem(gamma=1 / (2 * max(columns, 1)), n_components=min(_CENTRES, len(x)), random_state=seed)
    ridge = linear.RidgeCV(_ALPHAS, alpha_per_target=True)
    return pipeline.make_pipeline(scaling.StandardScaler(), kernel, ridge)

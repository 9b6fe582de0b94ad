"""Does removing the confounder put it in? The shuffled-features check of Hamdan et al. (2023)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmdn.errors import InputError
from rmdn.metrics._bases import Variable
from rmdn.metrics._inputs import array, at_least, groups, need
from rmdn.metrics.probe import held_out
from rmdn.metrics.resampling import permutation_p_value
from rmdn.progress import track

Floats = NDArray[np.float64]
Remove = Callable[[Floats, Floats, Floats, Floats], tuple[Floats, Floats]]


class Leakage(NamedTuple):
    """Scores of predicting the label from features as they are and shuffled, with and without removal."""

    raw: float
    removed: float
    shuffled_raw: Floats  # (shuffles,)
    shuffled_removed: Floats  # (shuffles,)
    p_value: float  # of the mean shuffled score after removal among those before


def leakage_check(
    features: Any,
    labels: Any,
    confounders: Any,
    *,
    remove: Remove | None = None,
    units: Any = None,
    folds: int = 5,
    shuffles: int = 20,
    seed: int = 0,
) -> Leakage:
    """Can labels be predicted from features that hold nothing, once the confounder was removed from them?

    Every feature column (n, p) is shuffled, so that it knows neither label nor confounder. A random forest,
    cross-validated over `units`, then predicts the label before and after `remove(train features, train
    confounders, test features, test confounders)` (linear regression if not given), fitted on training rows.
    A small p-value: removal itself put the confounder into the features. Scores are balanced accuracy for
    classes and R2 for numbers.

    It assumes that the confounder tells of the label, else there is nothing to leak. It cannot show
    leakage that only another model than a forest would use, nor what a network does with its own layers
    inside.
    """
    label = Variable(labels, "labels")
    if len(label.columns) > 1:
        raise InputError(f"labels must be one value a row; got {len(label.columns)} columns.")
    x = array(features, "features", label.n)
    confounder = array(confounders, "confounders", label.n)
    unit = np.arange(label.n) if units is None else groups(units, "units", label.n)[0]
    generator = np.random.default_rng(seed)
    splits = list(held_out(unit, folds, generator))
    remove = remove or _linear_removal

    def scores(columns: Floats) -> tuple[float, float]:
        removed = [remove(columns[~test], confounder[~test], columns[test], confounder[test]) for test in splits]
        plain = [(columns[~test], columns[test]) for test in splits]
        return _score(plain, splits, label, seed), _score(removed, splits, label, seed)

    raw, cleaned = scores(x)
    rounds = range(at_least(shuffles, 2, "shuffles"))
    pairs = [scores(generator.permuted(x, axis=0)) for _ in track(rounds, "Shuffled-features check")]
    before, after = np.array(pairs).T
    return Leakage(raw, cleaned, before, after, permutation_p_value(float(after.mean()), before))


def _score(parts: list[tuple[Floats, Floats]], splits: list[NDArray[np.bool_]], label: Variable, seed: int) -> float:
    """Cross-validated balanced accuracy, or R2, of a random forest."""
    ensemble = need("sklearn.ensemble", "study", "The leakage check")
    classes, truth = label.columns[0]
    kind = ensemble.RandomForestClassifier if classes else ensemble.RandomForestRegressor
    predicted = np.empty(label.n)
    for (train, rest), test in zip(parts, splits, strict=True):
        model = kind(50, min_samples_leaf=3, random_state=seed)
        predicted[test] = model.fit(train, truth[~test]).predict(rest)
    if classes:
        return float(np.mean([(predicted[truth == k] == k).mean() for k in np.unique(truth)]))
    spread = ((truth - truth.mean()) ** 2).sum()
    return float(1 - ((truth - predicted) ** 2).sum() / spread)


def _linear_removal(
    train: Floats, train_confounders: Floats, test: Floats, test_confounders: Floats
) -> tuple[Floats, Floats]:
    """Residuals of a linear regression fitted on the training rows."""
    centre = train_confounders.mean(0)
    beta = np.linalg.pinv(train_confounders - centre) @ (train - train.mean(0))
    return train - (train_confounders - centre) @ beta, test - (test_confounders - centre) @ beta

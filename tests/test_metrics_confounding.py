"""Confounder tests: exactness, size, power; probe, leakage and variance shares on known answers."""

import numpy as np
import pytest
import torch

from rmdn.errors import InputError, SettingError
from rmdn.metrics import (
    confounder_curve,
    full_confounder_test,
    leakage_check,
    partial_confounder_test,
    probe_layers,
    variance_shares,
)
from rmdn.metrics._bases import Variable
from rmdn.metrics.confounding import _conditional_orders
from rmdn.metrics.resampling import Permutations


def draw(kind, seed, n=60, effect=0.0):
    """Prediction, label, confounder; with effect 0 the prediction depends on the label alone."""
    rng = np.random.default_rng(seed)
    if kind == "classes":
        label = rng.integers(0, 2, n)
        confounder = 1.5 * label + rng.normal(size=n)
    elif kind == "numbers":
        label = rng.normal(size=n)
        confounder = label + rng.normal(size=n)
    elif kind == "curve":
        label = rng.normal(size=n)
        confounder = label**2 + rng.normal(size=n)
    else:  # a confounder of classes, given numbers
        label = rng.normal(size=n)
        confounder = (label + rng.logistic(size=n) > 0).astype(int)
    prediction = (label**2 if kind == "curve" else 2 * label) + rng.exponential(size=n) + effect * confounder
    return prediction, label, confounder


def rejections(kind, runs, permutations, **options):
    found = [
        partial_confounder_test(*draw(kind, seed, **options), permutations=permutations, seed=seed).p_value
        for seed in range(runs)
    ]
    return np.mean(np.array(found) <= 0.1)


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_partial_test_has_its_size(kind):
    assert rejections(kind, 150, 19) <= 0.1 + 3.5 * np.sqrt(0.09 / 150)


@pytest.mark.parametrize("kind", ["classes", "numbers", "curve", "indicator"])
def test_partial_test_has_power(kind):
    assert rejections(kind, 20, 19, n=100, effect=1.5) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("n", [50, 200])
@pytest.mark.parametrize("kind", ["classes", "numbers", "curve", "indicator"])
def test_size_at_length(kind, n):
    runs = 1000
    assert rejections(kind, runs, 39, n=n) <= 0.1 + 4 * np.sqrt(0.09 / runs)


def test_a_marginal_test_would_be_wrong_here():
    """Confounder and prediction correlate through the label alone: that must not count."""
    prediction, label, confounder = draw("classes", 0, n=400)
    assert np.corrcoef(prediction, confounder)[0, 1] > 0.3
    assert partial_confounder_test(prediction, label, confounder, permutations=99).p_value > 0.05


def test_full_test_tells_own_signal_from_pure_confounding():
    rng = np.random.default_rng(0)
    c = rng.normal(size=300)
    label = (c + rng.logistic(size=300) > 0).astype(int)
    only_confounder = 2 * c + rng.normal(size=300)
    assert full_confounder_test(only_confounder, label, c, permutations=99).p_value > 0.05
    assert full_confounder_test(only_confounder + label, label, c, permutations=99).p_value == 0.01


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_full_test_has_its_size(kind):
    p_values = []
    for seed in range(120):
        rng = np.random.default_rng(seed)
        c = rng.normal(size=60)
        label = (c + rng.logistic(size=60) > 0).astype(int) if kind == "classes" else c + rng.normal(size=60)
        p_values.append(full_confounder_test(2 * c + rng.normal(size=60), label, c, permutations=19).p_value)
    assert np.mean(np.array(p_values) <= 0.1) <= 0.1 + 3.5 * np.sqrt(0.09 / 120)


def test_value_is_the_partial_share_of_variance():
    """Against ordinary least squares: (R2 of both - R2 of the label) / (1 - R2 of the label), at one pass."""
    rng = np.random.default_rng(0)
    label = np.repeat([0, 1], 100)
    confounder = np.repeat([[0, 1, 2, 3]], 50, axis=0).reshape(-1)[rng.permutation(200)]
    prediction = label + 0.3 * (confounder == 2) + rng.normal(size=200)
    left = prediction - np.where(label == 1, prediction[label == 1].mean(), prediction[label == 0].mean())
    means = np.array([left[confounder == k].mean() for k in range(4)])
    expected = (means[confounder] ** 2).sum() / (left**2).sum()
    assert partial_confounder_test(prediction, label, confounder, permutations=5).value == pytest.approx(expected)


def test_exchange_within_classes_never_crosses_them():
    label = np.repeat([0, 1, 2], [10, 20, 30])
    generator = np.random.default_rng(0)
    taken = Permutations(60, None, label).draw(generator)
    assert sorted(taken) == list(range(60))
    np.testing.assert_array_equal(label[taken], label)


def test_conditional_orders_keep_the_relation():
    rng = np.random.default_rng(0)
    given = rng.normal(size=400)
    moved = 2 * given**2 + 0.5 * rng.normal(size=400)
    orders = _conditional_orders(Variable(moved, "c"), Variable(given, "y"), Permutations(400), 20, rng)
    assert (np.sort(orders, axis=1) == np.arange(400)).all()
    kept = [np.corrcoef(moved[order], given**2)[0, 1] for order in orders]
    assert np.mean(kept) == pytest.approx(np.corrcoef(moved, given**2)[0, 1], abs=0.02)
    assert np.mean(orders == np.arange(400)) < 0.1  # and yet moved


def test_whole_subjects_are_exchanged():
    """A trait of the subject that has nothing to do with the confounder, seen five times each."""
    p_free, p_whole = [], []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        label = np.repeat(rng.normal(size=20), 5)
        confounder, trait = (np.repeat(rng.normal(size=20), 5) + 0.1 * rng.normal(size=100) for _ in range(2))
        arguments = label + trait, label, confounder
        p_free.append(partial_confounder_test(*arguments, permutations=19).p_value)
        p_whole.append(partial_confounder_test(*arguments, units=np.arange(100) // 5, permutations=19).p_value)
    assert np.mean(np.array(p_free) <= 0.1) > 0.5
    assert np.mean(np.array(p_whole) <= 0.1) <= 0.1 + 3.5 * np.sqrt(0.09 / 30)


def test_several_confounders_classes_and_tensors():
    rng = np.random.default_rng(0)
    label = np.array(["AD", "CN", "MCI"])[rng.integers(0, 3, 150)]
    confounders = torch.tensor(np.stack([rng.normal(size=150), rng.integers(0, 2, 150)], 1))
    scores = torch.randn(150, 3, generator=torch.Generator().manual_seed(0)) + confounders[:, 1:]
    assert partial_confounder_test(scores, label, confounders, permutations=39).p_value < 0.05
    predicted = np.where(confounders[:, 0] > 0, "AD", "CN")
    assert partial_confounder_test(predicted, label, confounders, permutations=39).p_value < 0.05
    age = rng.normal(size=150)
    assert partial_confounder_test(confounders[:, 0], age, confounders, permutations=39).p_value < 0.05


def test_nothing_to_test_is_nan():
    label, confounder = np.arange(10) % 2, np.arange(10.0) ** 1.5
    for arguments in (
        (np.ones(10), label, confounder),
        (label, label, confounder),
        (confounder, label, np.ones(10)),
    ):
        result = partial_confounder_test(*arguments, permutations=9)
        assert np.isnan(result.value)
        assert np.isnan(result.p_value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((np.arange(3), np.arange(3), np.arange(3)), "at least 4"),
        ((np.arange(5.0), np.arange(4), np.arange(5)), "labels has 4 rows, expected 5"),
        ((np.array([0.5, np.nan, 1, 2, 3]), [0, 1, 0, 1, 0], np.arange(5)), "predictions has 1 NaN"),
    ],
)
def test_bad_input_is_named(arguments, words):
    with pytest.raises(InputError, match=words):
        partial_confounder_test(*arguments)


def test_permutations_must_be_positive():
    with pytest.raises(SettingError, match="permutations"):
        partial_confounder_test(*draw("classes", 0), permutations=0)


def test_probe_finds_curves_and_respects_the_label():
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 240)
    age = 2.0 * label + rng.normal(size=240)
    layers = {
        "curve": np.c_[rng.choice([-1, 1], 240) * np.sqrt(age - age.min()), rng.normal(size=240)],  # no line sees it
        "label": np.c_[label + 0.1 * rng.normal(size=240), rng.normal(size=240)],
        "noise": torch.randn(240, 2, 3, generator=torch.Generator().manual_seed(0)),
    }
    plain = probe_layers(layers, age, permutations=39)
    assert plain["curve"].value > 0.2
    assert plain["curve"].p_value < 0.05
    assert plain["label"].p_value < 0.05
    assert plain["noise"].value < 0.05
    assert plain["noise"].p_value > 0.05
    given = probe_layers(layers, age, labels=label, permutations=39)
    assert given["label"].p_value > 0.05
    assert given["curve"].p_value < 0.05
    sites = probe_layers(
        {"a": np.eye(3)[label] + 0.1 * rng.normal(size=(240, 3))}, np.array(["x", "y"])[label], permutations=9
    )
    assert sites["a"].value > 0.8


def test_probe_by_subject_cannot_know_its_subjects():
    rng = np.random.default_rng(0)
    subject = np.repeat(np.arange(40), 5)
    face, age = rng.normal(size=(40, 6)).repeat(5, axis=0), rng.normal(size=40).repeat(5)
    assert probe_layers({"a": face}, age, permutations=1)["a"].value > 0.5
    assert probe_layers({"a": face}, age, units=subject, permutations=1)["a"].value < 0.1


def test_probe_without_an_answer():
    x = np.random.default_rng(0).normal(size=(20, 3))
    assert np.isnan(probe_layers({"a": x}, np.ones(20), permutations=2)["a"].value)
    label = np.arange(20) % 2
    assert np.isnan(probe_layers({"a": x}, label, labels=label, permutations=2)["a"].p_value)
    assert np.isfinite(probe_layers({"a": np.ones((20, 3))}, x[:, 0], permutations=2)["a"].value)
    with pytest.raises(InputError, match="empty"):
        probe_layers({}, label)
    with pytest.raises(InputError, match="folds"):
        probe_layers({"a": x}, x[:, 0], units=np.arange(20) // 10)
    with pytest.raises(InputError, match=r"features\['a'\] has 20 rows, expected 5"):
        probe_layers({"a": x}, np.arange(5.0))


def test_leakage_of_linear_removal_from_few_valued_features():
    """Hamdan's example: features of few values take the confounder in when it is subtracted."""
    rng = np.random.default_rng(0)
    label = np.repeat([0, 1], 100)
    confounder = label + 0.3 * rng.normal(size=200)
    features = (rng.random((200, 2)) < 0.1 + 0.2 * label[:, None]).astype(float)
    found = leakage_check(features, label, confounder, shuffles=4, folds=3)
    assert found.p_value == 0.2
    assert found.shuffled_removed.mean() > found.shuffled_raw.mean() + 0.1
    assert abs(found.shuffled_raw.mean() - 0.5) < 0.1


def test_no_leakage_without_removal_and_for_numbers():
    rng = np.random.default_rng(1)
    age = rng.normal(size=90)
    found = leakage_check(
        rng.normal(size=(90, 2)), age, age[:, None], shuffles=2, folds=2, remove=lambda a, c, b, d: (a, b)
    )
    np.testing.assert_array_equal(found.shuffled_raw, found.shuffled_removed)
    assert found.p_value >= 2 / 3
    assert found.raw < 0.2


def test_variance_shares_equal_regression():
    from sklearn.linear_model import LinearRegression

    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 300)
    c = label + rng.normal(size=300)
    prediction = label + 0.5 * c + rng.normal(size=300)
    cubic = np.c_[c, c**2, c**3]

    def explained(x):
        return LinearRegression().fit(x, prediction).score(x, prediction)

    full = explained(np.c_[label, cubic])
    got = variance_shares(prediction, label, c, resamples=50)
    assert got.label.value == pytest.approx(full - explained(cubic))
    assert got.confounder.value == pytest.approx(full - explained(label[:, None]))
    assert got.neither.value == pytest.approx(1 - full)
    assert sum(part.value for part in got) == pytest.approx(1)
    assert all(part.low < part.value < part.high for part in (got.label, got.neither))


def test_variance_shares_at_the_edges():
    label, c = np.arange(40) % 2, np.random.default_rng(0).normal(size=40)
    assert variance_shares(label, label, c, resamples=5).neither.value == pytest.approx(0, abs=1e-9)
    assert np.isnan(variance_shares(np.ones(40), label, c, resamples=5).label.value)
    one = variance_shares(c, label, np.ones(40), resamples=5)
    assert one.confounder.value == pytest.approx(0)
    twice = variance_shares(
        torch.tensor(c).repeat(2),
        np.tile(label, 2),
        np.tile(c, 2),
        units=np.tile(np.arange(40), 2),
        resamples=20,
    )
    assert twice.both == pytest.approx(variance_shares(c, label, c, resamples=20).both)


def test_curve_of_a_known_model():
    c = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    image = torch.arange(50.0)
    before = c.clone()
    curve = confounder_curve(lambda c: torch.stack([image + 3 * c[:, 1], image], 1), c, 1, [0, 1, 2])
    np.testing.assert_allclose(curve.mean, [[24.5, 24.5], [27.5, 24.5], [30.5, 24.5]])
    assert curve.reach == pytest.approx(6)
    assert (curve.low[:, 1] < 3).all()
    torch.testing.assert_close(c, before, rtol=0, atol=0)
    flat = confounder_curve(lambda c: np.ones(9), np.arange(9.0))
    assert flat.reach == 0
    assert len(flat.values) <= 21
    with pytest.raises(InputError, match="column 2"):
        confounder_curve(lambda c: image, c, 2)
    with pytest.raises(InputError, match="1 rows for 50"):
        confounder_curve(lambda c: image[:1], c)


def test_a_table_of_mixed_columns_keeps_numbers_as_numbers():
    import pandas as pd

    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.normal(size=80), "sex": rng.choice(["f", "m"], 80)})
    kinds = [classes for classes, _ in Variable(table, "confounders").columns]
    assert kinds == [False, True]
    label = rng.choice(["AD", "CN"], 80)
    assert partial_confounder_test(table["age"] ** 2, label, table, permutations=39).p_value < 0.05


def test_a_subject_whose_label_changes_cannot_move_within_labels():
    prediction, _, confounder = draw("classes", 0, n=20)
    with pytest.raises(InputError, match="share one level"):
        partial_confounder_test(prediction, np.arange(20) % 2, confounder, units=np.arange(20) // 2)

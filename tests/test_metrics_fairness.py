"""Rates against scikit-learn; intervals against binomial theory."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rmdn.errors import InputError, SettingError
from rmdn.metrics import class_rates


@settings(max_examples=30, deadline=None)
@given(n=st.integers(20, 60), seed=st.integers(0, 9999))
def test_rates_equal_scikit_learn(n, seed):
    from sklearn.metrics import accuracy_score, balanced_accuracy_score, recall_score

    rng = np.random.default_rng(seed)
    labels, predictions = np.r_[0, 1, rng.integers(0, 2, n)], np.r_[1, 0, rng.integers(0, 2, n)]
    got = class_rates(predictions, labels, best=0.75, resamples=5)
    assert got.accuracy.value == pytest.approx(accuracy_score(labels, predictions))
    balanced = balanced_accuracy_score(labels, predictions)
    assert got.balanced_accuracy.value == pytest.approx(balanced)
    assert got.distance_to_best.value == pytest.approx(abs(balanced - 0.75))
    hit, miss = (recall_score(labels, predictions, pos_label=k) for k in (1, 0))
    assert (got.TPR.value, got.TNR.value, got.difference.value) == pytest.approx((hit, miss, hit - miss))


def test_many_classes_and_names():
    from sklearn.metrics import balanced_accuracy_score

    rng = np.random.default_rng(0)
    labels, predictions = rng.choice(list("abcd"), (2, 200))
    got = class_rates(predictions, labels, resamples=5)
    assert got.balanced_accuracy.value == pytest.approx(balanced_accuracy_score(labels, predictions))
    assert np.isnan(got.TPR).all()
    assert np.isnan(got.distance_to_best).all()


def test_the_positive_class_can_be_chosen():
    labels, predictions = ["AD", "AD", "CN", "CN"], ["AD", "CN", "CN", "CN"]
    assert class_rates(predictions, labels, positive="AD", resamples=5).TPR.value == 0.5
    assert class_rates(predictions, labels, resamples=5).TPR.value == 1.0
    tensors = torch.tensor([1, 0, 0, 0]), torch.tensor([1, 1, 0, 0])
    assert class_rates(*tensors, positive=torch.tensor(1), resamples=5).TPR.value == 0.5


def test_interval_is_the_binomial_one():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 500)
    predictions = np.where(rng.random(1000) < 0.8, labels, 1 - labels)
    got = class_rates(predictions, labels)
    p = got.TPR.value
    assert got.TPR.high - got.TPR.low == pytest.approx(2 * 1.96 * np.sqrt(p * (1 - p) / 500), rel=0.12)
    assert got.TPR.low < p < got.TPR.high
    narrow = class_rates(predictions, labels, confidence=0.5)
    assert narrow.TPR.high - narrow.TPR.low < 0.5 * (got.TPR.high - got.TPR.low)


def test_units_are_drawn_whole():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 100)
    predictions = np.where(rng.random(200) < 0.7, labels, 1 - labels)
    once = class_rates(predictions, labels).balanced_accuracy
    many = class_rates(predictions.repeat(20), labels.repeat(20), units=np.arange(200).repeat(20)).balanced_accuracy
    assert many.high - many.low == pytest.approx(once.high - once.low, rel=0.1)


def test_an_absent_class_is_nan_not_a_number():
    got = class_rates([0, 1, 1, 0], [1, 1, 1, 1], resamples=10)
    assert got.TPR.value == 0.5
    assert np.isnan(got.TNR.value)
    assert np.isnan(got.difference.low)
    assert got.balanced_accuracy.value == 0.5
    assert class_rates([1, 1], [1, 1], resamples=2).accuracy.value == 1


def test_a_class_of_one_member():
    got = class_rates([0, 0, 0, 1], [0, 0, 0, 1], resamples=200)
    assert got.TPR == (1, 1, 1)  # the draws without that member have no TPR, and are left out


@pytest.mark.parametrize(
    ("predictions", "labels", "options", "error", "words"),
    [
        ([0, 1], [0, 1, 1], {}, InputError, "2 rows, expected 3"),
        ([], [], {}, InputError, "no labels"),
        (np.linspace(0, 1, 50), np.arange(50) % 2, {}, InputError, "argmax"),
        (np.zeros((4, 2)), np.arange(4) % 2, {}, InputError, "one value a row"),
        ([0, 1], ["a", "b"], {}, InputError, "do not match"),
        ([0, 1], [0, np.nan], {}, InputError, "NaN or infinite in row 1"),
        ([0, 1], [0, 1], {"positive": 2}, SettingError, "not a class"),
        ([0, 1], [0, 1], {"confidence": 1}, SettingError, "confidence"),
        ([0, 1], [0, 1], {"resamples": 0}, SettingError, "resamples"),
    ],
)
def test_bad_input_is_named(predictions, labels, options, error, words):
    with pytest.raises(error, match=words):
        class_rates(predictions, labels, **options)

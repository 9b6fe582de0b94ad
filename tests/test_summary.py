"""Cells, verdicts and warnings of the tables, against numbers worked out by hand."""

import math

import numpy as np
import pytest

from rmdn.errors import InputError
from rmdn.experiments import summary
from rmdn.experiments.summary import cell, claim, distances, missing
from rmdn.experiments.summary import tested as note_of
from rmdn.metrics import anova_tukey, kruskal_conover

SCORES = {"ours": [0.02, 0.03, 0.01], "A": [0.20, 0.22, 0.25], "B": [0.12, 0.13, 0.11], "C": [0.5]}


@pytest.mark.parametrize(
    ("values", "mean", "spread"),
    [
        ([1.0, 2.0, 6.0], 3.0, math.sqrt(7)),  # the sample's, over n - 1
        ([2.0], 2.0, None),
        ([1.0, None, math.nan, 3.0, math.inf], 2.0, math.sqrt(2)),
        ([], None, None),
        ([None], None, None),
    ],
)
def test_a_cell_is_mean_and_standard_deviation(values, mean, spread):
    made = cell(values, 0.5, 0.1, digits=2)
    assert (made.ours, made.spread) == (mean, spread and pytest.approx(spread))
    assert (made.published, made.published_spread, made.digits) == (0.5, 0.1, 2)


def test_distances_are_the_papers():
    """Best .8 and .6; after stage 1 .7 and .9; after stage 2 .5 and .65."""
    found = distances({"R": [[0.7, 0.9], [0.5, 0.65]], "best": [0.8, 0.6]})
    assert found.ACCd == pytest.approx((0.3 + 0.05) / 2)
    assert found.BWTd == pytest.approx(0.3 - 0.1)
    assert found.FWTd == pytest.approx(0.3)


def test_dependences_and_recalls_are_arrays_with_nan_where_nothing_is():
    record = {
        "dcor2": [[{"0": 0.1, "1": 0.3}, {"0": 0.2}], [{"0": 0.4, "1": None}, {"0": 0.0, "1": 0.5}]],
        "recall": [[[0.5, None], [1.0, 0.0]], [[0.25, 0.75], [1.0, 1.0]]],
    }
    expected = [[[0.1, 0.3], [0.2, np.nan]], [[0.4, np.nan], [0.0, 0.5]]]
    np.testing.assert_array_equal(summary.dependences(record), expected)
    assert summary.mean_dependence(record) == pytest.approx((0.4 + 0.0 + 0.5) / 3)
    assert summary.mean_dependence(record, 0) == pytest.approx((0.1 + 0.3 + 0.2) / 3)
    np.testing.assert_array_equal(summary.recalls(record), [[[0.5, np.nan], [1.0, 0.0]], [[0.25, 0.75], [1.0, 1.0]]])


def test_classes_come_in_the_order_of_numbers():
    record = {"dcor2": [[{str(k): k / 100 for k in (10, 2, 1)}]]}
    np.testing.assert_array_equal(summary.dependences(record), [[[0.01, 0.02, 0.10]]])


@pytest.mark.parametrize("test", [kruskal_conover, anova_tukey])
def test_a_note_gives_the_tests_numbers_of_ours_against_each(test):
    enough = {name: SCORES[name] for name in ("ours", "A", "B")}
    found = test(enough)
    note = note_of(test, "Test", SCORES, "ours")
    assert note.startswith(f"Test: statistic {found.statistic:.3g}, p = {found.p_value:.2g}; ours against ")
    for pair, p in found.pairs.items():
        other = next((name for name in pair if name != "ours"), "")
        assert (f"{other} p = {p:.2g}" in note) == ("ours" in pair)
    assert "C p" not in note  # one seed


def test_a_note_says_why_there_is_no_test():
    assert "needs two methods with two seeds" in note_of(kruskal_conover, "Test", {"ours": [1, 2], "A": [1]}, "ours")
    assert "needs two methods with two seeds" in note_of(kruskal_conover, "Test", {"A": [1, 2], "B": [3, 4]}, "ours")

    def refuses(scores):
        raise InputError("All values are equal.")

    assert note_of(refuses, "Test", SCORES, "ours") == "Test: All values are equal."


@pytest.mark.parametrize(
    ("holds", "seeds", "verdict", "why"),
    [
        (True, 3, "holds", "because (3 seeds)"),
        (False, 2, "does not hold", "because (2 seeds)"),
        (True, 1, "cannot tell", "because (1 seed)"),
        (None, 5, "cannot tell", "because (5 seeds)"),
        (False, 0, "cannot tell", "because (0 seeds)"),
    ],
)
def test_a_claim_needs_numbers_and_two_seeds(holds, seeds, verdict, why):
    made = claim("Ours is best", holds, "because", seeds)
    assert (made.verdict, made.why) == (verdict, why)


def test_warnings_count_what_is_missing_stale_and_not_real():
    there = {
        "a": {"stand_in": ""},
        "b": {"stand_in": "Simulated.", "stale": True},
        "c": None,
        "d": {"stand_in": "Simulated."},
    }
    assert missing(list(there), there.get) == [
        "1 of 4 runs are missing.",
        "1 of 4 runs were made by an earlier version of the code.",
        "Simulated.",
    ]
    assert missing(["a"], there.get) == []
    assert summary.records(list(there), there.get) == [there["a"], there["b"], there["d"]]

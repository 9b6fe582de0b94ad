import networkx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmdn.data.folds import folds, linked
from rmdn.data.stages import (
    HAM10000_AGES,
    HAM10000_SHARES,
    by_arrival,
    by_bins,
    by_column,
    by_shares,
    everything,
    quotas,
)
from rmdn.errors import InputError, SettingError


def test_published_percentages_sum_to_one_hundred_both_ways():
    np.testing.assert_allclose(np.sum(HAM10000_SHARES, axis=0), 1)
    np.testing.assert_allclose(np.sum(HAM10000_SHARES, axis=1), 1)


def test_shares_use_each_of_the_10015_images_once():
    rng = np.random.default_rng(0)
    age = rng.choice(np.arange(0, 90, 5.0), 10015)
    age[rng.permutation(10015)[:57]] = np.nan
    stages, names = by_shares("age", HAM10000_AGES, HAM10000_SHARES)(pd.DataFrame({"age": age}))
    assert len(names) == 5
    assert set(stages.tolist()) == {0, 1, 2, 3, 4}
    for low, high, shares in zip((0, 20, 40, 50, 60), (20, 40, 50, 60, 999), HAM10000_SHARES, strict=True):
        here = (age >= low) & (age < high)
        counts = np.bincount(stages[here], minlength=5)
        assert counts.sum() == here.sum()
        assert np.abs(counts - here.sum() * np.array(shares)).max() < 1
    assert sorted(np.bincount(stages[np.isnan(age)], minlength=5)) == [11, 11, 11, 12, 12]


def test_shares_are_reproducible_and_differ_by_seed():
    rows = pd.DataFrame({"age": np.arange(90.0)})
    first, again, other = (by_shares("age", HAM10000_AGES, HAM10000_SHARES, seed)(rows)[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_bins_have_the_names_of_the_paper():
    rows = pd.DataFrame({"year": [2006, 2010, 2011, 2013, 2014, 2017]})
    stages, names = by_bins("year", (2011, 2012, 2013, 2014), whole_numbers=True)(rows)
    assert stages.tolist() == [0, 0, 1, 3, 4, 4]
    assert names == ("<=2010", "2011", "2012", "2013", ">=2014")
    assert by_bins("year", (20, 40))(rows)[1] == ("<20", "[20, 40)", ">=40")


def test_column_order():
    rows = pd.DataFrame({"wave": ["10", "2", "1", "2"], "phase": ["late", "early", "late", "early"]})
    assert by_column("wave")(rows)[1] == ("1", "2", "10")
    stages, names = by_column("phase", order=("early", "late"))(rows)
    assert (stages.tolist(), names) == ([1, 0, 1, 0], ("early", "late"))
    with pytest.raises(InputError, match="no stage in 2 rows: rows 0, 2"):
        by_column("phase", order=("early",))(rows)


def test_arrival_takes_dates_and_numbers_and_keeps_ties_together():
    dates = pd.DataFrame({"when": ["2020-05-01", "2019-01-01", "2021-03-04", "2020-05-01"]})
    assert by_arrival("when", 2)(dates)[0].tolist() == [0, 0, 1, 0]
    assert by_arrival("when", 3)(pd.DataFrame({"when": [5, 1, 3, 2, 4, 6]}))[0].tolist() == [2, 0, 1, 0, 1, 2]
    with pytest.raises(InputError, match="neither numbers nor dates"):
        by_arrival("when", 2)(pd.DataFrame({"when": ["spring", "autumn"]}))


def test_everything_is_one_stage():
    assert everything()(pd.DataFrame({"a": [1, 2]}))[0].tolist() == [0, 0]


def test_clear_errors():
    rows = pd.DataFrame({"age": [1.0, np.nan]})
    with pytest.raises(InputError, match="gives no stage in 1 rows: rows 1"):
        by_bins("age", (20,))(rows)
    with pytest.raises(InputError, match="missing='spread'"):
        by_shares("age", (20,), [[0.5, 0.5], [0.1, 0.9]], missing="error")(rows)
    with pytest.raises(SettingError, match="sum to 1"):
        by_shares("age", (20,), [[0.5, 0.4], [0.1, 0.9]])
    with pytest.raises(SettingError, match="rise"):
        by_bins("age", (40, 20))
    with pytest.raises(SettingError, match=r"5 folds of 2 groups of rows that share id"):
        folds(pd.DataFrame({"id": ["a"] * 5 + ["b"] * 5}), by=["id"])


@given(st.integers(0, 500), st.lists(st.floats(0.01, 1), min_size=1, max_size=6))
def test_quotas_sum_and_are_nearest(n, shares):
    counts = quotas(n, np.array(shares))
    assert counts.sum() == n
    assert np.abs(counts - n * np.array(shares) / np.sum(shares)).max() < 1


ids = st.lists(st.tuples(*[st.sampled_from(["a", "b", "c", "d", "n/a"])] * 2), min_size=1, max_size=12)


@settings(deadline=None, max_examples=40)
@given(ids)
def test_linked_rows_are_the_connected_components(cells):
    rows = pd.DataFrame(cells, columns=["subject", "site"])
    graph = networkx.Graph()
    for row, pair in enumerate(cells):
        graph.add_node(row)
        graph.add_edges_from((row, (k, cell)) for k, cell in enumerate(pair) if cell != "n/a")
    expected = {frozenset(node for node in part if isinstance(node, int)) for part in networkx.connected_components(graph)}
    found = linked(rows, ["subject", "site"])
    assert {frozenset(np.flatnonzero(found == group).tolist()) for group in set(found)} == expected


def test_folds_split_no_subject_and_no_site_and_are_alike_in_sex():
    rng = np.random.default_rng(0)
    subject = rng.integers(0, 400, 1000)
    site = np.array([f"site{s % 22}" for s in subject])
    sex = np.where(subject % 2 == rng.integers(0, 2, 400)[subject] % 2, "M", "F")
    rows = pd.DataFrame({"subject": subject, "site": site, "sex": sex})
    fold = folds(rows, by=["subject", "site"], stratify=["sex"])
    for name in ("subject", "site"):
        assert (rows.assign(fold=fold).groupby(name)["fold"].nunique() == 1).all()
    shares = [np.mean(sex[fold == k] == "M") for k in range(5)]
    assert max(shares) - min(shares) < 0.15  # 22 sites are few to balance by
    assert np.bincount(fold).min() > 120
    fold = folds(rows, by=["subject"], stratify=["sex"])
    shares = [np.mean(sex[fold == k] == "M") for k in range(5)]
    assert max(shares) - min(shares) < 0.02


def test_folds_without_groups_are_stratified_exactly_and_follow_the_seed():
    rows = pd.DataFrame({"label": ["a"] * 80 + ["b"] * 20})
    fold = folds(rows, stratify=["label"], seed=3)
    assert [int((fold[80:] == k).sum()) for k in range(5)] == [4] * 5
    np.testing.assert_array_equal(fold, folds(rows, stratify=["label"], seed=3))
    assert (fold != folds(rows, stratify=["label"], seed=4)).any()


def test_folds_live_with_rare_strata():
    rows = pd.DataFrame({"label": [*"abcdefgh"]})
    assert np.bincount(folds(rows, stratify=["label"], number=4)).tolist() == [2] * 4

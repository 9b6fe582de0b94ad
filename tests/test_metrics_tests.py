"""Comparisons of methods against statsmodels, scipy and the formulas."""

import matplotlib
import numpy as np
import pytest

from rmdn.errors import InputError
from rmdn.metrics import anova_tukey, critical_difference_picture, kruskal_conover, mean_interval

matplotlib.use("Agg")


@pytest.fixture
def scores():
    rng = np.random.default_rng(0)
    return {"plain": rng.normal(0, 1, 9), "MDN": rng.normal(1, 1, 9), "R-MDN": rng.normal(3, 1, 7)}


def test_anova_and_tukey_equal_statsmodels(scores):
    import pandas as pd
    from statsmodels.formula.api import ols
    from statsmodels.stats.anova import anova_lm
    from statsmodels.stats.multicomp import pairwise_tukeyhsd

    found = anova_tukey(scores)
    table = pd.DataFrame([(name, value) for name, values in scores.items() for value in values], columns=["m", "v"])
    expected = anova_lm(ols("v ~ m", table).fit()).iloc[0]
    assert (found.statistic, found.p_value) == pytest.approx((expected["F"], expected["PR(>F)"]))
    tukey = pairwise_tukeyhsd(table["v"], table["m"])
    names = list(tukey.groupsunique)
    order = [(b, a) for i, a in enumerate(names) for b in names[i + 1 :]]  # theirs are second minus first
    for pair, p, difference, ends in zip(order, tukey.pvalues, tukey.meandiffs, tukey.confint, strict=True):
        same = pair in found.pairs
        key = pair if same else pair[::-1]
        assert found.pairs[key] == pytest.approx(p, abs=1e-4)
        sign = 1 if same else -1
        assert found.differences[key].value == pytest.approx(sign * difference)
        assert sorted(found.differences[key][1:]) == pytest.approx(sorted(sign * ends), abs=1e-3)


def test_conover_equals_its_formula(scores):
    from scipy import stats

    found = kruskal_conover(scores)
    expected = stats.kruskal(*scores.values())
    assert (found.statistic, found.p_value) == pytest.approx((expected.statistic, expected.pvalue))
    everything = np.concatenate(list(scores.values()))
    N, k, ranks = len(everything), 3, stats.rankdata(everything)
    parts = np.split(ranks, np.cumsum([len(v) for v in scores.values()])[:-1])
    S2 = (np.sum(ranks**2) - N * (N + 1) ** 2 / 4) / (N - 1)
    D = (N - 1 - found.statistic) / (N - k)
    t = abs(parts[0].mean() - parts[1].mean()) / np.sqrt(S2 * D * (1 / len(parts[0]) + 1 / len(parts[1])))
    assert found.pairs["plain", "MDN"] == pytest.approx(min(1, 3 * 2 * stats.t.sf(t, N - k)))


def test_mean_interval_is_students():
    from scipy import stats

    runs = np.array([0.7, 0.72, 0.69, 0.75])
    expected = stats.t.interval(0.95, 3, runs.mean(), stats.sem(runs))
    assert mean_interval(runs)[1:] == pytest.approx(expected)
    assert mean_interval([0.5])[0] == 0.5
    assert np.isnan(mean_interval([0.5]).low)
    with pytest.raises(InputError, match="at least one"):
        mean_interval([])


def test_runs_without_spread():
    equal = {"a": [1, 1, 1], "b": [1, 1, 1]}
    assert np.isnan(anova_tukey(equal).p_value)
    assert np.isnan(kruskal_conover(equal).p_value)
    apart = {"a": [1, 1, 1], "b": [2, 2, 2], "c": [2, 2, 2]}
    found = kruskal_conover(apart)
    assert found.pairs == {("a", "b"): 0, ("a", "c"): 0, ("b", "c"): 1}


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ({"a": [1, 2]}, "two methods"),
        ({"a": [1, 2], "b": [1]}, r"\['b'\] have fewer"),
        ({"a": [1, 2], "b": [1, np.nan]}, r"scores\['b'\] has 1 NaN"),
    ],
)
def test_bad_input_is_named(scores, words):
    for test in (anova_tukey, kruskal_conover, critical_difference_picture):
        with pytest.raises(InputError, match=words):
            test(scores)


def test_picture_names_methods_with_their_ranks(scores):
    from matplotlib import pyplot
    from scipy import stats

    for larger in (True, False):
        axes = critical_difference_picture(scores, larger_is_better=larger)
        everything = np.concatenate(list(scores.values()))
        ranks = np.split(stats.rankdata(-everything if larger else everything), [9, 18])
        shown = " ".join(text.get_text() for text in axes.texts)
        for name, rank in zip(scores, ranks, strict=True):
            written = f"{rank.mean():.2g}"
            assert f"{name} ({written})" in shown or f"({written}) {name}" in shown
    pyplot.close("all")

"""Do methods differ? Tests over repeated runs, 95 % intervals, and the critical-difference picture.

Scores come as {method: values of its runs (seeds, folds)}.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmdn.errors import InputError
from rmdn.metrics._inputs import array, level, need
from rmdn.metrics.resampling import Interval

Floats = NDArray[np.float64]
Pair = tuple[str, str]


class Comparison(NamedTuple):
    """A test of all methods together, then of each pair; `differences` (Tukey) are first minus second."""

    statistic: float
    p_value: float
    pairs: dict[Pair, float]
    differences: dict[Pair, Interval]


def mean_interval(values: Any, confidence: float = 0.95) -> Interval:
    """Mean of runs (n,) with Student's t interval.

    It assumes independent runs that scatter about normally. It cannot show the spread
    between data sets, and folds that share training data make it too narrow.

    NaN ends for a single run.
    """
    runs = array(values, "values")[:, 0]
    if not len(runs):
        raise InputError("values is empty: give at least one run.")
    mean = float(runs.mean())
    level(confidence)
    if len(runs) == 1:
        return Interval(mean, float("nan"), float("nan"))
    stats = need("scipy.stats", "study", "An interval of a mean")
    reach = float(stats.t.ppf((1 + confidence) / 2, len(runs) - 1) * runs.std(ddof=1) / np.sqrt(len(runs)))
    return Interval(mean, mean - reach, mean + reach)


def anova_tukey(scores: Mapping[str, Any], confidence: float = 0.95) -> Comparison:
    """One-way analysis of variance over methods, and Tukey's honest significant differences of all pairs.

    It assumes independent, about normal runs with one spread for all methods. It cannot show
    that methods are equal, and its pairs mean little where the test of all together finds nothing.

    NaN where no run differs from its method's mean.
    """
    stats = need("scipy.stats", "study", "The analysis of variance")
    names, groups = _checked(scores)
    pairs = [(first, second) for i, first in enumerate(names) for second in names[i + 1 :]]
    if all(np.ptp(group) == 0 for group in groups):
        nothing = Interval(float("nan"), float("nan"), float("nan"))
        return Comparison(float("nan"), float("nan"), dict.fromkeys(pairs, float("nan")), dict.fromkeys(pairs, nothing))
    overall, tukey = stats.f_oneway(*groups), stats.tukey_hsd(*groups)
    ends = tukey.confidence_interval(level(confidence))
    place = {name: i for i, name in enumerate(names)}
    at = {pair: (place[pair[0]], place[pair[1]]) for pair in pairs}
    return Comparison(
        float(overall.statistic),
        float(overall.pvalue),
        {pair: float(tukey.pvalue[where]) for pair, where in at.items()},
        {
            pair: Interval(float(tukey.statistic[where]), float(ends.low[where]), float(ends.high[where]))
            for pair, where in at.items()
        },
    )


def kruskal_conover(scores: Mapping[str, Any]) -> Comparison:
    """Kruskal-Wallis test over methods, and Conover's test of all pairs with Bonferroni's correction.

    It assumes independent runs, and distributions of like shape if it is to speak of medians. It cannot show
    how large a difference is (`differences` is empty), and with three runs a method can hardly show any.

    NaN where all runs are equal.
    """
    stats = need("scipy.stats", "study", "The Kruskal-Wallis test")
    posthocs = need("scikit_posthocs", "study", "Conover's test")
    names, groups = _checked(scores)
    pairs = [(first, second) for i, first in enumerate(names) for second in names[i + 1 :]]
    if np.ptp(np.concatenate(groups)) == 0:
        return Comparison(float("nan"), float("nan"), dict.fromkeys(pairs, float("nan")), {})
    overall = stats.kruskal(*groups)
    if _separated(groups):  # all ranks decided: Conover's variance is zero and its statistic infinite
        mean_ranks = [ranks.mean() for ranks in _ranks(groups)]
        table = np.array([[float(a == b) for b in mean_ranks] for a in mean_ranks])
    else:
        table = posthocs.posthoc_conover(groups, p_adjust="bonferroni").to_numpy()
    place = {name: i for i, name in enumerate(names)}
    return Comparison(
        float(overall.statistic),
        float(overall.pvalue),
        {(a, b): min(1.0, float(table[place[a], place[b]])) for a, b in pairs},
        {},
    )


def critical_difference_picture(
    scores: Mapping[str, Any], *, larger_is_better: bool = True, alpha: float = 0.05, axes: Any = None
) -> Any:
    """Methods on a line by their mean rank over all runs, joined where Conover's test finds no difference.

    Returns the matplotlib axes. It assumes what `kruskal_conover` assumes. It cannot show
    how far apart scores are, only ranks, nor that joined methods are equal.
    """
    pyplot = need("matplotlib.pyplot", "study", "The critical-difference picture")
    pandas = need("pandas", "study", "The critical-difference picture")
    posthocs = need("scikit_posthocs", "study", "The critical-difference picture")
    comparison = kruskal_conover(scores)
    names, groups = _checked(scores)
    ranks = _ranks([-group for group in groups] if larger_is_better else groups)
    mean_ranks = {name: float(rank.mean()) for name, rank in zip(names, ranks, strict=True)}
    table = pandas.DataFrame(1.0, index=names, columns=names)
    for (first, second), p_value in comparison.pairs.items():
        table.loc[first, second] = table.loc[second, first] = 1.0 if np.isnan(p_value) else p_value
    if axes is None:
        _, axes = pyplot.subplots(figsize=(7, 1.2 + 0.25 * len(names)), layout="constrained")
    posthocs.critical_difference_diagram(
        mean_ranks,
        table,
        ax=axes,
        alpha=alpha,
        color_palette=dict.fromkeys(names, "black"),
        text_h_margin=0.01 * sum(map(len, groups)),
    )
    axes.set_title(f"Mean rank (1 is best); a bar joins methods with p > {alpha:g}", fontsize=9)
    return axes


def _checked(scores: Mapping[str, Any]) -> tuple[list[str], list[Floats]]:
    """Names and runs: at least two methods of at least two runs each."""
    names = [str(name) for name in scores]
    groups = [array(values, f"scores[{name!r}]")[:, 0] for name, values in scores.items()]
    if len(groups) < 2:
        raise InputError(f"A comparison needs at least two methods; got {names}.")
    short = [name for name, group in zip(names, groups, strict=True) if len(group) < 2]
    if short:
        raise InputError(f"Every method needs at least two runs; {short} have fewer. Run more seeds or leave them out.")
    return names, groups


def _ranks(groups: list[Floats]) -> list[Floats]:
    """Ranks of the runs among all runs, by method; ties share their mean."""
    stats = need("scipy.stats", "study", "Ranks")
    ends = np.cumsum([len(group) for group in groups])[:-1]
    return list(np.split(stats.rankdata(np.concatenate(groups)), ends))


def _separated(groups: list[Floats]) -> bool:
    """Whether all ranks within each method are tied."""
    return all(np.ptp(ranks) == 0 for ranks in _ranks(groups))

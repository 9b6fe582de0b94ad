"""Who is nearest to zero, and whether that can be told from chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rmdn.errors import RMDNError
from rmdn.experiments.summary import claim
from rmdn.metrics import kruskal_conover
from rmdn.report import Claim

Scores = Mapping[str, Sequence[float]]  # of each method: a number a run
STARS = {0.001: "***", 0.01: "**", 0.05: "*"}
LEGEND = "* p < .05, ** p < .01, *** p < .001 against R-MDN (Conover with Bonferroni, where Kruskal-Wallis finds p < .05)."


def stars(p: float) -> str:
    """How small a p-value is; empty from .05 up, and where there is none."""
    return next((mark for limit, mark in STARS.items() if p < limit), "")


def against(scores: Scores, ours: str) -> dict[str, str]:
    """Stars of each other method, of distances from zero; none where the test over all methods finds nothing."""
    none = {method: "" for method in scores if method != ours}
    enough = {method: np.abs(values) for method, values in scores.items() if len(values) > 1 and np.isfinite(values).all()}
    if len(enough) < 2 or ours not in enough:
        return none
    try:
        found = kruskal_conover(enough)
    except RMDNError:
        return none
    if not found.p_value < 0.05:
        return none
    return {**none, **{a if b == ours else b: stars(p) for (a, b), p in found.pairs.items() if ours in (a, b)}}


def least(text: str, groups: Mapping[str, Scores], ours: str, digits: int = 3) -> Claim:
    """The claim that ours lies nearest to zero on average, in every group (a data set, a number of epochs)."""
    whys, holds, seeds = [], [], []
    for group, every in groups.items():
        scores = {method: [value for value in values if np.isfinite(value)] for method, values in every.items()}
        means = {method: abs(float(np.mean(values))) for method, values in scores.items() if values}
        rivals = {method: mean for method, mean in means.items() if method != ours}
        if ours not in means or not rivals:
            return claim(text, None, f"{group}: not enough runs", 0)
        best = min(rivals, key=lambda method: rivals[method])
        whys.append(f"{group}: {ours} {means[ours]:.{digits}f}, next {best} {rivals[best]:.{digits}f}")
        holds.append(means[ours] < rivals[best])
        seeds.append(min(len(scores[method]) for method in means))
    return claim(text, all(holds) if holds else None, "; ".join(whys) or "no runs", min(seeds, default=0))

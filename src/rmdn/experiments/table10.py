"""Table 10: age, puberty score and race of ABCD's boys and girls."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmdn.experiments import brains
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.table9 import chi2, runs, verdict
from rmdn.extras import need
from rmdn.report import Cell, Claim, Section, Table
from rmdn.report.numbers import NONE

SEXES = ("boy", "girl")
AGE, SCORE = "age", "pds"
NAMES = {AGE: "Age (in months)", SCORE: "PDS"}
# Mean and standard deviation of boys, of girls.
PUBLISHED = {AGE: (119.18, 7.562, 118.80, 7.525), SCORE: (1.372, 0.622, 2.182, 0.907)}
PUBLISHED_P = {AGE: ">0.001", SCORE: "<0.001", "race": ">0.001"}
# How many boys, how many girls.
PUBLISHED_RACES = {
    "White": (2953, 2659),
    "Black": (702, 735),
    "Hispanic": (1060, 999),
    "Asian": (103, 114),
    "Other": (567, 529),
}
PUBLISHED_CHILDREN = sum(map(sum, PUBLISHED_RACES.values()))
ALPHA = 0.001  # the paper's


def section(plan: Plan, find: Find) -> Section:
    """The table with its tests, and what the paper says of it."""
    children = brains.children(plan)
    p = p_values(children)
    rows: list[list[str | Cell]] = []
    for name, published in PUBLISHED.items():
        cells = [
            Cell(
                float(values.mean()), float(values.std()), published=published[2 * i], published_spread=published[2 * i + 1]
            )
            for i, values in enumerate(of_sexes(children, name))
        ]
        rows.append([NAMES[name], *cells, p_text(p[name]), PUBLISHED_P[name]])
    for race, numbers in races(children).items():
        cells = [
            Cell(n, published=published, digits=0) for n, published in zip(numbers, PUBLISHED_RACES[race], strict=True)
        ]
        rows.append([race, *cells, p_text(p["race"]), PUBLISHED_P["race"]])
    table = Table(
        f"{len(children):,} children at their first visit here, {PUBLISHED_CHILDREN:,} in the paper: mean and standard "
        "deviation, or how many.",
        ["Variable", "Boys", "Girls", "p, ours", "p, published"],
        rows,
        ["Age and PDS by a two-sample t-test, races together by a \N{GREEK SMALL LETTER CHI}²-test."],
    )
    return Section(
        "table10",
        "Table 10. ABCD: variables of boys and girls",
        "What the data are, before any training. The puberty score (PDS, 1 to 5) differs between the sexes and shows in "
        "the images: it confounds.",
        [table],
        claims(p, [float(values.mean()) for values in of_sexes(children, SCORE)]),
        command=plan.command("table10"),
        warnings=brains.stand_in_note("abcd"),
    )


def of_sexes(children: Any, name: str) -> list[Any]:
    """A column's values that are known, of boys and of girls."""
    return [children[name][children["sex"] == sex].dropna().astype(float) for sex in SEXES]


def races(children: Any) -> dict[str, list[int]]:
    """How many boys and girls there are of each race."""
    pairs = list(zip(children["race"], children["sex"], strict=True))
    return {race: [pairs.count((race, sex)) for sex in SEXES] for race in PUBLISHED_RACES}


def p_values(children: Any) -> dict[str, float]:
    """By t-tests, and of races by a chi-squared test; NaN where the table does not tell races."""
    stats = need("scipy.stats", "study")
    found = {name: float(stats.ttest_ind(*of_sexes(children, name)).pvalue) for name in PUBLISHED}
    counts = np.array(list(races(children).values()))
    return {**found, "race": chi2(counts.T.tolist()) if counts.any() else float("nan")}


def p_text(p: float) -> str:
    """As the paper writes it, where it is small."""
    return NONE if np.isnan(p) else f"{p:.2g}" if p >= ALPHA else f"<{ALPHA}"


def claims(p: dict[str, float], scores: list[float]) -> list[Claim]:
    """What the paper says of this table; `scores`: the mean puberty score of boys and of girls."""
    boys, girls = scores
    larger = verdict("PDS is larger in girls (t-test, p < 0.001)", p[SCORE], p[SCORE] < ALPHA and girls > boys)
    text = "Neither age (t-test) nor race (\N{GREEK SMALL LETTER CHI}²-test) differs between the sexes (p > 0.001)"
    if np.isnan(p["race"]):
        return [larger, Claim(text, "cannot tell", f"age p = {p[AGE]:.2g}; the table tells no race")]
    holds = min(p[AGE], p["race"]) > ALPHA
    why = f"age p = {p[AGE]:.2g}, race p = {p['race']:.2g}"
    return [larger, Claim(text, "holds" if holds else "does not hold", why)]


register(Experiment("table10", "Table 10. ABCD: variables of boys and girls", {"quick": 0, "paper": 0}, runs, section))

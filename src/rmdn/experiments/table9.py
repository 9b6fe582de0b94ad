"""Table 9: how many scans of men and women ADNI has, by group and year of acquisition."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmdn.data.adni import YEARS
from rmdn.data.simulate.adni import IMAGES
from rmdn.experiments import brains
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.extras import need
from rmdn.report import Cell, Claim, Section, Table

SEXES = {"M": "male", "F": "female"}
BINS = ("2010 or before", "2011", "2012", "2013", "2014 or after")
ALPHA = 0.05


def counts(scans: Any) -> dict[tuple[str, str], list[int]]:
    """Scans by group and sex, in each of BINS."""
    bins = np.digitize(scans["year"], YEARS)
    sexes = [str(cell)[:1].upper() for cell in scans["sex"]]  # BIDS tables have words too
    rows = list(zip(scans["label"], sexes, bins, strict=True))
    return {(group, sex): [rows.count((group, sex, k)) for k in range(len(BINS))] for group, sex in IMAGES}


def section(plan: Plan, find: Find) -> Section:
    """The counts, and whether sex differs between the groups."""
    found = counts(brains.scans(plan))
    rows: list[list[str | Cell]] = [
        [
            f"{group}, {SEXES[sex]}",
            *(Cell(n, published=published, digits=0) for n, published in zip(found[group, sex], of, strict=True)),
        ]
        for (group, sex), of in IMAGES.items()
    ]
    total, of = sum(map(sum, found.values())), sum(map(sum, IMAGES.values()))
    table = Table(f"Scans by year of acquisition: {total:,} here, {of:,} in the paper.", ["Group, sex", *BINS], rows)
    return Section(
        "table9",
        "Table 9. ADNI: sex in the groups",
        "What the data are, before any training. Groups and sexes come in other proportions every year.",
        [table],
        claims(found),
        command=plan.command("table9"),
        warnings=brains.stand_in_note("adni"),
    )


def claims(found: dict[tuple[str, str], list[int]]) -> list[Claim]:
    """What the paper says of this table; and whether these are its data."""
    text = "Sex is distributed differently in the groups (\N{GREEK SMALL LETTER CHI}²-test over all years)"
    groups = list(dict.fromkeys(group for group, _ in found))
    different = chi2([[sum(found[group, sex]) for sex in SEXES] for group in groups])
    same = chi2([[n for row in table.values() for n in row] for table in (found, IMAGES)])
    return [
        verdict(text, different, different < ALPHA),
        verdict("Scans are distributed as published (\N{GREEK SMALL LETTER CHI}²-test)", same, same >= ALPHA),
    ]


def chi2(table: list[list[int]]) -> float:
    """The p-value of homogeneous rows; columns without a count are left out."""
    filled = np.array(table)[:, np.sum(table, axis=0) > 0]
    return float(need("scipy.stats", "study").chi2_contingency(filled).pvalue)


def verdict(text: str, p: float, holds: bool) -> Claim:
    """What a test on data tells: these are all the data there are, so no number of seeds matters."""
    return Claim(text, "holds" if holds else "does not hold", f"p = {p:.2g}" if p > 1e-16 else "p < 1e-16")


def runs(plan: Plan) -> list[Any]:
    """None: it is about the data alone."""
    return []


register(Experiment("table9", "Table 9. ADNI: sex in the groups", {"quick": 0, "paper": 0}, runs, section))

"""Table 5: ADNI, a diagnosis under changing age and sex; what the features know of both after the last stage."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from rmdn.experiments import brains
from rmdn.experiments.brains import GROUPS, GUARDED, OURS, PLAIN
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.run import Run
from rmdn.experiments.store import Record
from rmdn.experiments.summary import cell, claim, dependences, missing, records
from rmdn.report import Claim, Section, Table

Floats = NDArray[np.float64]
COLUMNS = ("MCI", "CN", "AD")  # in the paper's order
# Mean and standard deviation of dcor2 of each group.
PUBLISHED = {
    PLAIN: (0.20, 0.09, 0.20, 0.14, 0.25, 0.22),
    "P-MDN": (0.06, 0.05, 0.08, 0.05, 0.24, 0.16),
    OURS: (0.08, 0.06, 0.05, 0.04, 0.09, 0.07),
}
METHODS = (*PUBLISHED, GUARDED)
Found = dict[str, list[Record]]


def runs(plan: Plan) -> list[Run]:
    """Every method."""
    return [run for method in plan.rows(METHODS) for run in brains.adni_runs(method, plan)]


def found_records(plan: Plan, find: Find) -> Found:
    """What there is of each method, a record a seed."""
    return {method: records(brains.adni_runs(method, plan), find) for method in plan.rows(METHODS)}


def dcor2(found: list[Record]) -> Floats:
    """Means over seeds (trained on, tested on, group); NaN where a test set has too few of a group."""
    whole = np.full((len(found), *np.shape(found[0]["R"]), len(GROUPS)), np.nan)
    for values, record in zip(whole, found, strict=True):
        classes = sorted({int(name) for row in record["dcor2"] for one in row for name in one})
        values[..., classes] = dependences(record)
    return nanmean(whole, 0)


def nanmean(values: Floats, axis: int | tuple[int, ...]) -> Floats:
    """The mean without NaN; NaN, in silence, where there is nothing else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmean(values, axis=axis))


def accuracy(found: list[Record]) -> Floats:
    """Means over seeds (trained on, tested on)."""
    return np.mean([record["R"] for record in found], axis=0)


def section(plan: Plan, find: Find) -> Section:
    """The table, and what the paper says of it."""
    found = found_records(plan, find)
    cells = {}
    for method, of in found.items():
        last = dcor2(of)[-1] if of else np.empty((0, len(GROUPS)))  # (tested on, group)
        published = PUBLISHED.get(method, (None,) * 2 * len(COLUMNS))
        cells[method] = [
            cell(last[:, GROUPS.index(group)].tolist(), published[2 * i], published[2 * i + 1], digits=2)
            for i, group in enumerate(COLUMNS)
        ]
    table = Table(
        "dcor² of features with age and sex within a group, after the last stage: mean and standard deviation over "
        "the test sets of the five stages, each the mean over seeds. The paper does not say what its spread is over, "
        "and names no test. A test set with fewer than four scans of a group has no value for it. Nearer 0 is better.",
        ["Method", *(f"dcor² ({group})" for group in COLUMNS)],
        brains.with_best(cells, range(len(COLUMNS))),
    )
    return Section(
        "table5",
        "Table 5. ADNI: diagnosis over years of acquisition",
        "Controls (CN), mild cognitive impairment (MCI) and Alzheimer's disease (AD) in five stages: up to 2010, "
        "2011, 2012, 2013, from 2014. Age and sex are the confounders. A 3D vision transformer, R-MDN at its "
        "pre-logits layer; AdamW, batches of 128, 50 epochs a stage at 1e-5 with cosine annealing. A fifth of the people "
        "is held out in all stages; the paper says neither how it drew its test sets, nor where R-MDN stood, nor how "
        "often it trained.\n\n"
        "Scans of one person are alike in features and in age, which dcor² cannot tell from a dependence: with few "
        "people it is high for every method. BR-Net is left out as in the paper: it does not scale to two "
        "confounders.",
        [table],
        claims(found),
        command=plan.command("table5"),
        warnings=missing(runs(plan), find),
    )


def claims(found: Found) -> list[Claim]:
    """What the paper says of this table."""
    return [_lower(found), _only_in_part(found), _cheating(found)]


def seeds(found: Found, *methods: str) -> int:
    """The least number of seeds of these methods; 0 if one has none."""
    return min(len(found.get(method, [])) for method in methods)


def groups_of(found: list[Record]) -> dict[str, float]:
    """Each group's dcor2 after the last stage."""
    values = nanmean(dcor2(found)[-1], 0)
    return {group: float(values[GROUPS.index(group)]) for group in COLUMNS}


def listed(values: dict[str, float]) -> str:
    """MCI .08, CN .05, AD .09."""
    return ", ".join(f"{group} {value:.2f}" for group, value in values.items())


def _lower(found: Found) -> Claim:
    text = "R-MDN has a lower dcor² than the base network in every group"
    count = seeds(found, PLAIN, OURS)
    if not count:
        return claim(text, None, "not enough runs", 0)
    ours, plain = groups_of(found[OURS]), groups_of(found[PLAIN])
    known = [group for group in COLUMNS if np.isfinite(ours[group] + plain[group])]
    holds = all(ours[group] < plain[group] for group in known) if len(known) == len(COLUMNS) else None
    return claim(text, holds, f"R-MDN {listed(ours)}; base {listed(plain)}", count)


def _only_in_part(found: Found) -> Claim:
    text = "P-MDN does not drive dcor² down in all three groups: in one it is nearer to the base network's than to R-MDN's"
    count = seeds(found, PLAIN, "P-MDN", OURS)
    if not count:
        return claim(text, None, "not enough runs", 0)
    ours, plain, rival = (groups_of(found[method]) for method in (OURS, PLAIN, "P-MDN"))
    left = [group for group in COLUMNS if rival[group] > (ours[group] + plain[group]) / 2 and ours[group] < plain[group]]
    return claim(text, bool(left), f"P-MDN {listed(rival)}; such groups: {', '.join(left) or 'none'}", count)


def _cheating(found: Found) -> Claim:
    text = "The base network and P-MDN have a higher average accuracy after the last stage than R-MDN"
    count = seeds(found, PLAIN, "P-MDN", OURS)
    if not count:
        return claim(text, None, "not enough runs", 0)
    means = {method: float(accuracy(found[method])[-1].mean()) for method in (PLAIN, "P-MDN", OURS)}
    why = ", ".join(f"{method} {mean:.3f}" for method, mean in means.items())
    return claim(text, min(means[PLAIN], means["P-MDN"]) > means[OURS], why, count)


register(
    Experiment(
        "table5",
        "Table 5. ADNI: diagnosis over years",
        brains.ADNI_MINUTES,
        runs,
        section,
        needs=brains.ADNI_NEEDS,
    )
)

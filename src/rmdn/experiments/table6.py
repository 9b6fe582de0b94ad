"""Table 6: ABCD, boys and girls by a 3D network, five repetitions of five folds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rmdn.experiments import brains
from rmdn.experiments.brains import BOY, GIRL, GUARDED, OURS, PLAIN
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.run import Run
from rmdn.experiments.store import Record
from rmdn.experiments.summary import cell, claim, dependences, missing, recalls, records, tested
from rmdn.metrics import kruskal_conover
from rmdn.report import Claim, Section, Table

# Each measure, and how many digits it is given with.
DIGITS = {"Accuracy": 2, "TPR": 2, "TNR": 2, "TPR \N{MINUS SIGN} TNR": 3, "dcor² (boys)": 4, "dcor² (girls)": 4}
ACCURACY, TPR, TNR, GAP, BOYS, GIRLS = DIGITS
OF_INTEREST = (GAP, BOYS, GIRLS)
# Mean and standard deviation of each measure; the first three in percent.
PUBLISHED = {
    PLAIN: (86.86, 0.354, 85.41, 0.781, 88.32, 0.770, -0.029, 0.016, 0.0127, 0.0022, 0.0218, 0.0029),
    "Pixel-space MDN": (84.91, 0.447, 83.04, 2.900, 86.77, 2.352, -0.037, 0.059, 0.0168, 0.0041, 0.0239, 0.0083),
    "BR-Net": (81.63, 0.499, 80.26, 0.388, 83.01, 0.908, -0.027, 0.011, 0.0127, 0.0006, 0.0148, 0.0002),
    "MDN": (87.55, 0.6630, 87.43, 3.301, 87.66, 4.277, -0.002, 0.084, 0.0329, 0.0140, 0.0624, 0.0283),
    "P-MDN": (86.41, 0.876, 84.25, 1.651, 88.57, 1.540, -0.043, 0.030, 0.0031, 0.0009, 0.0108, 0.0017),
    OURS: (85.08, 0.591, 84.98, 0.842, 85.18, 1.125, -0.002, 0.018, 0.0099, 0.0029, 0.0090, 0.0027),
}
METHODS = (*PUBLISHED, GUARDED)
MODEST = 5.0  # points of accuracy: what we take for "a modest decrease"

Scores = dict[str, dict[str, list[float]]]  # of each method, of each measure: a number a repetition


def runs(plan: Plan) -> list[Run]:
    """Every method, repetition and fold."""
    return [run for method in plan.rows(METHODS) for folds in brains.abcd_runs(method, plan) for run in folds]


def scores(plan: Plan, find: Find) -> Scores:
    """Every repetition's means over the folds that are there."""
    found: Scores = {}
    for method in plan.rows(METHODS):
        repetitions = [records(folds, find) for folds in brains.abcd_runs(method, plan)]
        measured = [np.nanmean([measures(one) for one in folds], axis=0) for folds in repetitions if folds]
        found[method] = {measure: [float(values[i]) for values in measured] for i, measure in enumerate(DIGITS)}
    return found


def measures(record: Record) -> list[float]:
    """All of DIGITS' measures of one fold."""
    recall, dcor2 = recalls(record)[0, 0], dependences(record)[0, 0]
    rates = [record["R"][0][0], recall[BOY], recall[GIRL]]
    return [*(100 * rate for rate in rates), recall[BOY] - recall[GIRL], dcor2[BOY], dcor2[GIRL]]


def section(plan: Plan, find: Find) -> Section:
    """The table, the tests under it, and what the paper says of it."""
    found = scores(plan, find)
    cells = {}
    for method, of in found.items():
        published = PUBLISHED.get(method, (None,) * 2 * len(DIGITS))
        cells[method] = [
            cell(of[measure], published[2 * i], published[2 * i + 1], digits)
            for i, (measure, digits) in enumerate(DIGITS.items())
        ]
    notes = [
        tested(
            kruskal_conover,
            f"{measure}, Kruskal-Wallis and Conover with Bonferroni",
            {method: np.abs(of[measure]).tolist() for method, of in found.items()},
            OURS,
        )
        for measure in OF_INTEREST
    ]
    table = Table(
        "Mean and standard deviation over repetitions, each the mean of its five folds: the published spread is less than "
        "what chance makes of a single fold of 2,000 children. Boys are the positive class. The measures of interest are "
        "TPR \N{MINUS SIGN} TNR and dcor²: nearer 0 is better.",
        ["Method", *DIGITS],
        brains.with_best(cells, [list(DIGITS).index(measure) for measure in OF_INTEREST]),
        notes,
    )
    return Section(
        "table6",
        "Table 6. ABCD: boys or girls, in one stage",
        "Five-fold cross-validation by subject and site, once for each seed of the network's weights; the puberty score is "
        "the confounder. A 3D CNN, R-MDN after every convolution and the pre-logits layer; Adam, batches of 128, 50 epochs "
        "at 5e-4, times 0.7 every 4 epochs.\n\nGuarded R-MDN has no stage to fall back to here: its gate holds a fifth of "
        "the training children out and ends with the epoch whose recalibrated network knew most about them.",
        [table],
        claims(found),
        command=plan.command("table6"),
        warnings=missing(runs(plan), find),
    )


def claims(found: Scores) -> list[Claim]:
    """What the paper says of this table."""
    return [_biased(found), _less_dependent(found), _fairest(found), _modest(found), _rivals_fail(found)]


def means(found: Scores, methods: Sequence[str]) -> tuple[dict[str, dict[str, float]], int]:
    """Means of each measure, of those methods that have runs; and the least number of repetitions, 0 if one has none."""
    there = {method: found[method] for method in methods if method in found and found[method][ACCURACY]}
    count = min((len(of[ACCURACY]) for of in there.values()), default=0) if len(there) == len(methods) else 0
    return {method: {name: float(np.mean(values)) for name, values in of.items()} for method, of in there.items()}, count


def _biased(found: Scores) -> Claim:
    text = "The base network is biased towards girls: it knows more of the confounder in them, and TNR is above TPR"
    mean, count = means(found, [PLAIN])
    if not count:
        return claim(text, None, "no runs", 0)
    of = mean[PLAIN]
    why = f"dcor² girls {of[GIRLS]:.4f}, boys {of[BOYS]:.4f}; TNR {of[TNR]:.2f}, TPR {of[TPR]:.2f}"
    return claim(text, of[GIRLS] > of[BOYS] and of[TNR] > of[TPR], why, count)


def _less_dependent(found: Scores) -> Claim:
    text = "R-MDN drives dcor² down, for boys and for girls, against the base network"
    mean, count = means(found, [PLAIN, OURS])
    if not count:
        return claim(text, None, "not enough runs", 0)
    why = "; ".join(f"{measure} {mean[OURS][measure]:.4f} against {mean[PLAIN][measure]:.4f}" for measure in (BOYS, GIRLS))
    return claim(text, all(mean[OURS][measure] < mean[PLAIN][measure] for measure in (BOYS, GIRLS)), why, count)


def _fairest(found: Scores) -> Claim:
    text = "R-MDN has the least difference between TPR and TNR of all published methods"
    mean, count = means(found, [method for method in PUBLISHED if method in found])
    if not count or OURS not in mean or len(mean) < 2:
        return claim(text, None, "not enough runs", 0)
    gaps = {method: abs(of[GAP]) for method, of in mean.items() if method != OURS}
    best = min(gaps, key=lambda method: gaps[method])
    why = f"|difference| {abs(mean[OURS][GAP]):.3f}, next {best} {gaps[best]:.3f}"
    return claim(text, abs(mean[OURS][GAP]) < gaps[best], why, count)


def _modest(found: Scores) -> Claim:
    text = f"R-MDN costs a modest part of the accuracy (more than 0, at most {MODEST:g} points)"
    mean, count = means(found, [PLAIN, OURS])
    if not count:
        return claim(text, None, "not enough runs", 0)
    cost = mean[PLAIN][ACCURACY] - mean[OURS][ACCURACY]
    return claim(text, 0 < cost <= MODEST, f"accuracy changes by {-cost:+.2f} points", count)


def _rivals_fail(found: Scores) -> Claim:
    text = (
        "MDN and P-MDN are more accurate than R-MDN, but know more of the confounder than the base network or are less fair"
    )
    mean, count = means(found, [PLAIN, "MDN", "P-MDN", OURS])
    if not count:
        return claim(text, None, "not enough runs", 0)
    whys, holds = [], []
    for method in ("MDN", "P-MDN"):
        of = mean[method]
        knows = any(of[measure] > mean[PLAIN][measure] for measure in (BOYS, GIRLS))
        holds.append(of[ACCURACY] > mean[OURS][ACCURACY] and (knows or abs(of[GAP]) > abs(mean[OURS][GAP])))
        whys.append(
            f"{method} {of[ACCURACY] - mean[OURS][ACCURACY]:+.2f} points, dcor² {of[BOYS]:.4f} and {of[GIRLS]:.4f}, "
            f"|difference| {abs(of[GAP]):.3f}"
        )
    return claim(text, all(holds), "; ".join(whys), count)


register(
    Experiment(
        "table6",
        "Table 6. ABCD: boys or girls",
        brains.ABCD_MINUTES,
        runs,
        section,
        needs=brains.ABCD_NEEDS,
    )
)

"""Table 7: the static synthetic data at five batch sizes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from rmdn.experiments import static
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.run import Run
from rmdn.experiments.static import BATCH_SIZES, MEASURES, Outcomes, Scores
from rmdn.experiments.summary import best, missing
from rmdn.experiments.table7_claims import Tests, claims, compared, pair
from rmdn.metrics.tests import Comparison
from rmdn.report import Cell, Section, Table
from rmdn.report.numbers import NONE

# Of each measure, for each batch size: the mean and half the width of its 95 % interval, over 100 seeds.
PUBLISHED = {
    "Plain": (
        ((10.49, 0.037), (10.49, 0.025), (10.50, 0.023), (10.52, 0.022), (10.55, 0.029)),
        ((0.408, 0.002), (0.420, 0.001), (0.421, 0.001), (0.416, 0.001), (0.310, 0.005)),
        ((0.388, 0.003), (0.397, 0.001), (0.394, 0.001), (0.391, 0.001), (0.281, 0.005)),
    ),
    "MDN": (
        ((8.13, 1.203), (4.93, 0.424), (3.21, 0.532), (0.52, 0.335), (0.95, 0.335)),
        ((0.977, 0.010), (0.142, 0.016), (0.086, 0.010), (0.014, 0.002), (0.003, 0.000)),
        ((0.999, 0.001), (0.046, 0.009), (0.024, 0.003), (0.000, 0.001), (0.000, 0.000)),
    ),
    "P-MDN": (
        ((4.65, 0.448), (3.49, 0.373), (1.85, 1.151), (0.23, 1.361), (1.58, 1.983)),
        ((0.042, 0.013), (0.022, 0.003), (0.050, 0.007), (0.048, 0.007), (0.098, 0.020)),
        ((0.060, 0.021), (0.013, 0.005), (0.015, 0.002), (0.027, 0.004), (0.091, 0.026)),
    ),
    "R-MDN": (
        ((0.28, 0.414), (0.04, 0.213), (0.13, 0.088), (1.19, 0.215), (0.19, 0.296)),
        ((0.019, 0.003), (0.014, 0.002), (0.006, 0.001), (0.013, 0.002), (0.015, 0.020)),
        ((0.005, 0.001), (0.001, 0.000), (0.000, 0.000), (0.001, 0.000), (0.008, 0.017)),
    ),
}


def runs(plan: Plan) -> list[Run]:
    """Every method at every batch size."""
    cells = itertools.product(plan.rows(static.METHODS), BATCH_SIZES)
    return [run for method, size in cells for run in static.runs(method, size, plan)]


def section(plan: Plan, find: Find) -> Section:
    """The table, the tests, and what the paper says of them."""
    scores = {
        method: {size: static.outcomes(static.runs(method, size, plan), find) for size in BATCH_SIZES}
        for method in plan.rows(static.METHODS)
    }
    found = compared(scores)
    return Section(
        "table7",
        "Table 7. Static synthetic data",
        "|bAcc - A|: points between the runs' mean balanced accuracy and theory's .833, so that runs above and below make "
        "up for each other, as in the published numbers. dcor2: of the pre-logits features and the confounder, within a "
        "group. Adam, 100 epochs, learning rate .0001 times .8 every 20 epochs, lambda .0001. At the quick scale the "
        "learning rate is .0005, and there are fewer images and epochs: 3 with batches of 2, up to 25 with 1,024.",
        [numbers(scores), *([tests(found, list(scores))] if any(found.values()) else [])],
        claims(scores, found),
        command=plan.command("table7"),
        warnings=missing(runs(plan), find),
    )


def numbers(scores: Scores) -> Table:
    """Ours beside the published numbers."""
    cells = {
        (measure, size): best({method: cell(method, measure, i, by_size[size]) for method, by_size in scores.items()})
        for measure in range(len(MEASURES))
        for i, size in enumerate(BATCH_SIZES)
    }
    rows: list[list[str | Cell]] = [
        [method, name, *(cells[measure, size][method] for size in BATCH_SIZES)]
        for method in scores
        for measure, name in enumerate(MEASURES)
    ]
    return Table(
        "Mean and half-width of its 95 % interval over seeds; smaller is better.",
        ["Method", "Measure", *map(str, BATCH_SIZES)],
        rows,
        column_groups=[("", 1), ("Batch size", len(BATCH_SIZES))],
    )


def cell(method: str, measure: int, size: int, found: Outcomes) -> Cell:
    """One measure at one batch size, the `size`-th of them."""
    published, reach = PUBLISHED[method][measure][size] if method in PUBLISHED else (None, None)
    if measure == 0 and len(found):
        return Cell(found.deviation, static.half_width(100 * found.accuracy), published, reach, digits=2)
    return static.cell(found.values(measure), 3 if measure else 2, published, reach)


def tests(found: Tests, methods: Sequence[str]) -> Table:
    """The paper's tests: one analysis of variance and Tukey's differences of R-MDN from each other method a cell."""
    others = [method for method in methods if method != "R-MDN"]
    known = found if "R-MDN" in methods else dict.fromkeys(found)
    rows = [
        [MEASURES[measure], str(size), *([NONE] * (1 + len(others)) if test is None else _tested(test, others))]
        for (measure, size), test in known.items()
    ]
    return Table(
        "p of a one-way analysis of variance over all methods, and of Tukey's honest significant difference of R-MDN from "
        "each; a dash where there are not two seeds of each method.",
        ["Measure", "Batch size", "All", *(f"R-MDN, {method}" for method in others)],
        rows,
    )


def _tested(test: Comparison, others: Sequence[str]) -> list[str]:
    return [_p(p) for p in (test.p_value, *(pair(test, "R-MDN", method) for method in others))]


def _p(p: float) -> str:
    if np.isnan(p):
        return NONE
    return f"{p:.2g}" if p > 1e-12 else "<1e-12"  # Tukey's comes to no more digits


register(Experiment("table7", "Table 7. Static synthetic data", {"quick": 3, "paper": 10000}, runs, section))

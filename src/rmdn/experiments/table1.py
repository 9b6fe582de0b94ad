"""Table 1: distances to theory on the three continual synthetic data sets."""

from __future__ import annotations

from collections.abc import Collection

from rmdn.experiments import continual
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.run import Recipe, Run
from rmdn.experiments.summary import best_in_columns, cell, claim, distances, missing, records, tested
from rmdn.metrics import TransferDistances, kruskal_conover
from rmdn.report import Cell, Claim, Section, Table

DATASETS = {1: "Data set 1: confounder changes", 2: "Data set 2: main effect changes", 3: "Data set 3: both change"}
MEASURES = ("ACCd", "BWTd", "FWTd")
OURS = "Guarded R-MDN"
# Mean and standard deviation of ACCd, BWTd and FWTd, for each data set; the paper gives BWTd in hundredths.
PUBLISHED = {
    "Plain": [(0.18, 0.00, 0.0003, 0.0004, 0.19, 0.00), (0.2, 0.00, -0.0005, 0.0013, 0.21, 0.00),
              (0.28, 0.00, -0.0037, 0.0002, 0.31, 0.00)],
    "BR-Net": [(0.04, 0.03, -0.0128, 0.0137, 0.05, 0.04), (0.04, 0.02, -0.0143, 0.0181, 0.04, 0.03),
               (0.07, 0.04, -0.0055, 0.0056, 0.08, 0.04)],
    "Stage-specific MDN": [(0.25, 0.00, 0.162, 0.0227, 0.09, 0.02), (0.13, 0.00, 0.122, 0.0057, 0.02, 0.01),
                           (0.13, 0.00, 0.117, 0.0148, 0.02, 0.01)],
    "P-MDN": [(0.04, 0.01, -0.0061, 0.0137, 0.04, 0.01), (0.04, 0.00, -0.0076, 0.0246, 0.05, 0.01),
              (0.05, 0.01, -0.0137, 0.0221, 0.06, 0.01)],
    "R-MDN": [(0.02, 0.01, 0.0015, 0.0014, 0.02, 0.01), (0.03, 0.00, 0.0007, 0.0217, 0.03, 0.00),
              (0.02, 0.01, -0.0004, 0.0078, 0.02, 0.00)],
}  # fmt: skip
METHODS = (*PUBLISHED, OURS)
Scores = dict[str, dict[int, list[TransferDistances]]]  # of each method and data set: its seeds


def runs_of(method: str, dataset: int, plan: Plan) -> list[Run]:
    """The seeds of one cell."""
    return continual.runs(dataset, Recipe(method), plan)


def runs(plan: Plan) -> list[Run]:
    """Every method on every data set."""
    return [run for dataset in DATASETS for method in plan.rows(METHODS) for run in runs_of(method, dataset, plan)]


def section(plan: Plan, find: Find) -> Section:
    """The table, the tests under it, and whether the order of methods is the published one."""
    found: Scores = {
        method: {d: [distances(record) for record in records(runs_of(method, d, plan), find)] for d in DATASETS}
        for method in plan.rows(METHODS)
    }
    return Section(
        "table1",
        "Table 1. Continual synthetic data",
        "Five stages; accuracy on every stage's test set after every stage, as a distance to what is possible without the "
        "confounder. Adam, 100 epochs a stage, a fresh schedule at each stage, no weight decay: the paper's text.",
        [table(found)],
        claims(found),
        command=plan.command("table1"),
        warnings=missing(runs(plan), find),
    )


def table(found: Scores) -> Table:
    """A row a method, three columns a data set, a test for each column."""
    rows: list[list[str | Cell]] = [
        [
            method,
            *(
                cell(
                    [getattr(one, measure) for one in of_dataset[dataset]],
                    *(PUBLISHED[method][dataset - 1][2 * i : 2 * i + 2] if method in PUBLISHED else (None, None)),
                )
                for dataset in DATASETS
                for i, measure in enumerate(MEASURES)
            ),
        ]
        for method, of_dataset in found.items()
    ]
    notes = [
        tested(
            kruskal_conover,
            f"{title}, {measure}, Kruskal-Wallis and Conover with Bonferroni",
            {method: [abs(getattr(one, measure)) for one in of[dataset]] for method, of in found.items()},
            "R-MDN",
        )
        for dataset, title in DATASETS.items()
        for measure in MEASURES
    ]
    return Table(
        "Mean and standard deviation over seeds; nearer 0 is better. Published BWTd is shown in units, not hundredths.",
        ["Method", *MEASURES * len(DATASETS)],
        best_in_columns(rows),
        notes,
        [(title, len(MEASURES)) for title in DATASETS.values()],
    )


def claims(found: Scores) -> list[Claim]:
    """What the paper says of this table, and what we say of ours."""
    nearest = [_nearest(found, method, dataset) for method in ("R-MDN", OURS) for dataset in DATASETS if method in found]
    return [*nearest, *(_order(found, dataset) for dataset in DATASETS)]


def _means(found: Scores, dataset: int, methods: Collection[str]) -> tuple[dict[str, float], int]:
    """Mean ACCd of those methods that have runs, and the least number of seeds among them."""
    there = {method: of[dataset] for method, of in found.items() if method in methods and of[dataset]}
    means = {method: sum(one.ACCd for one in scores) / len(scores) for method, scores in there.items()}
    return means, min(map(len, there.values()), default=0)


def _nearest(found: Scores, ours: str, dataset: int) -> Claim:
    means, seeds = _means(found, dataset, {*PUBLISHED, ours})
    text = f"{ours} comes nearest to theory on data set {dataset} (ACCd)"
    if len(means) < 2 or ours not in means:
        return claim(text, None, "not enough runs", 0)
    others = {method: mean for method, mean in means.items() if method != ours}
    best = min(others, key=others.__getitem__)
    return claim(text, means[ours] < others[best], f"{ours} {means[ours]:.3f}, next {best} {others[best]:.3f}", seeds)


def _order(found: Scores, dataset: int) -> Claim:
    means, seeds = _means(found, dataset, PUBLISHED)
    text = f"The methods stand in the published order on data set {dataset} (ACCd)"
    if len(means) < len(PUBLISHED):
        return claim(text, None, "not enough runs", 0)
    published = {method: numbers[dataset - 1][0] for method, numbers in PUBLISHED.items()}
    pairs = [(a, b) for a in published for b in published if published[a] < published[b]]
    turned = [f"{b} before {a}" for a, b in pairs if means[a] >= means[b]]
    why = f"{len(pairs) - len(turned)} of {len(pairs)} published pairs" + (f"; {', '.join(turned)}" if turned else "")
    return claim(text, not turned, why, seeds)


register(
    Experiment("table1", "Table 1. Continual synthetic data", {"quick": 8, "paper": 400}, runs, section),
)

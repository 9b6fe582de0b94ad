"""What Tables 2, 3 and 8 share: a few methods' distances to theory, and which of them is nearer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rmdn.experiments.experiment import Find, Plan
from rmdn.experiments.run import Run
from rmdn.experiments.summary import best, cell, claim, distances, records, tested
from rmdn.metrics import TransferDistances, kruskal_conover
from rmdn.report import Cell, Claim, Table

MEASURES = ("ACCd", "BWTd", "FWTd")
Scores = Mapping[str, Sequence[TransferDistances]]  # of each method: its runs'
Published = Mapping[str, tuple[float, float, float, float, float, float]]  # mean and deviation of each measure


def scores(methods: Sequence[str], runs_of: Callable[[str, Plan], list[Run]], plan: Plan, find: Find) -> Scores:
    """The distances of all runs that are there."""
    return {method: [distances(record) for record in records(runs_of(method, plan), find)] for method in plan.rows(methods)}


def table(caption: str, found: Scores, published: Published) -> Table:
    """A row a method, with the paper's tests under it."""
    columns = [
        best({method: cell(values(runs, name), *beside(published, method, i)) for method, runs in found.items()})
        for i, name in enumerate(MEASURES)
    ]
    rows: list[list[str | Cell]] = [[method, *(column[method] for column in columns)] for method in found]
    notes = [
        tested(
            kruskal_conover,
            f"{measure}, Kruskal-Wallis and Conover with Bonferroni",
            {method: [abs(value) for value in values(runs, measure)] for method, runs in found.items()},
            "R-MDN",
        )
        for measure in MEASURES
    ]
    return Table(caption, ["Method", *MEASURES], rows, notes)


def beside(published: Published, method: str, measure: int) -> tuple[float | None, float | None]:
    """The published mean and deviation, where there are any."""
    numbers = published.get(method)
    return (numbers[2 * measure], numbers[2 * measure + 1]) if numbers else (None, None)


def values(runs: Sequence[TransferDistances], measure: str) -> list[float]:
    """One measure of all runs."""
    return [float(getattr(run, measure)) for run in runs]


def nearer(found: Scores, ours: str, others: Sequence[str], measure: str, of: str = "") -> Claim:
    """Whether the mean of one method's runs lies nearer to 0 than each other's."""
    text = f"{ours} comes nearer to theory than {' and '.join(others)}{of} ({measure})"
    means = {
        method: sum(values(found[method], measure)) / len(found[method]) for method in (ours, *others) if found.get(method)
    }
    if len(means) <= len(others):
        return claim(text, None, "not enough runs", 0)
    why = ", ".join(f"{method} {mean:.3f}" for method, mean in means.items())
    holds = all(abs(means[ours]) < abs(means[other]) for other in others)
    return claim(text, holds, why, min(len(found[method]) for method in means))

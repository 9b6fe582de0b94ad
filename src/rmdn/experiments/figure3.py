"""Figure 3: what is left of the accuracy as the confounder is taken out of the test images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rmdn.experiments import continual, panels, table1
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.problems import delta_name
from rmdn.experiments.run import Run
from rmdn.experiments.significance import Scores, least
from rmdn.experiments.store import Record
from rmdn.experiments.summary import cell, claim, missing, records, tested
from rmdn.metrics import kruskal_conover
from rmdn.report import Claim, Picture, Section, Table

DATASET = 3
SEEDS = 3
STRENGTHS = (*continual.DELTAS, 1.0)
STRAIGHT = 0.02  # a line that moves by less than two points is called straight
OURS = ("R-MDN", table1.OURS)


def runs_of(method: str, plan: Plan) -> list[Run]:
    """Table 1's runs, whose record holds the accuracies at all strengths."""
    return continual.runs(DATASET, method, plan, seeds=SEEDS)


def runs(plan: Plan) -> list[Run]:
    """All methods."""
    return [run for method in plan.rows(table1.METHODS) for run in runs_of(method, plan)]


def found(plan: Plan, find: Find) -> dict[str, list[Record]]:
    """The records of each method that has some."""
    every = {method: records(runs_of(method, plan), find) for method in plan.rows(table1.METHODS)}
    return {method: there for method, there in every.items() if there}


def accuracies(record: Record) -> NDArray[np.float64]:
    """Accuracy after each stage on each stage's test set at each of STRENGTHS. (S, S, strengths)"""
    return np.stack([*(np.asarray(record["more"][delta_name(delta)]) for delta in STRENGTHS[:-1]), record["R"]], -1)


def change(record: Record, stage: int = -1) -> float:
    """How far a line moves from its accuracy with the whole confounder, at most; the mean over the tests' lines."""
    lines = accuracies(record)[stage]  # (S, strengths)
    return float(np.abs(lines - lines[:, -1:]).max(1).mean())


def away(record: Record) -> float:
    """How far accuracy after the last stage is from theory's, mean over all strengths and tests."""
    return float(np.abs(accuracies(record)[-1] - np.asarray(record["best"])[:, None]).mean())


def straight(name: str, changes: Mapping[str, Sequence[float]], when: str, seeds: int) -> Claim:
    """The claim that a method's lines are straight; `changes`: of each stage looked at, a number a run."""
    means = {stage: float(np.mean(values)) for stage, values in changes.items()}
    text = f"{name} keeps its accuracy whatever the confounder's strength {when}"
    worst = max(means, key=lambda stage: means[stage])
    why = f"accuracy moves by {means[worst]:.3f} at most, {worst}; straight: up to {STRAIGHT}"
    return claim(text, means[worst] <= STRAIGHT, why, seeds)


def section(plan: Plan, find: Find) -> Section:
    """A panel a method after the last stage, how far its lines move, and whether they are straight."""
    there = found(plan, find)
    changes = {method: [change(record) for record in of] for method, of in there.items()}
    distances = {method: [away(record) for record in of] for method, of in there.items()}
    return Section(
        "figure3",
        "Figure 3. Sensitivity to the confounder",
        "Trained on all five stages of data set 3, then tested on images in which the confounder has been weakened (it is "
        "weakened in the images and in the values given to the network alike). Who does not use it has straight lines; so "
        "has who knows nothing, hence the distance to theory beside it.",
        [picture(there), table(changes, distances, plan)] if there else [],
        claims(changes, distances),
        command=plan.command("figure3"),
        warnings=missing(runs(plan), find),
    )


def picture(there: Mapping[str, Sequence[Record]]) -> Picture:
    """After the last stage."""
    grid = {"": {method: np.stack([accuracies(record)[-1] for record in of]) for method, of in there.items()}}
    return Picture(
        "The paper: R-MDN does not use the confounder, its lines are straight as the confounder fades from the test "
        "images. Mean over seeds, band: 95 % interval; after the last stage of data set 3.",
        panels.by_strength(grid, STRENGTHS),
        f"A panel for each of {', '.join(there)}: accuracy over the confounder's strength, a line for each stage's test.",
    )


def table(changes: Scores, distances: Scores, plan: Plan) -> Table:
    """How far the lines move, and how far they are from theory."""
    return Table(
        "After the last stage, mean over the five tests; standard deviation over seeds.",
        ["Method", "Largest change of accuracy", "Distance to theory over all strengths"],
        [[method, cell(changes.get(method, [])), cell(distances.get(method, []))] for method in plan.rows(table1.METHODS)],
        [
            tested(kruskal_conover, "Change, Kruskal-Wallis and Conover with Bonferroni", changes, "R-MDN"),
            tested(kruskal_conover, "Distance, Kruskal-Wallis and Conover with Bonferroni", distances, "R-MDN"),
        ],
    )


def claims(changes: Scores, distances: Scores) -> list[Claim]:
    """Straight lines of ours, and the nearest to theory whatever the strength."""
    made = []
    for ours in OURS:
        if ours in changes:
            last = {"after the last stage": changes[ours]}
            made.append(straight(ours, last, "in the test images", len(changes[ours])))
            rivals = {method: values for method, values in distances.items() if method == ours or method != table1.OURS}
            made.append(least(f"{ours} is nearest to theory over all strengths", {"distance": rivals}, ours))
    return made


register(Experiment("figure3", "Figure 3. Sensitivity to the confounder", {"quick": 3, "paper": 80}, runs, section))

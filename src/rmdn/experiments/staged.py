"""Runs over stages in groups (data sets, numbers of epochs): their numbers, pictures and claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rmdn.experiments import panels, significance, table1
from rmdn.experiments.experiment import Find
from rmdn.experiments.run import Run
from rmdn.experiments.store import Record
from rmdn.experiments.summary import dependences, distances, records
from rmdn.report import Claim, Picture

OURS = ("R-MDN", table1.OURS)
Groups = Mapping[str, Mapping[str, Sequence[Record]]]  # of each group: of each method
Measure = Callable[[Record], float]


def found(wanted: Mapping[str, Mapping[str, Iterable[Run]]], find: Find) -> dict[str, dict[str, list[Record]]]:
    """The records of every group, of each method that has some."""
    return {
        group: {method: there for method, runs in of.items() if (there := records(list(runs), find))}
        for group, of in wanted.items()
    }


def measured(groups: Groups, measure: Measure) -> dict[str, dict[str, list[float]]]:
    """A number of each run."""
    return {
        group: {method: [measure(one) for one in of] for method, of in there.items()} for group, there in groups.items()
    }


def accuracy(record: Record) -> NDArray[np.float64]:
    """R: on each stage's test (column) after each stage (row). (S, S)"""
    return np.asarray(record["R"], dtype=float)


def dependence(record: Record) -> NDArray[np.float64]:
    """dcor2 on each stage's test after each stage, mean over the classes that have one. (S, S)"""
    values = dependences(record)
    classes = np.isfinite(values).sum(-1)
    return np.asarray(np.where(classes, np.nansum(values, -1) / np.maximum(classes, 1), np.nan))


def mean_dependence(record: Record) -> float:
    """The same, mean over all tests after all stages."""
    values = dependence(record)
    return float(values[np.isfinite(values)].mean()) if np.isfinite(values).any() else float("nan")


def nearness(record: Record) -> float:
    """How far accuracy is from theory's, mean over all tests after all stages."""
    return float(np.abs(accuracy(record) - np.asarray(record["best"])).mean())


def above_theory(record: Record) -> NDArray[np.float64]:
    """Accuracy on each stage's test after the last stage, less what is possible without the confounder. (S,)"""
    return np.asarray(accuracy(record)[-1] - np.asarray(record["best"]))


def backward(record: Record) -> float:
    """BWTd."""
    return distances(record).BWTd


def forward(record: Record) -> float:
    """FWTd."""
    return distances(record).FWTd


def transfer(groups: Groups, caption: str) -> list[Picture]:
    """Bars of BWTd and FWTd with stars against R-MDN; none where there are no runs."""
    groups = {group: there for group, there in groups.items() if there}
    if not groups:
        return []
    measures = {"BWTd": measured(groups, backward), "FWTd": measured(groups, forward)}
    marks = {
        name: {group: significance.against(scores, "R-MDN") for group, scores in of.items()}
        for name, of in measures.items()
    }
    caption = f"{caption} The closer to 0, the better. Mean and standard deviation over seeds. {significance.LEGEND}"
    return [
        Picture(caption, panels.bars(measures, marks), f"Bars of BWTd and FWTd of each method for {', '.join(groups)}.")
    ]


def stage_by_stage(groups: Groups, letter: str = "") -> list[Picture]:
    """Accuracy and dcor2 on every stage's test after every stage; none where there are no runs."""
    groups = {group: there for group, there in groups.items() if there}
    if not groups:
        return []

    def stacked(matrix: Callable[[Record], NDArray[np.float64]]) -> dict[str, dict[str, NDArray[np.float64]]]:
        return {
            group: {method: np.stack([matrix(one) for one in of]) for method, of in there.items()}
            for group, there in groups.items()
        }

    theory = {group: next(iter(there.values()))[0]["best"] for group, there in groups.items()}
    seen = f"for {', '.join(groups)} (rows) and each method (columns), stage by stage."
    return [
        Picture(
            f"{letter}The paper: R-MDN's accuracy follows what is possible without the confounder (dotted) on all stages' "
            "tests. Mean over seeds and 95 % interval.",
            panels.stage_by_stage(stacked(accuracy), "accuracy", theory),
            f"Accuracy {seen}",
        ),
        Picture(
            f"{letter}The paper: R-MDN's features depend least on the confounder. dcor2 within classes, before the last "
            "layer (none where features are constant); mean over seeds and 95 % interval.",
            panels.stage_by_stage(stacked(dependence), "dcor$^2$ of features and confounder, within classes"),
            f"Squared distance correlation {seen}",
        ),
    ]


def least_claims(groups: Groups, measures: Mapping[str, Measure], where: str) -> list[Claim]:
    """For the paper's method and for ours: that it is nearest to zero among the published methods, by each measure."""
    return [
        significance.least(
            f"{ours} {text} {where}",
            {
                group: {method: values for method, values in scores.items() if method == ours or method != table1.OURS}
                for group, scores in measured(groups, measure).items()
            },
            ours,
        )
        for ours in OURS
        if any(ours in there for there in groups.values())
        for text, measure in measures.items()
    ]

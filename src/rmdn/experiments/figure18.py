"""Figure 18: the sensitivity to the confounder's strength after each stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rmdn.experiments import panels
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.figure3 import OURS, STRENGTHS, accuracies, change, found, runs, straight
from rmdn.experiments.store import Record
from rmdn.experiments.summary import missing
from rmdn.report import Claim, Picture, Section


def section(plan: Plan, find: Find) -> Section:
    """A row a method, a column a stage trained on."""
    there = found(plan, find)
    return Section(
        "figure18",
        "Figure 18. Sensitivity after each stage",
        "Figure 3 for all stages of data set 3.",
        [picture(there)] if there else [],
        claims(there),
        command=plan.command("figure18"),
        warnings=missing(runs(plan), find),
    )


def picture(there: Mapping[str, Sequence[Record]]) -> Picture:
    """All stages."""
    stages = len(next(iter(there.values()))[0]["R"])
    grid = {
        method: {f"after stage {i + 1}": np.stack([accuracies(record)[i] for record in of]) for i in range(stages)}
        for method, of in there.items()
    }
    return Picture(
        "The paper: after every stage R-MDN's lines are straight, and other methods' are not. Mean over seeds, band: 95 "
        "% interval.",
        panels.by_strength(grid, STRENGTHS),
        f"Rows {', '.join(there)}, columns the stage trained on: accuracy over the confounder's strength.",
    )


def claims(there: Mapping[str, Sequence[Record]]) -> list[Claim]:
    """Straight lines after every stage."""
    return [
        straight(
            ours,
            {
                f"after stage {i + 1}": [change(record, i) for record in there[ours]]
                for i in range(len(there[ours][0]["R"]))
            },
            "after every stage",
            len(there[ours]),
        )
        for ours in OURS
        if ours in there
    ]


register(Experiment("figure18", "Figure 18. Sensitivity after each stage", {"quick": 3, "paper": 80}, runs, section))

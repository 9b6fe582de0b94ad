"""Figure 13: Table 6 as bars, with the differences from R-MDN that are significant."""

from __future__ import annotations

from rmdn.experiments import brains, panels, significance
from rmdn.experiments.brains import OURS
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.summary import missing
from rmdn.experiments.table6 import ACCURACY, BOYS, GAP, GIRLS, Scores, runs, scores
from rmdn.report import Part, Picture, Section

PANELS = {
    "a. accuracy in percent": {"": ACCURACY},
    "b. TPR \N{MINUS SIGN} TNR": {"": GAP},
    "c. dcor² of features and PDS": {"boys": BOYS, "girls": GIRLS},
}


def section(plan: Plan, find: Find) -> Section:
    """The three panels."""
    found = {method: of for method, of in scores(plan, find).items() if of[ACCURACY]}
    return Section(
        "figure13",
        "Figure 13. ABCD: accuracy, fairness, dependence",
        "The runs of Table 6, under which its claims stand.",
        drawn(found) if found else [],
        command=plan.command("figure13"),
        warnings=missing(runs(plan), find),
    )


def drawn(found: Scores) -> list[Part]:
    """Bars of means over repetitions, marked where a method differs from R-MDN."""
    values = {
        panel: {group: {method: of[measure] for method, of in found.items()} for group, measure in groups.items()}
        for panel, groups in PANELS.items()
    }
    marks = {
        panel: {group: significance.against(of, OURS) for group, of in groups.items()} for panel, groups in values.items()
    }
    caption = f"Mean and standard deviation over repetitions, each the mean of its folds. {significance.LEGEND}"
    return [Picture(caption, panels.bars(values, marks), "Bars of each method in three panels; Table 6 has the numbers.")]


register(
    Experiment(
        "figure13",
        "Figure 13. ABCD: accuracy, fairness, dependence",
        brains.ABCD_MINUTES,
        runs,
        section,
        needs=brains.ABCD_NEEDS,
    )
)

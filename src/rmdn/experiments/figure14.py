"""Figure 14: HAM10000, Table 4's four measures as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmdn.experiments import ham10000, table4
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.ham10000 import LAST, Scores
from rmdn.experiments.run import Run
from rmdn.experiments.summary import claim, missing
from rmdn.report import Claim, Picture, Section, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Figure 14. HAM10000: measures after the last stage"
CAPTION = (
    "Bars: mean over the stages' test sets; lines: standard deviation over these test sets, as in the paper. Diamonds: the"
    " paper's means. Lower dcor² and higher BWT and FWT are better; a higher accuracy may come of looking at age."
)
ALT = (
    "Four panels of horizontal bars, one for each measure, with a bar for each method and a diamond where the paper has it."
)


def runs(plan: Plan) -> list[Run]:
    """Table 4's main runs."""
    return [run for name in ham10000.chosen(plan) for run in ham10000.runs_of(name, plan)]


def section(plan: Plan, find: Find) -> Section:
    """The four panels, and what the paper reads in them."""
    found = ham10000.found_scores(plan, find)
    return Section(
        "figure14",
        TITLE,
        "The numbers of Table 4.",
        [Picture(CAPTION, picture(found), ALT)] if found else [],
        claims(found),
        command=plan.command("figure14"),
        warnings=missing(runs(plan), find),
    )


@style.drawing()
def picture(found: dict[str, Scores]) -> Figure:
    """A panel for each measure, a bar for each method."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 1.2 + 0.3 * len(found)))
    panels = figure.subplots(1, len(table4.MEASURES), sharey=True)
    looks = style.looks(list(found))
    for i, (axes, (measure, title)) in enumerate(zip(panels, table4.MEASURES.items(), strict=True)):
        for row, (name, of_name) in enumerate(found.items()):
            by_set = of_name.by_set(measure)
            by_set = by_set[np.isfinite(by_set)]
            spread = by_set.std(ddof=1) if len(by_set) > 1 else 0.0
            axes.barh(row, of_name.mean(measure), xerr=spread, ecolor=style.GREY, **looks[name].bar)
            if name in table4.PUBLISHED:
                axes.plot(table4.PUBLISHED[name][2 * i], row, "D", color="white", markeredgecolor="black", markersize=5)
        axes.axvline(0, color=style.GREY, linewidth=0.8)
        axes.set(title=title, yticks=range(len(found)), yticklabels=list(found))
        axes.grid(axis="y", visible=False)
    panels[0].invert_yaxis()
    return figure


def claims(found: dict[str, Scores]) -> list[Claim]:
    """What the paper reads in the figure."""
    return [_early(found), *(_better_than(found, name) for name in ("Plain", "BR-Net", "P-MDN"))]


def _early(found: dict[str, Scores]) -> Claim:
    text = f"The base model transfers less backward to the first two stages than {LAST}"
    if not {"Plain", LAST} <= found.keys():
        return claim(text, None, "not enough runs", 0)
    base, ours = (float(found[name].by_set("BWT")[:2].mean()) for name in ("Plain", LAST))
    return claim(text, base < ours, f"BWT {base:.4f} and {ours:.4f}", min(found["Plain"].seeds, found[LAST].seeds))


def _better_than(found: dict[str, Scores], other: str) -> Claim:
    text = f"{LAST} has a lower dcor² and a higher BWT than {'the base model' if other == 'Plain' else other}"
    if not {other, LAST} <= found.keys():
        return claim(text, None, "not enough runs", 0)
    ours, theirs = found[LAST], found[other]
    dcor2, BWT = ([one.mean(measure) for one in (ours, theirs)] for measure in ("dcor2", "BWT"))
    holds = dcor2[0] < dcor2[1] and BWT[0] > BWT[1] if np.isfinite(dcor2).all() else None
    why = f"dcor² {dcor2[0]:.4f} and {dcor2[1]:.4f}, BWT {BWT[0]:.4f} and {BWT[1]:.4f}"
    return claim(text, holds, why, min(ours.seeds, theirs.seeds))


register(Experiment("figure14", TITLE, table4.MINUTES, runs, section, needs=table4.NEEDS))

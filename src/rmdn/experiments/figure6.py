"""Figure 6: the regions by which ABCD's networks tell boys from girls, without and with R-MDN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmdn.experiments import brains
from rmdn.experiments.brains import OURS, PLAIN
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.run import Run
from rmdn.experiments.saliency import regions
from rmdn.experiments.summary import claim, missing, records
from rmdn.metrics import Saliency
from rmdn.report import Claim, Part, Picture, Section, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = (PLAIN, OURS)
ATLAS = "aal"  # unlike the Harvard-Oxford atlas, which the paper names, it has a cerebellum


def runs(plan: Plan) -> list[Run]:
    """Table 6's runs of the two methods."""
    return [run for method in plan.rows(METHODS) for folds in brains.abcd_runs(method, plan) for run in folds]


def found_regions(plan: Plan, find: Find, atlas: str) -> dict[str, Saliency]:
    """The top regions of each method that has runs, from the mean of their maps."""
    found = {}
    for method in plan.rows(METHODS):
        there = regions([one for folds in brains.abcd_runs(method, plan) for one in records(folds, find)], atlas)
        if there is not None:
            found[method] = there
    return found


def repetitions(plan: Plan, find: Find) -> int:
    """How many repetitions both methods have."""
    return min(sum(bool(records(folds, find)) for folds in brains.abcd_runs(method, plan)) for method in METHODS)


def section(plan: Plan, find: Find) -> Section:
    """The regions as bars, and what the paper says of them."""
    found = {method: saliency.regions for method, saliency in found_regions(plan, find, ATLAS).items()}
    parts: list[Part] = []
    if found:
        parts.append(
            Picture(
                "The ten regions of the AAL atlas with the highest mean saliency, from the test images of all folds and "
                "repetitions: absolute gradient of the predicted class, thresholded at 0.05, smoothed over about 15 mm. "
                "Hatched: cerebellum.",
                picture(found),
                "; ".join(f"{method}: {', '.join(of)}" for method, of in found.items()),
            )
        )
    return Section(
        "figure6",
        "Figure 6. ABCD: regions that tell boys from girls",
        "The cerebellum is the region most affected by the confounder. The paper names the Harvard atlas, which in its "
        "common form has no cerebellum; the regions here are those of AAL, and Figure 17 has Harvard-Oxford's.",
        parts,
        claims(found, repetitions(plan, find)),
        command=plan.command("figure6"),
        warnings=missing(runs(plan), find),
    )


@style.drawing()
def picture(found: dict[str, dict[str, float]]) -> Figure:
    """Bars to the right, the most salient region on top; a panel a method."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * len(found), 3.6))
    for (method, of), ax in zip(found.items(), figure.subplots(1, len(found), squeeze=False)[0], strict=True):
        for place, (name, value) in enumerate(of.items()):
            hatch = "//" if in_cerebellum(name) else ""
            ax.barh(place, value, color=style.COLOURS[6], edgecolor="black", linewidth=0.5, hatch=hatch)
        ax.set_yticks(range(len(of)), list(of))
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
        ax.set(title=method, xlabel="mean saliency")
    return figure


def in_cerebellum(region: str) -> bool:
    """By the atlas's own spelling of its hemispheres and of the vermis between them."""
    return region.startswith(("Cerebelum", "Cerebellum", "Vermis"))


def claims(found: dict[str, dict[str, float]], count: int) -> list[Claim]:
    """What the paper says of the cerebellum."""
    wanted = {
        PLAIN: ("The base network uses the cerebellum: it is among its ten most salient regions", True),
        OURS: ("R-MDN does not use the cerebellum: it is not among its ten most salient regions", False),
    }
    made = []
    for method, (text, expected) in wanted.items():
        if method not in found:
            made.append(claim(text, None, "no runs", 0))
            continue
        places = [place for place, name in enumerate(found[method], start=1) if in_cerebellum(name)]
        why = f"{len(places)} of ten regions are in it" + (f", the first in place {places[0]}" if places else "")
        made.append(claim(text, bool(places) == expected, why, count))
    return made


register(
    Experiment(
        "figure6",
        "Figure 6. ABCD: regions that tell boys from girls",
        {scale: minutes / 3 for scale, minutes in brains.ABCD_MINUTES.items()},
        runs,
        section,
        needs=brains.ABCD_NEEDS,
    )
)

"""Figure 17: the same regions as Figure 6 in a glass brain, by the paper's atlas."""

from __future__ import annotations

import io

from rmdn.experiments import brains
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.figure6 import found_regions, runs
from rmdn.experiments.summary import missing
from rmdn.metrics import Saliency, glass_brain
from rmdn.report import Picture, Section

ATLAS = "harvard_oxford"


def section(plan: Plan, find: Find) -> Section:
    """A glass brain for each of the two methods."""
    return Section(
        "figure17",
        "Figure 17. ABCD: the regions in a glass brain",
        "The ten most salient regions of the Harvard-Oxford atlas, each filled with its mean saliency.",
        [
            Picture(
                f"{method}: {', '.join(found.regions)}.", drawn(found, method), f"Glass brain of {method}'s top regions"
            )
            for method, found in found_regions(plan, find, ATLAS).items()
        ],
        command=plan.command("figure17"),
        warnings=missing(runs(plan), find),
    )


def drawn(found: Saliency, title: str) -> bytes:
    """A PNG: the outline of a brain has too many strokes for an SVG."""
    display = glass_brain(found, atlas=ATLAS, title=title)
    file = io.BytesIO()
    display.frame_axes.figure.savefig(file, dpi=130)
    display.close()
    return file.getvalue()


register(
    Experiment(
        "figure17",
        "Figure 17. ABCD: the regions in a glass brain",
        {scale: minutes / 3 for scale, minutes in brains.ABCD_MINUTES.items()},
        runs,
        section,
        needs=brains.ABCD_NEEDS,
    )
)

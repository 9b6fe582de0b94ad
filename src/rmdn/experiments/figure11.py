"""Figure 11: the ages of ADNI's groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rmdn.experiments import brains
from rmdn.experiments.brains import GROUPS
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.table9 import runs, verdict
from rmdn.extras import need
from rmdn.report import Picture, Section, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALPHA = 0.05


def section(plan: Plan, find: Find) -> Section:
    """The distributions, and whether they differ: then age can confound."""
    scans = brains.scans(plan)
    ages = {group: scans["age"][scans["label"] == group].dropna().to_numpy(float) for group in GROUPS}
    p = float(need("scipy.stats", "study").kruskal(*ages.values()).pvalue)
    means = ", ".join(f"{group} {values.mean():.1f}" for group, values in ages.items())
    return Section(
        "figure11",
        "Figure 11. ADNI: age in the groups",
        "What the data are, before any training.",
        [
            Picture(
                f"Distribution of age at the scan, by group; the area under each curve is one. Mean ages: {means}.",
                picture(ages),
                f"Three curves over age that overlap for the most part. Means: {means}.",
            )
        ],
        [verdict("The groups differ in age (Kruskal-Wallis test over scans)", p, p < ALPHA)],
        command=plan.command("figure11"),
        warnings=brains.stand_in_note("adni"),
    )


@style.drawing()
def picture(ages: dict[str, Any]) -> Figure:
    """A smooth curve for each group."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.4))
    ax = figure.subplots()
    every = np.concatenate(list(ages.values()))
    places = np.linspace(every.min() - 3, every.max() + 3, 200)
    for (group, look), values in zip(style.looks(list(ages)).items(), ages.values(), strict=True):
        density = need("scipy.stats", "study").gaussian_kde(values)(places)
        ax.plot(places, density, label=f"{group} ({len(values):,} scans)", markevery=25, **look.line)
    ax.set(xlabel="age in years", ylabel="density", ylim=(0, None))
    ax.legend()
    return figure


register(Experiment("figure11", "Figure 11. ADNI: age in the groups", {"quick": 0, "paper": 0}, runs, section))

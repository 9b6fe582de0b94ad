"""Figure 19: accuracy and dependence stage by stage, with fewer and more epochs a stage."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rmdn.experiments import staged
from rmdn.experiments.epochs import runs, wanted
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.store import Record
from rmdn.experiments.summary import claim, missing
from rmdn.report import Claim, Section

FREE = 0.05  # dcor2 up to which features are called free of the confounder


def section(plan: Plan, find: Find) -> Section:
    """Rows of epochs, columns of methods."""
    groups = staged.found(wanted(plan), find)
    return Section(
        "figure19",
        "Figure 19. Accuracy and dependence by epochs a stage",
        "Data set 3. The paper's text does not name its numbers of epochs; the last one here is Table 1's.",
        staged.stage_by_stage(groups),
        claims(groups),
        command=plan.command("figure19"),
        warnings=missing(runs(plan), find),
    )


def claims(groups: staged.Groups) -> list[Claim]:
    """With the fewest epochs; and the nearest to theory with every number of them."""
    epochs, fewest = next(iter(groups.items()))
    only = [only_free("R-MDN", epochs, fewest)] if "R-MDN" in fewest else []
    near = {"comes nearest to theory's accuracy over all stages": staged.nearness}
    return [*only, *staged.least_claims(groups, near, "with every number of epochs")]


def only_free(ours: str, epochs: str, there: Mapping[str, Sequence[Record]]) -> Claim:
    """The claim that ours alone takes the confounder's influence out."""
    means = {
        method: float(np.mean([staged.mean_dependence(record) for record in of]))
        for method, of in there.items()
        if method == ours or method not in staged.OURS
    }
    others = [f"{method} {mean:.3f}" for method, mean in means.items() if method != ours]
    holds = means[ours] <= FREE and all(mean > FREE for method, mean in means.items() if method != ours)
    return claim(
        f"With {epochs} a stage {ours} alone removes the confounder's influence from the features",
        holds if others and all(map(math.isfinite, means.values())) else None,
        f"dcor2 {ours} {means[ours]:.3f}, {', '.join(others) or 'no other method'}; free: up to {FREE}",
        min(len(there[method]) for method in means),
    )


register(
    Experiment(
        "figure19", "Figure 19. Accuracy and dependence by epochs a stage", {"quick": 4, "paper": 270}, runs, section
    )
)

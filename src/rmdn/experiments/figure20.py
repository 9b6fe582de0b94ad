"""Figure 20: transfer between stages, with fewer and more epochs a stage."""

from __future__ import annotations

from rmdn.experiments import staged
from rmdn.experiments.epochs import runs, wanted
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.summary import missing
from rmdn.report import Claim, Section


def section(plan: Plan, find: Find) -> Section:
    """Bars of transfer, a group a number of epochs."""
    groups = staged.found(wanted(plan), find)
    caption = "The paper: R-MDN transfers best to stages still to come, with few epochs a stage and with many."
    return Section(
        "figure20",
        "Figure 20. Transfer by epochs a stage",
        "Data set 3, the runs of Figure 19.",
        staged.transfer(groups, caption),
        claims(groups),
        command=plan.command("figure20"),
        warnings=missing(runs(plan), find),
    )


def claims(groups: staged.Groups) -> list[Claim]:
    """For the fewest and for the most epochs."""
    forward = {"has the best forward transfer (FWTd)": staged.forward}
    fewest, *_, most = groups
    return [
        claim
        for epochs in (fewest, most)
        for claim in staged.least_claims({epochs: groups[epochs]}, forward, f"with {epochs} a stage")
    ]


register(Experiment("figure20", "Figure 20. Transfer by epochs a stage", {"quick": 4, "paper": 270}, runs, section))

"""Figure 16: where in the network R-MDN stands, on the static synthetic data."""

from __future__ import annotations

from collections.abc import Mapping

from rmdn.experiments import static, static_picture
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.run import Recipe, Run
from rmdn.experiments.static import Outcomes
from rmdn.experiments.summary import claim, missing
from rmdn.metrics import anova_tukey
from rmdn.report import Claim, Picture, Section

LAYERS = ("conv1", "conv2", "fc1")
PLACES = (
    *(("conv1",), ("conv2",), ("fc1",)),
    *(("conv1", "conv2"), ("conv1", "fc1"), ("conv2", "fc1")),
    LAYERS,  # after every convolution and the pre-logits layer: the paper's choice, whose runs are Table 7's
)
HIGH = 0.1  # of dcor2, above which removal is not "consistently high"


def runs_of(places: tuple[str, ...], plan: Plan) -> list[Run]:
    """The seeds at one placement."""
    arguments = {} if places == LAYERS else {"at": list(places)}
    return static.runs(Recipe("R-MDN", arguments), static.ONE_SIZE, plan)


def runs(plan: Plan) -> list[Run]:
    """Every placement."""
    return [run for places in PLACES if plan.chosen(["R-MDN"]) for run in runs_of(places, plan)]


def section(plan: Plan, find: Find) -> Section:
    """The picture, its numbers and what they say."""
    found = {name(places): static.outcomes(runs_of(places, plan), find) for places in PLACES}
    there = any(map(len, found.values()))
    picture = (
        Picture("Mean and 95 % interval over seeds.", static_picture.picture(found, LABEL, joined=False), ALT)
        if there
        else None
    )
    return Section(
        "figure16",
        "Figure 16. Where R-MDN stands",
        "R-MDN behind some of the network's layers, on the static data; fc1 is the pre-logits layer. The paper leaves out "
        f"its batch size: here {static.ONE_SIZE}.",
        [*([picture] if picture else []), static_picture.table("Behind", found)],
        [sensitive(found), consistent(found), best(found)],
        command=plan.command("figure16"),
        warnings=missing(runs(plan), find),
    )


LABEL = "R-MDN behind"
ALT = "Left: balanced accuracy for each placement, with theory's line. Right: dcor2 in both groups for each placement."


def name(places: tuple[str, ...]) -> str:
    """A placement as the axis has it: a layer a line."""
    return "\n".join(places)


def sensitive(found: Mapping[str, Outcomes]) -> Claim:
    """Whether accuracy depends on the placement."""
    text = "Accuracy depends on the placement"
    seeds = min(map(len, found.values()))
    if seeds < 2:
        return claim(text, None, "not enough runs", seeds)
    p = anova_tukey({place: one.accuracy for place, one in found.items()}).p_value
    return claim(text, p < 0.05, f"analysis of variance p = {p:.2g}", seeds)


def consistent(found: Mapping[str, Outcomes]) -> Claim:
    """Whether every placement removes the confounder."""
    text = "Every placement removes the confounder from the features"
    seeds = min(map(len, found.values()))
    if not seeds:
        return claim(text, None, "not enough runs", 0)
    means = {place: one.dependence for place, one in found.items()}
    worst = max(means, key=means.__getitem__)
    why = f"mean dcor2 at most {means[worst]:.3f}, behind {' and '.join(worst.split())}; removed: at most {HIGH}"
    return claim(text, means[worst] <= HIGH, why, seeds)


def best(found: Mapping[str, Outcomes]) -> Claim:
    """Whether the paper's placement is the best trade-off."""
    text = "Behind every convolution and the pre-logits layer is the best trade-off of accuracy and removal"
    seeds = min(map(len, found.values()))
    if not seeds:
        return claim(text, None, "not enough runs", 0)
    losses = {place: one.deviation / 100 + one.dependence for place, one in found.items()}
    first = min(losses, key=losses.__getitem__)
    ours = losses[name(LAYERS)]
    why = f"|bAcc - A| + dcor2 is {ours:.3f}; smallest {losses[first]:.3f}, behind {' and '.join(first.split())}"
    return claim(text, first == name(LAYERS), why, seeds)


register(Experiment("figure16", "Figure 16. Where R-MDN stands", {"quick": 1, "paper": 1600}, runs, section))

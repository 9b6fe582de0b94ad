"""The demonstration: data in which a confounder tempts more and more, and who gives in to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import rmdn
from rmdn.data import synthetic
from rmdn.experiments import measures, methods, problems
from rmdn.experiments.continual import DELTAS
from rmdn.metrics import transfer_distances
from rmdn.models import CNN2d
from rmdn.report import Cell, Claim, Picture, Report, Section, Table, style
from rmdn.training import Settings, train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = ("Plain", "R-MDN", "Guarded R-MDN")
SETTINGS: dict[str, Any] = {"epochs": 8, "batch_size": 64, "decay_every": 3}
STRENGTHS = (*DELTAS, 1.0)
CERTAIN = 3.0  # standard errors of a share of right answers: beyond them it is no chance


@dataclass(frozen=True)
class Behaviour:
    """What one network does on test images."""

    R: Tensor  # (S, S): accuracy on stage j's test images after training on stage i
    by_strength: list[float]  # after the last stage, on its test images, with the confounder at each of STRENGTHS
    dependence: float  # dcor2 of its features and the confounder there, the mean of the two groups
    seconds: float


@dataclass(frozen=True)
class Findings:
    """All networks, beside what is possible without the confounder."""

    best: list[float]  # of each stage
    settings: dict[str, Any]
    images: int  # of each stage's test set
    networks: dict[str, Behaviour]

    @property
    def margin(self) -> float:
        """How far chance alone moves the accuracy on the last stage's test images."""
        return CERTAIN * math.sqrt(self.best[-1] * (1 - self.best[-1]) / self.images)


def run(
    names: Sequence[str] = METHODS,
    *,
    epochs: int = SETTINGS["epochs"],
    per_group: int = 1024,
    seed: int = 0,
    announce: Callable[[str], None] | None = None,
) -> Findings:
    """Train a network by each method, from the same weights, over the five stages of data set 1.

    Args:
        names: methods of `methods.py`.
        epochs: of each stage.
        per_group: images of each group in a stage's training and in its test set.
        seed: of images, weights and the order of training.
        announce: told of each method before its training begins.
    """
    problem = problems.make("continual", {"dataset": 1, "per_group": per_group, "seed": seed, "deltas": DELTAS})
    # Of the weaker confounders only the last stage's are looked at.
    stages = [replace(stage, more_tests={}) for stage in problem.stages[:-1]]
    problem = replace(problem, stages=[*stages, problem.stages[-1]])
    settings = {**SETTINGS, "epochs": epochs, "seed": seed}
    networks = {}
    for name in names:
        if announce:
            announce(name)
        networks[name] = _behaviour(name, problem, settings)
    return Findings(list(problem.best or ()), settings, 2 * per_group, networks)


def _behaviour(name: str, problem: problems.Problem, settings: dict[str, Any]) -> Behaviour:
    torch.manual_seed(settings["seed"])
    method, network = methods.named(name), CNN2d(num_classes=2)
    model, strategy = method.build(network, problem)
    pre_logits = network.pre_logits_name if model is network else f"network.{network.pre_logits_name}"
    how = Settings(**{**settings, **method.settings})
    result = train(model, problem.stages, strategy, how, features=pre_logits)
    _, confounders, labels = problem.stages[-1].test
    last = len(problem.stages) - 1
    of_groups = measures.dependence(result.features[last, last], confounders, labels).values()
    weaker = [float(result.more[problems.delta_name(delta)][last, last]) for delta in DELTAS]
    known = [value for value in of_groups if value is not None]
    return Behaviour(result.R, [*weaker, float(result.R[-1, -1])], sum(known) / len(known), result.seconds)


@style.drawing()
def picture(findings: Findings) -> Figure:
    """Accuracy as the confounder tempts more, and as it is then taken out of the test images."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4))
    stages, strengths = figure.subplots(1, 2, sharey=True)
    numbers = range(1, len(findings.best) + 1)
    for name, look in style.looks(list(findings.networks)).items():
        one = findings.networks[name]
        stages.plot(numbers, one.R.diagonal().tolist(), label=name, **look.line)
        strengths.plot(STRENGTHS, one.by_strength, label=name, **look.line)
    stages.plot(numbers, findings.best, color=style.GREY, linewidth=1)
    strengths.axhline(findings.best[-1], color=style.GREY, linewidth=1)
    stages.annotate(
        "possible without the confounder", (1, findings.best[0]), (0, -12), textcoords="offset points", color=style.GREY
    )
    stages.set(xlabel="stage of training (each test: the stage's own)", ylabel="test accuracy", xticks=numbers)
    stages.set_title("The confounder tells the groups apart better and better")
    strengths.set(xlabel="confounder in the last stage's test images (1: as in training)")
    strengths.set_title("Then it is taken away")
    strengths.legend()
    return figure


def report(findings: Findings, command: str) -> Report:
    """What came out, as a page."""
    settings, seconds = findings.settings, sum(one.seconds for one in findings.networks.values())
    examples = synthetic.continual(1, per_group=2, seed=settings["seed"])
    return Report(
        title="Who cheats? Networks on data with a confounder",
        summary="Every image holds a main effect, on the main diagonal, and a confounder, at the bottom left. Both differ "
        f"between two groups, and only the main effect may be used: whoever does can be right in {findings.best[-1]:.0%} "
        "of the cases, no more. Through five stages the confounder tells the groups apart better and better. Who does "
        "better than is possible has used it, and falls when it is taken away.",
        facts={
            "Data": f"simulated: five stages of {findings.images} training and as many test images",
            "Training": f"{settings['epochs']} epochs a stage, batches of {settings['batch_size']} (the paper: 100, 128)",
            "Seed": str(settings["seed"]),
            "Computing time": f"{seconds:.0f} seconds",
            "Made with": f"rmdn {rmdn.__version__}, torch {torch.__version__}",
        },
        sections=[
            Section(
                "networks",
                "What the networks do",
                parts=[table(findings), Picture(CAPTION, picture(findings), ALT)],
                claims=claims(findings),
                command=command,
            ),
            Section(
                "images", "What they see", parts=[Picture(IMAGES, synthetic.picture(examples, examples=1), IMAGES_ALT)]
            ),
        ],
    )


CAPTION = (
    "Left: accuracy on each stage's own test images, after training on the stage. Right: after the last stage, on its test "
)
CAPTION += "images, in which the confounder is made weaker and weaker."
ALT = "Lines of accuracy for each network beside the line of what is possible without the confounder."
IMAGES = "The first image of each group in each stage, and the strengths of main effect and confounder."
IMAGES_ALT = "Small grey images with bright spots on the diagonal and one at the bottom left."


def table(findings: Findings) -> Table:
    """A row a network."""
    rows: list[list[str | Cell]] = []
    for name, one in findings.networks.items():
        far = transfer_distances(one.R, torch.tensor(findings.best))
        numbers = [one.by_strength[-1], one.by_strength[0], far.ACCd, far.BWTd, far.FWTd, one.dependence]
        rows.append([name, *(Cell(number) for number in numbers)])
    return Table(
        f"After all five stages. Without the confounder an accuracy of {findings.best[-1]:.3f} is possible.",
        ["Network", "Accuracy", "Confounder away", "ACCd", "BWTd", "FWTd", "dcor²"],
        rows,
        [
            "Accuracy: on the last stage's test images, and on the same without the confounder.",
            "ACCd, BWTd, FWTd: distances to what is possible over all stages, as in the paper; nearer 0 is better.",
            "dcor²: how much the features tell of the confounder within the groups, in the last stage; 0 is nothing.",
        ],
    )


def claims(findings: Findings) -> list[Claim]:
    """Who cheats, by a criterion: whether accuracies differ by more than chance explains."""
    made = []
    for name, one in findings.networks.items():
        above, lost = one.by_strength[-1] - findings.best[-1], one.by_strength[-1] - one.by_strength[0]
        cheats, falls = above > findings.margin, lost > findings.margin
        if name == "Plain":
            made += [
                _claim(f"{name} cheats: it does better than is possible without the confounder", cheats, above, findings),
                _claim(f"{name} needs the confounder: it loses accuracy where that is taken away", falls, lost, findings),
            ]
        else:
            made += [
                _claim(f"{name} does not do better than is possible without the confounder", not cheats, above, findings),
                _claim(f"{name} loses nothing where the confounder is taken away", not falls, lost, findings),
            ]
    return made


def _claim(text: str, holds: bool, distance: float, findings: Findings) -> Claim:
    why = (
        f"{distance:+.3f}; chance explains ±{findings.margin:.3f}, {CERTAIN:g} standard errors of {findings.images} images"
    )
    return Claim(text, "holds" if holds else "does not hold", why)

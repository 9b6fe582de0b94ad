"""The static data with its temptation: what a plain network learns from it, and what a deconfounded one."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

import rmdn
from rmdn.data import synthetic
from rmdn.metrics import dcor2_per_class
from rmdn.models import CNN2d, features
from rmdn.report import style
from rmdn.training import Settings, train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Tensors = tuple[Tensor, Tensor, Tensor]  # images, confounders, labels
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
PLACES = ("conv1", "conv2", "fc1")  # after every convolution and the pre-logits layer, as in the paper


@dataclass(frozen=True)
class Behaviour:
    """What one network does on test images."""

    accuracy: list[float]  # after each epoch, and after the end's recalibration
    by_strength: list[float]  # accuracy at each of STRENGTHS of the confounder in the test images
    dependence: list[float]  # dcor2 of pre-logits features and the confounder within each group


@dataclass(frozen=True)
class Findings:
    """Both networks beside what is possible without the confounder."""

    best: float
    networks: dict[str, Behaviour]


def run(*, epochs: int = 12, per_group: int = 1024, seed: int = 0) -> Findings:
    """Train both networks from the same weights on the same images."""
    stage = synthetic.static(per_group, seed=seed)
    weaker = [synthetic.static(per_group, seed=seed, delta=strength).test.tensors() for strength in STRENGTHS]
    settings = Settings(epochs=epochs, batch_size=64, seed=seed, recalibration="stage")
    torch.manual_seed(seed)
    plain = CNN2d(num_classes=2)
    deconfounded = rmdn.deconfound(
        copy.deepcopy(plain),
        at=PLACES,
        num_confounders=1,
        num_classes=2,
        sample=stage.train.images[:2],
        gradient="projected",
        inplace=True,
    )
    networks = {
        name: _behaviour(network, stage, weaker, settings)
        for name, network in {"plain network": plain, "with R-MDN": deconfounded}.items()
    }
    return Findings(stage.best, networks)


def _behaviour(network: nn.Module, stage: synthetic.Stage, weaker: list[Tensors], settings: Settings) -> Behaviour:
    test = stage.test.tensors()
    course: list[float] = []
    train(network, [stage], settings=settings, on_epoch=lambda epoch, now: course.append(accuracy(now, *test)))
    by_strength = [accuracy(network, *tensors) for tensors in weaker]
    return Behaviour([*course, accuracy(network, *test)], by_strength, dependence(network, *test))


@torch.no_grad()
def accuracy(network: nn.Module, images: Tensor, confounders: Tensor, labels: Tensor) -> float:
    """Share of right answers in evaluation mode."""
    training = network.training
    network.eval()
    logits = network(images, confounders=confounders) if _deconfounded(network) else network(images)
    network.train(training)
    return float((logits.argmax(1) == labels).double().mean())


def dependence(network: nn.Module, images: Tensor, confounders: Tensor, labels: Tensor) -> list[float]:
    """Squared distance correlation of the pre-logits features with the confounder, in each group."""
    network.eval()
    if _deconfounded(network):
        seen = features(network, "network.fc1", images, confounders=confounders)
    else:
        seen = features(network, "fc1", images)
    return [float(value) for value in dcor2_per_class(seen, confounders, labels).classes.values()]


def _deconfounded(network: nn.Module) -> bool:
    return isinstance(network, rmdn.Deconfounded)


@style.drawing()
def picture(findings: Findings) -> Figure:
    """Accuracy over training, and as the confounder is taken out of the test images."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4))
    course, strength = figure.subplots(1, 2, sharey=True)
    looks = style.looks(["Plain", "R-MDN"]).values()
    for (name, one), look in zip(findings.networks.items(), looks, strict=True):
        course.plot(range(1, len(one.accuracy)), one.accuracy[:-1], label=name, **{**look.line, "marker": ""})
        course.plot(len(one.accuracy) - 1, one.accuracy[-1], **look.line)
        strength.plot(STRENGTHS, one.by_strength, label=name, **look.line)
    for axes in (course, strength):
        axes.axhline(findings.best, color=style.GREY, linewidth=1)
    course.text(1, findings.best + 0.004, "possible without the confounder", color=style.GREY, fontsize=9)
    course.set(xlabel="epoch (mark: after recalibration)", ylabel="test accuracy", title="What training finds")
    strength.set(xlabel="confounder in the test images (1: as in training)", title="What is left without it")
    strength.legend()
    return figure

"""One run of an experiment: what determines it, its key, and how it is carried out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rmdn.deconfound import Deconfounded
from rmdn.experiments import measures, methods, problems, saliency
from rmdn.experiments.code import code_of, code_of_function, digest
from rmdn.models import build
from rmdn.training import Epoch, Settings, train

if TYPE_CHECKING:
    from rmdn.experiments.store import Store

# Raised when what a run writes down changes its meaning: then every run is made anew.
FORM = 1


@dataclass(frozen=True)
class Recipe:
    """A name from a registry (or an import path) and the arguments to it: plain numbers, texts and lists."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """All that determines a run. Two runs that are equal are made once."""

    data: Recipe
    network: Recipe  # an import path; the sizes come from the data
    method: Recipe
    settings: Mapping[str, Any]  # of `rmdn.training.Settings`, without the seed
    seed: int  # of the weights and of training; the data have their own
    also: Sequence[str] = ()  # costly: "course" (dcor2 after each epoch), "features" and "saliency" (kept for pictures)

    @property
    def key(self) -> str:
        """What tells settings apart: 16 hexadecimal digits."""
        return digest({"form": FORM, **self.plain()})

    @property
    def code(self) -> str:
        """What tells versions of the code apart on which the run's numbers rest: 8 hexadecimal digits."""
        method = methods.named(self.method.name)
        modules = {*problems.CODE.get(self.data.name, ()), *method.code}
        makers = [problems.PROBLEMS.get(self.data.name), method.build]
        return digest([*map(code_of, sorted(modules)), *map(code_of_function, filter(None, makers))])[:8]

    def plain(self) -> dict[str, Any]:
        """The run as JSON knows it."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self), sort_keys=True))
        return plain


def make(
    data: Recipe,
    network: Recipe,
    method: str | Recipe,
    settings: Mapping[str, Any],
    seed: int,
    also: Sequence[str] = (),
) -> Run:
    """A run with the method's own settings in place of the experiment's."""
    recipe = Recipe(method) if isinstance(method, str) else method
    return Run(data, network, recipe, {**settings, **methods.named(recipe.name).settings}, seed, tuple(also))


def execute(run: Run, store: Store) -> None:
    """Make the run and write its record; a killed one goes on where it stopped."""
    problem = problems.make(run.data.name, run.data.arguments)
    torch.manual_seed(run.seed)
    network = build(
        run.network.name,
        image_size=list(problem.image_size),
        in_channels=problem.in_channels,
        num_classes=problem.num_classes,
        **run.network.arguments,
    )
    model, strategy = methods.named(run.method.name).build(network, problem, **run.method.arguments)
    pre_logits = f"network.{network.pre_logits_name}" if isinstance(model, Deconfounded) else str(network.pre_logits_name)
    folder = store.unfinished(run)
    course = measures.Course(folder / "course.jsonl", problem, strategy, pre_logits) if "course" in run.also else None

    def on_epoch(epoch: Epoch, now: nn.Module) -> None:
        if course is not None:
            course.add(epoch, now)

    result = train(
        model,
        problem.stages,
        strategy,
        Settings(seed=run.seed, **run.settings),
        folder=folder,
        keep_logits=True,
        features=pre_logits,
        on_epoch=on_epoch,
        progress=False,
    )
    record = measures.record(result, problem, strategy)
    if course is not None:
        record["course"] = course.read()
    arrays = dict(measures.kept_features(result, problem)) if "features" in run.also else {}
    if "saliency" in run.also:
        arrays.update(saliency.kept(model, strategy, problem))
    store.write(run, record, arrays or None)

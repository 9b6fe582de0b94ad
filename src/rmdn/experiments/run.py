"""One run of an experiment: what determines it, its key, and how it is carried out."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import json
import runpy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rmdn.deconfound import Deconfounded
from rmdn.errors import SettingError
from rmdn.experiments import measures, methods, problems, saliency
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
    also: Sequence[
        str
    ] = ()  # costly measures: "course" (dcor2 after each epoch), "features" and "saliency" (kept for pictures)

    @property
    def key(self) -> str:
        """What tells settings apart: 16 hexadecimal digits."""
        return digest({"form": FORM, **self.plain()})

    @property
    def code(self) -> str:
        """What tells versions of the code apart on which the run's numbers rest: 8 hexadecimal digits."""
        modules = [*problems.CODE.get(self.data.name, ()), *methods.named(self.method.name).code]
        return digest([code_of(module) for module in sorted(set(modules))])[:8]

    def plain(self) -> dict[str, Any]:
        """The run as JSON knows it."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self), sort_keys=True))
        return plain


def digest(value: Any) -> str:
    """A short name for a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


@functools.cache
def code_of(module: str) -> str:
    """A module's code, whatever its comments, docstrings and line breaks."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise SettingError(f"There is no module {module!r}, whose code was named as part of a run.")
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [part for part in node.body if not _is_text(part)]
    return ast.unparse(tree)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


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


def load_plugins(files: Sequence[str]) -> None:
    """Run the user's files, which register methods, problems and experiments."""
    for file in files:
        if not Path(file).is_file():
            raise SettingError(f"There is no plugin file {file}; give the path of a Python file.")
        runpy.run_path(file, run_name="rmdn_plugin")


def execute(run: Run, store: Store, plugins: Sequence[str] = ()) -> None:
    """Make the run and write its record; a killed one goes on where it stopped."""
    load_plugins(plugins)
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

"""Data for the experiments, by name: stages to train on, and what is known of them.

A problem of your own is a function here, or in a file given to `rmdn reproduce --plugin FILE`:

    @problem("mine", "my.module")
    def mine(seed: int = 0) -> Problem: ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from rmdn.data import synthetic
from rmdn.errors import SettingError, near
from rmdn.experiments import plugins


@dataclass(frozen=True)
class ProblemStage:
    """What the training loop takes as a stage."""

    name: str
    train: Any
    test: Any
    more_tests: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """Stages, and what a network for them must know."""

    stages: Sequence[ProblemStage]
    num_confounders: int
    num_classes: int
    in_channels: int
    image_size: tuple[int, ...]
    best: Sequence[float] | None = None  # of each stage: the highest accuracy without the confounder, where known
    stand_in: str = ""  # a sentence, where the data are not the real ones
    affine: Any = None  # (4, 4) from a volume's voxels to millimetres in MNI space, where it is known

    def sample(self) -> Tensor:
        """Two blank images, to run a network dry."""
        return torch.zeros(2, self.in_channels, *self.image_size)


MakeProblem = Callable[..., Problem]
PROBLEMS: dict[str, MakeProblem] = {}
CODE: dict[str, tuple[str, ...]] = {}  # of each problem: the modules that determine its data


def problem(name: str, *code: str) -> Callable[[MakeProblem], MakeProblem]:
    """Register a problem; a change in the modules `code`, or in the plugin file it stands in, makes its runs run anew."""

    def register(make: MakeProblem) -> MakeProblem:
        PROBLEMS[name], CODE[name] = make, (*code, *plugins.own_code(make))
        return make

    return register


def make(name: str, arguments: Mapping[str, Any]) -> Problem:
    """The problem of that name."""
    if name not in PROBLEMS:
        raise SettingError(f"There is no problem {name!r}; {near(name, PROBLEMS)}")
    return PROBLEMS[name](**arguments)


@problem("continual", "rmdn.data.synthetic")
def continual(
    dataset: int, per_group: int = 1024, seed: int = 0, deltas: Sequence[float] = (), shared_draws: bool = False
) -> Problem:
    """The paper's data sets 1 to 3; `deltas`: further test sets, with the confounder at these strengths."""

    def stages(delta: float = 1.0) -> list[synthetic.Stage]:
        return synthetic.continual(dataset, per_group, seed=seed, delta=delta, shared_draws=shared_draws)

    return _synthetic(stages(), {delta: stages(delta) for delta in deltas})


@problem("moving", "rmdn.data.synthetic")
def moving(per_group: int = 512, seed: int = 0) -> Problem:
    """The paper's second continual data set: the confounder moves through the image."""
    return _synthetic(synthetic.moving(per_group, seed=seed), {})


@problem("static", "rmdn.data.synthetic")
def static(per_group: int = 1024, seed: int = 0) -> Problem:
    """The paper's static data set: one stage."""
    return _synthetic([synthetic.static(per_group, seed=seed)], {})


def _synthetic(stages: Sequence[synthetic.Stage], weaker: Mapping[float, Sequence[synthetic.Stage]]) -> Problem:
    return Problem(
        stages=[
            ProblemStage(
                stage.name,
                stage.train.tensors(),
                stage.test.tensors(),
                {delta_name(delta): others[i].test.tensors() for delta, others in weaker.items()},
            )
            for i, stage in enumerate(stages)
        ],
        num_confounders=1,
        num_classes=2,
        in_channels=1,
        image_size=tuple(stages[0].train.images.shape[2:]),
        best=[stage.best for stage in stages],
    )


# What turns a study's table and files into stages.
_STUDY = (
    "rmdn.cells",
    "rmdn.schema",
    "rmdn.terms",
    *(f"rmdn.data.{part}" for part in ("folds", "images", "stages", "study")),
)
_HAM10000 = ("rmdn.data.ham10000", *(f"rmdn.data.simulate.{part}" for part in ("ham10000", "skin", "draw")))


@problem("ham10000", *_STUDY, *_HAM10000)
def ham10000(
    size: Sequence[int] = (64, 64), split: str = "lesion", seed: int = 0, stand_in: Mapping[str, Any] | None = None
) -> Problem:
    """Seven skin lesions in five stages of rising age; `stand_in`: the arguments of a simulation, None for real data."""
    from rmdn.data import ham10000 as adapter
    from rmdn.data import simulate
    from rmdn.data.images import Images
    from rmdn.experiments import clinical

    folder = clinical.folder("ham10000", stand_in, simulate.simulate_ham10000)
    return clinical.problem_of(adapter.load(folder, split=split, seed=seed, images=Images(size=tuple(size))))


_BRAIN = ("rmdn.data.simulate.brain", "rmdn.data.simulate.draw")


@problem("adni", *_STUDY, "rmdn.data.adni", "rmdn.data.simulate.adni", *_BRAIN)
def adni(size: Sequence[int] = (64, 64, 64), stand_in: Mapping[str, Any] | None = None) -> Problem:
    """Controls, mild impairment and Alzheimer's disease in five stages of acquisition years."""
    from rmdn.data import adni as adapter
    from rmdn.data import simulate
    from rmdn.data.images import Images
    from rmdn.experiments import clinical

    folder = clinical.folder("adni", stand_in, simulate.simulate_adni)
    return clinical.problem_of(adapter.load(folder, images=Images(size=tuple(size))))


@problem("abcd", *_STUDY, "rmdn.data.abcd", "rmdn.data.simulate.abcd", *_BRAIN)
def abcd(
    fold: int = 0, size: Sequence[int] = (64, 64, 64), augment: bool = True, stand_in: Mapping[str, Any] | None = None
) -> Problem:
    """Girls and boys in one stage, tested on one of five folds; `augment`: training images move and flip."""
    from rmdn.data import abcd as adapter
    from rmdn.data import simulate
    from rmdn.data.images import Images, small_motions
    from rmdn.experiments import clinical
    from rmdn.experiments.saliency import resized

    folder = clinical.folder("abcd", stand_in, simulate.simulate_abcd)
    images = Images(size=tuple(size), augment=small_motions() if augment else None)
    study = adapter.load(folder, fold=fold, images=images)
    return replace(clinical.problem_of(study), affine=resized(study.rows[study.columns.image].iloc[0], size))


def delta_name(delta: float) -> str:
    """The name of the test set with the confounder at this strength."""
    return f"delta {delta:g}"

"""Data for the experiments, by name: stages to train on, and what is known of them.

A problem of your own is a function here, or in a file given to `rmdn reproduce --plugin FILE`:

    @problem("mine", "my.module")
    def mine(seed: int = 0) -> Problem: ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rmdn.data import synthetic
from rmdn.errors import SettingError


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

    def sample(self) -> Tensor:
        """Two blank images, to run a network dry."""
        return torch.zeros(2, self.in_channels, *self.image_size)


MakeProblem = Callable[..., Problem]
PROBLEMS: dict[str, MakeProblem] = {}
CODE: dict[str, tuple[str, ...]] = {}  # of each problem: the modules that determine its data


def problem(name: str, *code: str) -> Callable[[MakeProblem], MakeProblem]:
    """Register a problem; a change in the modules `code` makes its runs run anew."""

    def register(make: MakeProblem) -> MakeProblem:
        PROBLEMS[name], CODE[name] = make, code
        return make

    return register


def make(name: str, arguments: Mapping[str, Any]) -> Problem:
    """The problem of that name."""
    if name not in PROBLEMS:
        raise SettingError(f"There is no problem {name!r}; there are {', '.join(sorted(PROBLEMS))}.")
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


def delta_name(delta: float) -> str:
    """The name of the test set with the confounder at this strength."""
    return f"delta {delta:g}"

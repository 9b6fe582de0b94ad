"""What all experiments on the paper's continual synthetic data share: data, network and settings."""

from __future__ import annotations

from collections.abc import Sequence

from rmdn.experiments.experiment import Plan
from rmdn.experiments.run import Recipe, Run, make

CNN = Recipe("rmdn.models.CNN2d")
DELTAS = (0.0, 0.25, 0.5, 0.75)  # at 1 it is the test set itself
# To the letter of the supplement: Adam, 100 epochs, batches of 128, 5e-4 times 0.8 every 20 epochs, at each stage anew.
PAPER = {"epochs": 100, "batch_size": 128, "lr": 5e-4, "decay": 0.8, "decay_every": 20}
QUICK = {"epochs": 12, "batch_size": 64, "decay_every": 3}


def data(dataset: int, plan: Plan) -> Recipe:
    """Data set 1, 2 or 3."""
    arguments = {"dataset": dataset, "per_group": 1024, "deltas": list(DELTAS)}
    return Recipe("continual", plan.at_scale(arguments, {"per_group": 256}))


def runs(dataset: int, method: str | Recipe, plan: Plan, *, seeds: int = 5, also: Sequence[str] = ()) -> list[Run]:
    """The seeds of one method on one data set; `seeds` as in the paper."""
    settings = plan.at_scale(PAPER, QUICK)
    return [make(data(dataset, plan), CNN, method, settings, seed, also) for seed in plan.runs_of(paper=seeds)]

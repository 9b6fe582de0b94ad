"""What all experiments on the paper's static synthetic data share: data, network, settings, and what is measured."""

from __future__ import annotations

from collections.abc import Sequence

from rmdn.experiments.continual import CNN
from rmdn.experiments.experiment import Plan
from rmdn.experiments.run import Recipe, Run, make

METHODS = ("Plain", "MDN", "P-MDN", "R-MDN", "Guarded R-MDN")
BATCH_SIZES = (2, 16, 64, 256, 1024)  # Table 7
ALL_BATCH_SIZES = tuple(2**n for n in range(1, 11))  # the curves of Figure 8
PICTURED = (2, 16, 1024)  # the clouds of Figure 8
ONE_SIZE = 64  # of the figures that vary something else: the paper does not say theirs
# To the letter of the supplement: Adam, 100 epochs, 1e-4 times 0.8 every 20 epochs, 100 seeds.
PAPER = {"epochs": 100, "lr": 1e-4, "decay": 0.8, "decay_every": 20}
SEEDS = 100
# At the quick scale an epoch is half as long, and small batches, which take more steps in an epoch, get fewer epochs.
QUICK_EPOCHS = {2: 2, 16: 6, 64: 10, 256: 15, 1024: 25}


def runs(method: str | Recipe, batch_size: int, plan: Plan, *, seeds: int = SEEDS) -> list[Run]:
    """The seeds of one method with one batch size."""
    data = Recipe("static", plan.at_scale({"per_group": 1024}, {"per_group": 512}))
    epochs = QUICK_EPOCHS.get(batch_size, 10)
    settings = plan.at_scale(PAPER, {"epochs": epochs, "lr": 5e-4, "decay_every": max(1, epochs // 5)})
    settings = {**settings, "batch_size": batch_size}
    return [make(data, CNN, method, settings, seed, also(batch_size, seed)) for seed in plan.runs_of(paper=seeds)]


def also(batch_size: int, seed: int) -> Sequence[str]:
    """What else a run writes down; the same whichever experiment asks for it, so that all share the run."""
    return ("course", "features") if batch_size in PICTURED and seed < 3 else ("course",)


def batch_sizes(plan: Plan, paper: Sequence[int]) -> Sequence[int]:
    """Those of an experiment at this scale."""
    return [size for size in paper if plan.scale == "paper" or size in QUICK_EPOCHS]

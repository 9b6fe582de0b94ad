"""What all experiments on the paper's static synthetic data share: data, network, settings, and what is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmdn.experiments.continual import CNN
from rmdn.experiments.experiment import Find, Plan
from rmdn.experiments.run import Recipe, Run, make
from rmdn.experiments.store import Record
from rmdn.experiments.summary import dependences, recalls, records
from rmdn.metrics import mean_interval
from rmdn.report import Cell

METHODS = ("Plain", "MDN", "P-MDN", "R-MDN", "Guarded R-MDN")
BATCH_SIZES = (2, 16, 64, 256, 1024)  # Table 7
ALL_BATCH_SIZES = tuple(2**n for n in range(1, 11))  # the curves of Figure 8
PICTURED = (2, 16, 1024)  # the clouds of Figure 8
ONE_SIZE = 64  # of the figures that vary something else: the paper does not say theirs
# To the letter of the supplement: Adam, 100 epochs, 1e-4 times 0.8 every 20 epochs, 100 seeds.
PAPER = {"epochs": 100, "lr": 1e-4, "decay": 0.8, "decay_every": 20}
SEEDS = 100
MEASURES = ("|bAcc - A|", "dcor2, group 1", "dcor2, group 2")
# At the quick scale an epoch is half as long, and small batches, which take more steps in an epoch, get fewer epochs.
QUICK_EPOCHS = {2: 3, 16: 10, 64: 20, 256: 25, 1024: 25}


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


def curve_sizes(plan: Plan) -> Sequence[int]:
    """The batch sizes of Figure 8's curves: at the quick scale Table 7's."""
    return BATCH_SIZES if plan.scale == "quick" else ALL_BATCH_SIZES


@dataclass(frozen=True)
class Outcomes:
    """What the runs of one cell have come to."""

    accuracy: NDArray[np.float64]  # (seeds,) balanced
    dcor2: NDArray[np.float64]  # (seeds, 2) of features and confounder, in each group
    best: float  # the theoretical accuracy

    def __len__(self) -> int:
        return len(self.accuracy)

    @property
    def deviation(self) -> float:
        """|bAcc - A| of the runs' mean, in points, as published: runs beside A on both sides make up for each other."""
        return 100 * abs(float(self.accuracy.mean()) - self.best)

    @property
    def dependence(self) -> float:
        """dcor2, mean over runs and groups."""
        return mean(self.dcor2)

    def values(self, measure: int) -> NDArray[np.float64]:
        """Of each run: |bAcc - A| in points (0), dcor2 in group 1 (1) or 2 (2)."""
        return 100 * np.abs(self.accuracy - self.best) if measure == 0 else self.dcor2[:, measure - 1]


Scores = Mapping[str, Mapping[int, Outcomes]]  # of each method at each batch size


def outcomes(runs: Sequence[Run], find: Find) -> Outcomes:
    """From the records that are there."""
    return gathered(records(runs, find))


def gathered(found: Sequence[Record]) -> Outcomes:
    """Balanced accuracies and dependences on the test set at the end."""
    return Outcomes(
        np.array([recalls(record)[-1, -1].mean() for record in found]),
        np.array([dependences(record)[-1, -1] for record in found]).reshape(-1, 2),
        float(found[0]["best"][-1]) if found else float("nan"),
    )


def finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Those that are numbers: a network whose features are all alike has no dcor2."""
    return values[np.isfinite(values)]


def mean(values: NDArray[np.float64]) -> float:
    """The mean of those that are numbers; NaN of none."""
    kept = finite(values)
    return float(kept.mean()) if len(kept) else float("nan")


def half_width(values: NDArray[np.float64]) -> float | None:
    """Half of the mean's 95 % interval; None of a single run."""
    kept = finite(values)
    if len(kept) < 2:
        return None
    interval = mean_interval(kept)
    return float(interval.high - interval.value)


def cell(values: NDArray[np.float64], digits: int, published: float | None = None, reach: float | None = None) -> Cell:
    """Mean and half of its 95 % interval."""
    return Cell(mean(values) if len(finite(values)) else None, half_width(values), published, reach, digits)

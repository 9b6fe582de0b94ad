"""What all experiments on HAM10000 share: data, network, settings, methods and measures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmdn.experiments import clinical
from rmdn.experiments.experiment import Find, Plan
from rmdn.experiments.run import Recipe, Run, make
from rmdn.experiments.store import Record
from rmdn.experiments.summary import dependences, records

Floats = NDArray[np.float64]

# To the letter of the supplement: AdamW, 30 epochs, batches of 128, 5e-4 times 0.8 every 5 epochs, weight decay 1e-3.
PAPER = {
    "epochs": 30,
    "batch_size": 128,
    "optimizer": "adamw",
    "lr": 5e-4,
    "decay": 0.8,
    "decay_every": 5,
    "weight_decay": 1e-3,
}
QUICK = {"epochs": 6, "batch_size": 32, "lr": 1e-3, "decay_every": 2}
TINY = {"patch_size": 8, "num_layers": 2, "num_heads": 4, "hidden_size": 48, "mlp_dim": 96, "pre_logits_dim": 32}
# Stand-ins: as many images as the real data have, in a quarter of their width; fewer and smaller at the quick scale.
STAND_IN = {"n": 10015, "seed": 0, "size": [150, 112]}
SMALL = {"n": 4000, "size": [80, 60]}

# The rows of Table 4: a method, and where it is placed. A ViT has its layer after pre-logits alone unless told otherwise.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in ("Plain", "BR-Net", "P-MDN")},
    **{f"R-MDN ({variant})": ("R-MDN", {"at": variant}) for variant in "ABC"},
    **{name: (name, {}) for name in ("EWC", "EWC + R-MDN", "LwF", "LwF + R-MDN", "PackNet", "Guarded R-MDN")},
}
LAST = "R-MDN (C)"  # the paper's choice
PICTURED = ("Plain", LAST)  # whose features Figure 4 shows


def chosen(plan: Plan, names: Sequence[str] = tuple(METHODS)) -> list[str]:
    """The rows that were asked for, by their own name or by their method's."""
    return [name for name in names if plan.chosen([name, METHODS[name][0]])]


def recipe_of(name: str, plan: Plan) -> Recipe:
    """A row's method."""
    method, arguments = METHODS[name]
    if "R-MDN" in method:
        # The coefficients remember about (batch size * lambda)^-0.5 batches: at the quick scale, whose stages have fewer
        # batches, the same share of a stage as at the paper's.
        arguments = {**arguments, "regularization": 1e-5 if plan.scale == "paper" else 3e-4}
    if method == "Guarded R-MDN":
        arguments |= plan.at_scale({}, {"looks": 3})
    return Recipe(method, arguments)


def data(plan: Plan, split: str = "lesion") -> Recipe:
    """The real data, or a stand-in of the scale's size."""
    size = [64, 64] if plan.scale == "paper" else [32, 32]
    return clinical.recipe("ham10000", {"size": size, "split": split}, plan.at_scale(STAND_IN, SMALL))


def runs_of(name: str, plan: Plan, *, split: str = "lesion") -> list[Run]:
    """The seeds of one row."""
    network = Recipe("rmdn.models.ViT2d", plan.at_scale({}, TINY))
    settings = plan.at_scale(PAPER, QUICK)
    also = ["features"] if name in PICTURED and split == "lesion" else []
    return [
        make(data(plan, split), network, recipe_of(name, plan), settings, seed, also)
        for seed in plan.runs_of(paper=3, quick=2)
    ]


@dataclass(frozen=True)
class Scores:
    """Measures after the last stage, each of several test sets (seeds, sets)."""

    accuracy: Floats
    dcor2: Floats  # within classes, averaged over them
    BWT: Floats  # of all stages but the last
    FWT: Floats  # of all stages but the first

    @property
    def seeds(self) -> int:
        """How many runs there are."""
        return len(self.accuracy)

    def by_set(self, measure: str) -> Floats:
        """Each test set's mean over seeds: its spread over sets is what the paper reports."""
        return means(getattr(self, measure), axis=0)

    def by_seed(self, measure: str) -> Floats:
        """Each seed's mean over test sets: what tests of methods compare."""
        return means(getattr(self, measure), axis=1)

    def mean(self, measure: str) -> float:
        """One number."""
        return float(means(self.by_set(measure)))


def scores(found: Sequence[Record]) -> Scores:
    """The measures of one row's records."""
    R = np.array([record["R"] for record in found], dtype=np.float64)  # (seeds, S, S)
    own, last = np.diagonal(R, 0, 1, 2), R[:, -1]
    dcor2 = np.stack([means(dependences(record)[-1]) for record in found])
    return Scores(last, dcor2, last[:, :-1] - own[:, :-1], np.diagonal(R, 1, 1, 2))


def found_scores(plan: Plan, find: Find, **options: Any) -> dict[str, Scores]:
    """The measures of every row that has runs."""
    found = {name: records(runs_of(name, plan, **options), find) for name in chosen(plan)}
    return {name: scores(of_name) for name, of_name in found.items() if of_name}


def means(values: Any, axis: int = -1) -> Floats:
    """Means of the numbers that are there; NaN, without a warning, where there are none."""
    values = np.asarray(values, dtype=np.float64)
    there = np.isfinite(values)
    count = there.sum(axis)
    return np.where(count > 0, np.where(there, values, 0).sum(axis) / np.maximum(count, 1), np.nan)

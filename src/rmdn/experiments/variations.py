"""Runs that depart from Table 1's in a setting or two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rmdn.experiments import continual
from rmdn.experiments.experiment import Plan
from rmdn.experiments.run import Recipe, Run, make


@dataclass(frozen=True)
class Variation:
    """A method, and where its training or its data differ from the paper's text."""

    name: str
    method: Recipe
    settings: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    quick: bool = False  # whether it is made at the quick scale, too

    def runs(self, dataset: int, plan: Plan, *, seeds: int, **settings: Any) -> list[Run]:
        """Its seeds on one data set; one that departs in nothing is Table 1's own run."""
        data = continual.data(dataset, plan)
        data = Recipe(data.name, {**data.arguments, **self.data})
        settings = {**plan.at_scale(continual.PAPER, continual.QUICK), **self.settings, **settings}
        return [make(data, continual.CNN, self.method, settings, seed) for seed in plan.runs_of(paper=seeds)]


def at_scale(variations: Sequence[Variation], plan: Plan) -> list[Variation]:
    """Those that a scale has, of the methods asked for."""
    chosen = plan.chosen([one.method.name for one in variations])
    return [one for one in variations if one.method.name in chosen and (one.quick or plan.scale == "paper")]

"""The protocol of Table 1, settled on data set 3: the paper's text, and what else it could have meant."""

from __future__ import annotations

from typing import Any

from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.run import Recipe, Run
from rmdn.experiments.variations import Variation, at_scale
from rmdn.report import Section

DATASET = 3
SEEDS = 3
METHODS = ("R-MDN", "Plain")
PROTOCOLS: dict[str, dict[str, Any]] = {
    "Paper's text": {"quick": True},
    "Weight decay 0.001": {"settings": {"weight_decay": 1e-3}, "quick": True},
    "One schedule over all stages": {"settings": {"schedule_scope": "run"}, "quick": True},
    "Learning rate 0.0001": {"settings": {"lr": 1e-4}, "quick": True},
    "Forgetting 0.999": {"options": {"forgetting": 0.999}},
    "Same draws in all stages": {"data": {"shared_draws": True}, "quick": True},
    "30 epochs a stage": {"settings": {"epochs": 30}},
    "60 epochs a stage": {"settings": {"epochs": 60}},
    "Authors' code": {
        "settings": {"weight_decay": 1e-3, "lr": 1e-4},
        "data": {"shared_draws": True},
        "options": {"forgetting": 0.999},
    },
}


def variation(protocol: str, method: str) -> Variation:
    """One method by one protocol; only R-MDN forgets."""
    parts = dict(PROTOCOLS[protocol])
    options = parts.pop("options", {})
    return Variation(protocol, Recipe(method, options if method == "R-MDN" else {}), **parts)


def variations(plan: Plan) -> list[Variation]:
    """What the table is made of: for the plain network not where nothing but the forgetting differs."""
    every = [variation(protocol, method) for protocol in PROTOCOLS for method in METHODS]
    return at_scale([one for one in every if (one.name, one.method.name) != ("Forgetting 0.999", "Plain")], plan)


def runs(plan: Plan) -> list[Run]:
    """Both networks by every protocol."""
    return [run for one in variations(plan) for run in one.runs(DATASET, plan, seeds=SEEDS)]


def section(plan: Plan, find: Find) -> Section:
    """Not written yet."""
    return Section("protocol", "Protocol")


register(Experiment("protocol", "The protocol, settled on data set 3", {"quick": 3, "paper": 110}, runs, section))

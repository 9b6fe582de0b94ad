"""Table 2: a vision transformer on the continual synthetic data set 3."""

from __future__ import annotations

from rmdn.experiments import continual
from rmdn.experiments.experiment import Plan
from rmdn.experiments.run import Recipe, Run, make

METHODS = ("Plain", "R-MDN", "Guarded R-MDN")
SMALL = {"num_layers": 3, "num_heads": 4, "hidden_size": 64, "mlp_dim": 128, "pre_logits_dim": 32}


def runs_of(method: str, plan: Plan) -> list[Run]:
    """The seeds of one row: the paper's 2D ViT (that of HAM10000), trained as the CNNs are."""
    data = Recipe("continual", plan.at_scale({"dataset": 3, "per_group": 1024}, {"per_group": 256}))
    network = Recipe("rmdn.models.ViT2d", plan.at_scale({}, SMALL))
    settings = plan.at_scale(continual.PAPER, continual.QUICK)
    return [make(data, network, method, settings, seed) for seed in plan.runs_of(paper=5)]


def runs(plan: Plan) -> list[Run]:
    """Every method."""
    return [run for method in plan.chosen(METHODS) for run in runs_of(method, plan)]

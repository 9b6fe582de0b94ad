"""Figure 8: features of the static synthetic data, and how soon they lose the confounder, by batch size."""

from __future__ import annotations

from rmdn.experiments import static
from rmdn.experiments.experiment import Plan
from rmdn.experiments.run import Run


def runs(plan: Plan) -> list[Run]:
    """Every method at every batch size; those of Table 7 are among them."""
    sizes = static.batch_sizes(plan, static.ALL_BATCH_SIZES)
    return [run for method in plan.chosen(static.METHODS) for size in sizes for run in static.runs(method, size, plan)]

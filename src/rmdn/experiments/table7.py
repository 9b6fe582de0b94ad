"""Table 7: the static synthetic data at five batch sizes."""

from __future__ import annotations

from rmdn.experiments import static
from rmdn.experiments.experiment import Plan
from rmdn.experiments.run import Run


def runs(plan: Plan) -> list[Run]:
    """Every method at every batch size."""
    sizes = static.batch_sizes(plan, static.BATCH_SIZES)
    return [run for method in plan.chosen(static.METHODS) for size in sizes for run in static.runs(method, size, plan)]

"""From experiments and the results that are there to one report."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import date

import torch

import rmdn
from rmdn.experiments.experiment import Experiment, Plan
from rmdn.experiments.run import Run
from rmdn.experiments.store import Record, Store
from rmdn.report import Report, Section

SCALES = {
    "quick": "Quick scale: fewer epochs, images and seeds than in the paper. It shows shapes, not the paper's numbers.",
    "paper": "Paper scale: the settings of the paper's supplement.",
}


def report(experiments: Sequence[Experiment], plan: Plan, store: Store) -> Report:
    """A section for each experiment, from whatever runs there are."""

    def find(run: Run) -> Record | None:
        return store.read(run)

    sections = [with_failures(one, plan, store, one.section(plan, find)) for one in experiments]
    return Report(
        title="Confounder-Free Continual Learning via Recursive Feature Normalization: the paper's numbers, and ours",
        summary=SCALES[plan.scale],
        facts=facts(experiments, plan, store),
        sections=sections,
    )


def with_failures(experiment: Experiment, plan: Plan, store: Store, section: Section) -> Section:
    """The section with a warning for each kind of error that its runs ended with."""
    from dataclasses import replace

    errors: dict[str, int] = {}
    for run in experiment.runs(plan):
        error = None if store.done(run) else store.error(run)
        if error:
            errors[error] = errors.get(error, 0) + 1
    failed = [f"{count} run{'s' if count > 1 else ''} failed: {error}" for error, count in errors.items()]
    return replace(section, warnings=[*section.warnings, *failed])


def facts(experiments: Sequence[Experiment], plan: Plan, store: Store) -> dict[str, str]:
    """What a reader must know of how the numbers came about."""
    runs = {run.key: run for one in experiments for run in one.runs(plan)}
    there = [record for record in map(store.read, runs.values()) if record is not None]
    machines = sorted({record["machine"]["gpu"] or f"{record['machine']['cores']} CPU cores" for record in there})
    versions = sorted({f"torch {record['machine']['torch']}" for record in there})
    return {
        "Scale": plan.scale,
        "Runs": f"{len(there)} of {len(runs)}",
        "Seeds": "as each experiment says" if plan.seeds is None else str(plan.seeds),
        "Made on": ", ".join(machines) or "-",
        "With": ", ".join(versions) or "-",
        "Computing time": f"{sum(record['seconds'] for record in there) / 3600:.1f} hours",
        "Stand-in data": "; ".join(sorted({record["stand_in"] for record in there if record["stand_in"]})) or "none",
        "Report by": f"rmdn {rmdn.__version__}, torch {torch.__version__}, Python {platform.python_version()}",
        "Date": date.today().isoformat(),
    }

"""`rmdn reproduce`: the paper's tables and figures, ours beside the published numbers, in one HTML report."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from rmdn.experiments.experiment import Experiment, Plan
    from rmdn.experiments.run import Run
    from rmdn.experiments.store import Store

app = typer.Typer()


@app.command("reproduce")
def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments, as table1 figure3, or all.")] = None,
    show: Annotated[bool, typer.Option("--list", help="List the experiments and what each needs, and exit.")] = False,
    scale: Annotated[
        Literal["quick", "paper"],
        typer.Option(help="quick: a meaningful shape; paper: the paper's settings to the letter."),
    ] = "quick",
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds of a cell; by default each experiment's own.")] = None,
    methods: Annotated[str, typer.Option(help='Only these, as "Plain,R-MDN"; by default all.', show_default=False)] = "",
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time; they share the cores.")] = os.cpu_count() or 1,
    cluster: Annotated[str | None, typer.Option(help="A dask scheduler, as tcp://host:8786, or slurm.")] = None,
    results: Annotated[Path, typer.Option(help="Where the runs' results lie, a folder for each scale.")] = Path("results"),
    out: Annotated[Path, typer.Option(help="The report to write.")] = Path("report.html"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Make runs anew that are made already.")] = False,
    only_report: Annotated[bool, typer.Option("--only-report", help="Make no runs; report on those there are.")] = False,
    plugin: Annotated[
        list[str] | None, typer.Option(help="A Python file that registers methods, data, experiments; may be repeated.")
    ] = None,
) -> None:
    """Make the paper's tables and figures, ours beside the published numbers, in one HTML file that needs no other.

    Finished runs are not made again, a killed grid goes on, and a run that fails leaves its error and does not stop the
    others. Without names it lists the experiments.
    """
    from rmdn.experiments.experiment import Plan
    from rmdn.experiments.methods import named
    from rmdn.experiments.registry import chosen
    from rmdn.experiments.reporting import report
    from rmdn.experiments.run import load_plugins
    from rmdn.experiments.store import Store
    from rmdn.report import terminal, write

    load_plugins(plugin or [])
    plan = Plan(scale, seeds, tuple(name.strip() for name in methods.split(",") if name.strip()))
    for name in plan.methods:
        named(name)
    if show or not names:
        _list(plan)
        return
    experiments, store = chosen(names), Store(results / scale)
    if not only_report:
        _run(experiments, plan, store, jobs, cluster, plugin or [], fresh)
    made = report(experiments, plan, store)
    terminal(made)
    typer.echo(f"The report is in {write(made, out)}.")


def _list(plan: Plan) -> None:
    from rich.console import Console
    from rich.table import Table

    from rmdn.experiments.registry import EXPERIMENTS

    table = Table("name", "what", "runs", "minutes on 2 cores", "needs", title=f"Experiments at the scale {plan.scale!r}")
    for one in EXPERIMENTS.values():
        runs = len({run.key for run in one.runs(plan)})
        table.add_row(one.key, one.title, str(runs), f"{one.minutes[plan.scale]:g}", one.needs or "-")
    Console().print(table)


def _run(
    experiments: Sequence[Experiment],
    plan: Plan,
    store: Store,
    jobs: int,
    cluster: str | None,
    plugins: Sequence[str],
    fresh: bool,
) -> None:
    from rich.live import Live

    from rmdn.experiments.grid import carry_out, pending

    wanted = {one.key: {run.key: run for run in one.runs(plan)} for one in experiments}
    runs = [run for of_one in wanted.values() for run in of_one.values()]
    progress = _Progress(wanted, {run.key for run in pending(runs, store, fresh=fresh)}, jobs)
    if not progress.left:
        return
    with Live(progress.table(), refresh_per_second=2) as live:

        def watch(run: Run, error: str | None, seconds: float) -> None:
            progress.ended(run, error)
            live.update(progress.table())
            if error:
                live.console.print(f"[red]{run.method.name}, seed {run.seed}, failed:[/red] {error}")

        carry_out(runs, store, jobs=jobs, cluster=cluster, plugins=plugins, fresh=fresh, watch=watch)


class _Progress:
    """How far the grid is, as a table."""

    def __init__(self, wanted: dict[str, dict[str, Run]], left: set[str], jobs: int) -> None:
        self.wanted, self.left, self.jobs = wanted, left, jobs
        self.failed: set[str] = set()
        self.planned, self.start = len(left), time.monotonic()

    def ended(self, run: Run, error: str | None) -> None:
        """Count a run that has ended."""
        self.left.discard(run.key)
        if error:
            self.failed.add(run.key)

    def table(self) -> Table:
        """A row an experiment."""
        from rich.table import Table

        running = min(self.jobs, len(self.left))
        table = Table("experiment", "done", "failed", "to do", title=f"{running} running, {self._time_left()}")
        for name, runs in self.wanted.items():
            left, failed = len(self.left & runs.keys()), len(self.failed & runs.keys())
            table.add_row(name, str(len(runs) - left - failed), str(failed), str(left))
        return table

    def _time_left(self) -> str:
        ended = self.planned - len(self.left)
        if not ended:
            return "time left not known yet"
        seconds = (time.monotonic() - self.start) / ended * len(self.left)
        return f"about {seconds / 60:.0f} minutes left"

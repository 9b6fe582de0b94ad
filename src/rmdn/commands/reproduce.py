"""`rmdn reproduce`: the paper's tables and figures, ours beside the published numbers, in one HTML report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from rmdn.experiments.experiment import Experiment, Plan
    from rmdn.experiments.store import Store

app = typer.Typer()
CORES = os.cpu_count() or 1


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
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time; they share the cores.")] = CORES,
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
    from rmdn.experiments import plugins
    from rmdn.experiments.experiment import Plan, check_methods
    from rmdn.experiments.registry import EXPERIMENTS, chosen
    from rmdn.experiments.reporting import report
    from rmdn.experiments.store import Store
    from rmdn.report import terminal, write

    files = [os.path.abspath(file) for file in plugin or []]  # a cluster's workers stand in other folders
    plugins.load(files)
    plan = Plan(scale, seeds, tuple(name.strip() for name in methods.split(",") if name.strip()))
    store = Store(results.absolute() / scale)
    experiments = chosen(names) if names else list(EXPERIMENTS.values())
    check_methods(experiments, plan)
    if show or not names:
        _list(experiments, plan, store)
        return
    failed = 0 if only_report else _run(experiments, plan, store, jobs, cluster, files, fresh)
    made = report(experiments, plan, store)
    terminal(made)
    typer.echo(f"The report is in {write(made, out)}.")
    if failed:
        typer.secho(f"{failed} run{'s' if failed > 1 else ''} failed. The same command tries again.", fg="red", err=True)
        raise typer.Exit(1)


def _list(experiments: Sequence[Experiment], plan: Plan, store: Store) -> None:
    """What each experiment is, how many runs it needs and has, and how long it takes on this machine."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from rmdn.experiments.experiment import Plan
    from rmdn.experiments.grid import pending

    table = Table(
        "name", "what", "runs", "done", "minutes", "needs", title=f"At the scale {plan.scale!r}, on {CORES} cores"
    )
    for one in experiments:
        runs, usual = ({run.key: run for run in one.runs(which)} for which in (plan, Plan(plan.scale)))
        minutes = one.minutes[plan.scale] * 2 / CORES * len(runs) / max(len(usual), 1)  # they are given for two cores
        done = len(runs) - len(pending(list(runs.values()), store))
        table.add_row(one.key, one.title, str(len(runs)), str(done), _rounded(minutes), escape(one.needs or "-"))
    Console().print(table)


def _rounded(minutes: float) -> str:
    return f"{minutes:.0f}" if minutes >= 2 else f"{minutes:.1g}"


def _run(
    experiments: Sequence[Experiment],
    plan: Plan,
    store: Store,
    jobs: int,
    cluster: str | None,
    files: Sequence[str],
    fresh: bool,
) -> int:
    """Make what is to be made; how many runs have failed."""
    from rich.console import Console

    from rmdn.experiments.grid import carry_out, pending
    from rmdn.experiments.watch import Standing, shown

    wanted = {one.key: one.runs(plan) for one in experiments}
    todo = pending([run for runs in wanted.values() for run in runs], store, fresh=fresh)
    if not todo:
        return 0
    standing = Standing(wanted, todo, jobs)
    try:
        with shown(standing, Console()) as watch:
            carry_out(todo, store, jobs=jobs, cluster=cluster, plugins=files, fresh=fresh, watch=watch)
    except KeyboardInterrupt:
        done, running, failed, waiting = standing.all()
        how = "The same command, without --fresh," if fresh else "The same command"
        typer.secho(
            f"Stopped with {done} of {done + running + failed + waiting} runs done; they are kept in {store.folder}. "
            f"{how} goes on from here; --only-report reports on what there is.",
            fg="yellow",
            err=True,
        )
        raise typer.Exit(130) from None
    return len(standing.failed)

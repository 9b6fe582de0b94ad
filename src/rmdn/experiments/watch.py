"""How far a grid of runs is: a live table in a terminal, else a plain line for each run that has ended."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmdn.experiments.grid import Watch
from rmdn.experiments.run import Run

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


class Standing:
    """Which runs of which experiments are done, running, failed and still to come.

    Args:
        wanted: each experiment's runs, those that are made already too.
        todo: the runs to make, in the order in which they start.
        jobs: how many run at a time.
    """

    def __init__(self, wanted: Mapping[str, Sequence[Run]], todo: Sequence[Run], jobs: int) -> None:
        self.wanted = {name: {run.key for run in runs} for name, runs in wanted.items()}
        self.left, self.jobs = [run.key for run in todo], jobs
        self.failed: set[str] = set()
        self.planned, self.start = len(todo), time.monotonic()

    def ended(self, run: Run, error: str | None) -> None:
        """Count a run that has ended."""
        self.left.remove(run.key)
        if error:
            self.failed.add(run.key)

    def counts(self, keys: set[str]) -> tuple[int, int, int, int]:
        """How many of these runs are done, running, failed, waiting."""
        left, failed = len(keys.intersection(self.left)), len(keys & self.failed)
        running = len(keys.intersection(self.left[: self.jobs]))
        return len(keys) - left - failed, running, failed, left - running

    def all(self) -> tuple[int, int, int, int]:
        """The same over all experiments; a run that they share counts once."""
        return self.counts(set().union(*self.wanted.values()))

    def time_left(self) -> str:
        """By the mean time of the runs so far."""
        ended = self.planned - len(self.left)
        if not self.left:
            return "all done"
        if not ended:
            return "time left not known yet"
        seconds = (time.monotonic() - self.start) / ended * len(self.left)
        for size, unit in ((3600, "hours"), (60, "minutes")):
            if seconds >= 1.5 * size:
                return f"about {seconds / size:.0f} {unit} left"
        return f"about {seconds:.0f} seconds left"

    def table(self) -> Table:
        """A row an experiment."""
        from rich.table import Table

        table = Table("experiment", title=self.time_left())
        for column in ("done", "running", "failed", "to do"):
            table.add_column(column, justify="right")
        for name, keys in self.wanted.items():
            table.add_row(name, *map(str, self.counts(keys)))
        return table

    def line(self, run: Run, error: str | None, seconds: float) -> str:
        """What has just ended, and where the grid stands."""
        done, running, failed, waiting = self.all()
        ending = f"FAILED: {error}" if error else f"{seconds:.0f} s"
        counts = f"{done} done, {running} running, {failed} failed, {waiting} to do"
        return f"{counts}, {self.time_left()} | {run.data.name}, {run.method.name}, seed {run.seed}: {ending}"


@contextmanager
def shown(standing: Standing, console: Console) -> Iterator[Watch]:
    """Show the standing while the runs are carried out."""
    from rich.live import Live
    from rich.text import Text

    if not console.is_terminal:

        def tell(run: Run, error: str | None, seconds: float) -> None:
            standing.ended(run, error)
            console.file.write(standing.line(run, error, seconds) + "\n")
            console.file.flush()

        yield tell
        return
    with Live(get_renderable=standing.table, console=console, refresh_per_second=2):

        def show(run: Run, error: str | None, seconds: float) -> None:
            standing.ended(run, error)
            if error:
                name = f"{run.data.name}, {run.method.name}, seed {run.seed}"
                console.print(Text(f"{name} failed: {error}", style="red"))

        yield show

"""Two bars on the terminal: the stages, and the batches of the stage under way with its last loss and accuracy."""

from __future__ import annotations

import sys
from types import TracebackType

from rmdn.training.result import Epoch


class Bars:
    """Progress of a run; silent where `shown` is False."""

    def __init__(self, stages: int, shown: bool) -> None:
        self.stages, self.bars = stages, None
        if shown:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
            self.bars = Progress(*columns, console=Console(file=sys.stderr), refresh_per_second=4)
            self.over_stages = self.bars.add_task("stages", total=stages)
            self.in_stage = self.bars.add_task("batches")

    def __enter__(self) -> Bars:
        if self.bars:
            self.bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.bars:
            self.bars.stop()

    def stage(self, stage: int, steps: int, done: int) -> None:
        """A stage begins, or goes on after so many of its steps."""
        if self.bars:
            self.bars.update(self.over_stages, completed=stage)
            self.bars.reset(self.in_stage, total=steps, completed=done, description=f"stage {stage + 1}/{self.stages}")

    def step(self) -> None:
        """One batch is done."""
        if self.bars:
            self.bars.advance(self.in_stage)

    def epoch(self, record: Epoch, epochs: int) -> None:
        """An epoch is done."""
        if self.bars:
            text = (
                f"stage {record.stage + 1}/{self.stages}  epoch {record.epoch + 1}/{epochs}  "
                f"loss {record.loss:.3f}  accuracy {record.accuracy:.3f}"
            )
            self.bars.update(self.in_stage, description=text)

    def finish(self) -> None:
        """All stages are done."""
        if self.bars:
            self.bars.update(self.over_stages, completed=self.stages)

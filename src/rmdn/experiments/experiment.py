"""What an experiment is: the runs it needs, and the section of the report that it makes of them.

An experiment of your own is a file that calls `register(Experiment(...))`, given to `rmdn reproduce --plugin FILE`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rmdn.errors import SettingError, near
from rmdn.experiments.methods import of_plugins
from rmdn.experiments.run import Run
from rmdn.experiments.store import Record
from rmdn.report import Section

Scale = Literal["quick", "paper"]
Find = Callable[[Run], Record | None]  # a run's record, where there is one


@dataclass(frozen=True)
class Plan:
    """What a user asks of all experiments alike."""

    scale: Scale = "quick"
    seeds: int | None = None  # None: each experiment's own number
    methods: Sequence[str] = ()  # only these; none: all

    def command(self, key: str) -> str:
        """What makes an experiment as it was asked for."""
        seeds = f" --seeds {self.seeds}" if self.seeds is not None else ""
        methods = f' --methods "{",".join(self.methods)}"' if self.methods else ""
        return f"rmdn reproduce {key} --scale {self.scale}{seeds}{methods}"

    def runs_of(self, *, paper: int, quick: int = 1) -> range:
        """The seeds of an experiment that has so many at each scale."""
        count = self.seeds if self.seeds is not None else paper if self.scale == "paper" else quick
        if count < 1:
            raise SettingError(f"seeds={count} leaves nothing to run; give 1 or more.")
        return range(count)

    def at_scale(self, paper: Mapping[str, Any], quick: Mapping[str, Any]) -> dict[str, Any]:
        """The paper's settings, at the quick scale with some of them changed."""
        return {**paper, **(quick if self.scale == "quick" else {})}

    def chosen(self, methods: Sequence[str]) -> list[str]:
        """Those of an experiment's methods that were asked for."""
        return [name for name in methods if not self.methods or name in self.methods]

    def rows(self, methods: Sequence[str]) -> list[str]:
        """The same, and below them the methods of plugins that were asked for by name."""
        return [*self.chosen(methods), *(name for name in self.methods if name not in methods and name in of_plugins())]


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper, or one beyond it."""

    key: str  # its name on the command line: "table1"
    title: str
    minutes: Mapping[Scale, float]  # about how long it takes on two cores, with its own number of seeds
    runs: Callable[[Plan], list[Run]]
    section: Callable[[Plan, Find], Section]
    needs: str = ""  # data or extras beyond [study]


EXPERIMENTS: dict[str, Experiment] = {}


def register(experiment: Experiment) -> Experiment:
    """Make an experiment known to `rmdn reproduce`."""
    EXPERIMENTS[experiment.key] = experiment
    return experiment


def chosen(names: Sequence[str]) -> list[Experiment]:
    """The experiments of these names; "all" is all."""
    unknown = [name for name in names if name not in EXPERIMENTS and name != "all"]
    if unknown:
        raise SettingError(f"There is no experiment {unknown[0]!r}; {near(unknown[0], [*EXPERIMENTS, 'all'])}")
    return [one for key, one in EXPERIMENTS.items() if key in names or "all" in names]


def check_methods(experiments: Sequence[Experiment], plan: Plan) -> None:
    """Refuse names of methods that none of the experiments has."""
    offered: dict[str, None] = {}

    class Listening(Plan):
        def chosen(self, methods: Sequence[str]) -> list[str]:
            offered.update(dict.fromkeys(methods))
            return super().chosen(methods)

        def rows(self, methods: Sequence[str]) -> list[str]:
            offered.update(dict.fromkeys(of_plugins()))
            return super().rows(methods)

    for one in experiments:
        one.runs(Listening(plan.scale, plan.seeds))
    for name in plan.methods:
        if name not in offered:
            where = experiments[0].key if len(experiments) == 1 else f"these {len(experiments)} experiments"
            raise SettingError(f"There is no method {name!r} in {where}; {near(name, offered)}")

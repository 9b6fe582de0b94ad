"""`rmdn bench`: the measurements behind the speeds that are promised; they come with the source."""

from __future__ import annotations

import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from rmdn.errors import UsageError

app = typer.Typer()
FOLDER = Path(__file__).parents[3] / "benchmarks"


class Benchmark(str, Enum):
    """A script in `benchmarks/`, by what it measures."""

    layer = "layer"
    complexity = "complexity"
    loop = "loop"
    dependence = "dependence"
    data = "data"


@app.command("bench", context_settings={"ignore_unknown_options": True})
def bench(
    what: Annotated[Benchmark, typer.Argument(help="Which benchmark.")] = Benchmark.layer,
    options: Annotated[list[str] | None, typer.Argument(help="Handed on to it, e.g. --markdown FILE for layer.")] = None,
) -> None:
    """Measure speeds against their aims, side by side in one run; each takes some minutes on a quiet machine.

    layer: the layer beside BatchNorm, a plain copy and the published form. complexity: how the cost of each method grows.
    loop: training beside a bare loop and beside research code. dependence: dcor2 beside the dcor package. data: the
    synthetic images.
    """
    script = FOLDER / f"{what.value}.py"
    if not script.is_file():
        raise UsageError(f"There is no {script}: the benchmarks come with rmdn's source. Run this in a checkout of it.")
    raise typer.Exit(subprocess.run([sys.executable, str(script), *(options or [])], check=False).returncode)

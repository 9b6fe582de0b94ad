"""`rmdn demo`: a plain network and a deconfounded one on data in which a confounder tempts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rmdn.experiments.temptation import Findings

app = typer.Typer()


@app.command("demo")
def demo(
    folder: Annotated[Path, typer.Option(help="Where the picture goes.")] = Path("demo"),
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of each network.")] = 12,
    per_group: Annotated[int, typer.Option(min=16, help="Training images of each of the two groups.")] = 1024,
    seed: Annotated[int, typer.Option(help="Of the images, the weights and the order of training.")] = 0,
) -> None:
    """Train a plain network and one with R-MDN on confounded images, and show which of them cheats.

    Each image has a disease signal and a confounder; both differ between the groups, and only the first may be used. A
    network that uses it alone can be right in five of six cases, no more: whoever does better cheats.
    """
    from rmdn.experiments import temptation

    findings = temptation.run(epochs=epochs, per_group=per_group, seed=seed)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "demo.png"
    partial = path.with_suffix(".partial.png")
    temptation.picture(findings).savefig(partial, dpi=110)
    partial.replace(path)
    _table(findings)
    typer.echo(f"The picture is in {path}.")


def _table(findings: Findings) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Test accuracy; without the confounder at most {findings.best:.3f} is possible")
    for title in ("network", "accuracy", "above the possible", "confounder taken away", "dcor² with the confounder"):
        table.add_column(title, justify="left" if title == "network" else "right")
    for name, one in findings.networks.items():
        table.add_row(
            name,
            f"{one.accuracy[-1]:.3f}",
            f"{one.accuracy[-1] - findings.best:+.3f}",
            f"{one.by_strength[0]:.3f}",
            " / ".join(f"{value:.3f}" for value in one.dependence),
        )
    Console().print(table)

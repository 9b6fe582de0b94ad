"""`rmdn demo`: who cheats, and who does not, on data in which a confounder tempts; a report and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command("demo")
def demo(
    folder: Annotated[Path, typer.Option(help="Where the report and the picture go.")] = Path("demo"),
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of each of the five stages.")] = 8,
    per_group: Annotated[int, typer.Option(min=32, help="Images of each of the two groups, in each stage.")] = 1024,
    seed: Annotated[int, typer.Option(min=0, help="Of the images, the weights and the order of training.")] = 0,
) -> None:
    """Train a plain network, R-MDN and our guarded R-MDN on confounded images, and show which of them cheats.

    Each image has a main effect and a confounder; both tell the two groups apart, and only the first may be used. A
    network that uses it alone can be right in three of four cases, no more: whoever does better cheats. Takes two to
    three minutes on two cores, and writes report.html, which needs no other file, and demo.png.
    """
    from rmdn.allocation import keep_freed_memory
    from rmdn.experiments import temptation
    from rmdn.files import write_atomically
    from rmdn.report import terminal, write

    keep_freed_memory()
    findings = temptation.run(epochs=epochs, per_group=per_group, seed=seed, announce=_announce)
    report = temptation.report(findings, f"rmdn demo --epochs {epochs} --per-group {per_group} --seed {seed}")
    path = write(report, folder / "report.html")
    figure = temptation.picture(findings)
    write_atomically(folder / "demo.png", lambda file: figure.savefig(file, format="png", dpi=110))
    terminal(report)
    typer.echo(f"\nThe report is in {path}, the picture in {folder / 'demo.png'}.")


def _announce(name: str) -> None:
    typer.echo(f"Training by {name} ...", err=True)

"""`rmdn simulate ham10000|adni|abcd FOLDER`: stand-ins for data that one must apply for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Write simulated data in the files and folders of a real study. They say that they are simulated.",
    no_args_is_help=True,
)

Folder = Annotated[Path, typer.Argument(help="A new or empty folder, or an earlier stand-in to replace.")]
Number = Annotated[int, typer.Option("--n", help="How many images.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same files.")]
Resolution = Annotated[int, typer.Option(min=1, help="Size of a voxel in millimetres.")]


@app.command()
def ham10000(folder: Folder, n: Number = 500, seed: Seed = 0) -> None:
    """Skin lesions of seven diagnoses, confounded by age."""
    from rmdn.data.simulate import simulate_ham10000

    simulate_ham10000(folder, n, seed)
    _done(folder, n)


@app.command()
def adni(folder: Folder, n: Number = 300, seed: Seed = 0, resolution: Resolution = 3) -> None:
    """Brains of three diagnoses, confounded by age and sex."""
    from rmdn.data.simulate import simulate_adni

    simulate_adni(folder, n, seed, resolution)
    _done(folder, n)


@app.command()
def abcd(folder: Folder, n: Number = 200, seed: Seed = 0, resolution: Resolution = 3) -> None:
    """Brains of boys and girls, confounded by their puberty score."""
    from rmdn.data.simulate import simulate_abcd

    simulate_abcd(folder, n, seed, resolution)
    _done(folder, n)


def _done(folder: Path, n: int) -> None:
    typer.echo(f"{folder}: {n} simulated images (a stand-in, not real data).")

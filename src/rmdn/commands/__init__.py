"""The commands of `rmdn`, one file each; a new one is one more line here."""

from __future__ import annotations

from typing import Annotated

import typer

import rmdn
from rmdn.commands import bench, demo, reproduce, simulate

app = typer.Typer(name="rmdn", no_args_is_help=True, rich_markup_mode="markdown")
app.add_typer(demo.app)
app.add_typer(reproduce.app)
app.add_typer(simulate.app, name="simulate")
app.add_typer(bench.app)


def _show(version: bool) -> None:
    if version:
        typer.echo(f"rmdn {rmdn.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show, is_eager=True)
    ] = False,
) -> None:
    """Confounder-free features inside any PyTorch network. Begin with `rmdn demo`."""

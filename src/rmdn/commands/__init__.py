"""The commands of `rmdn`, one file each; a new one is one more line here."""

from __future__ import annotations

import typer

from rmdn.commands import demo, reproduce, simulate

app = typer.Typer(name="rmdn", help="Confounder-free features inside any PyTorch network.", no_args_is_help=True)
app.add_typer(demo.app)
app.add_typer(reproduce.app)
app.add_typer(simulate.app, name="simulate")

"""The command line: `rmdn --help`. Each command is a file of its own in `rmdn.commands`."""

from __future__ import annotations

import sys

from rmdn.errors import RMDNError


def main() -> None:
    """Run `rmdn`. A user's mistake ends with one red message and status 2, never with a traceback."""
    try:
        import typer
    except ModuleNotFoundError:
        print("The command line needs the extra [study]: pip install 'rmdn[study]'.", file=sys.stderr)
        raise SystemExit(2) from None
    from rmdn.commands import app

    try:
        app()
    except RMDNError as error:
        typer.secho(str(error), fg="red", err=True)
        raise SystemExit(2) from None

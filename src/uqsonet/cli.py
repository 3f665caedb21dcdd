"""The command line ``uqsonet``: commands of this package and of packages that add theirs."""

from __future__ import annotations

from importlib.metadata import entry_points

import typer

app = typer.Typer(add_completion=False, no_args_is_help=True, help="UQ-SONet.")


def main() -> None:
    """Run the command line, with the commands of every package that offers ``uqsonet.commands``."""
    for point in entry_points(group="uqsonet.commands"):
        app.registered_commands += point.load().registered_commands
    app()

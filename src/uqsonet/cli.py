"""The command line ``uqsonet``: commands of this package and of packages that add theirs."""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer

from uqsonet import commands
from uqsonet.terminal import clear_errors, console
from uqsonet.version import __version__

app = typer.Typer(add_completion=False, no_args_is_help=True)
app.registered_commands += commands.app.registered_commands


def _version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """UQ-SONet: operators from sparse sensors, with the whole conditional distribution."""


@app.command("lower-rate")
def lower_rate(
    checkpoint: Annotated[Path, typer.Argument(help="A file below results/state.")],
    rate: Annotated[float, typer.Argument(help="As in the configuration from now on.")],
) -> None:
    """Let a training that failed go on from its checkpoint at a lower learning rate."""
    from uqsonet.training.checkpoint import lower_rate as lower

    with clear_errors():
        iteration, before = lower(checkpoint, rate)
    console.print(
        f"{checkpoint}: from iteration {iteration} on {rate:g} instead of {before:g}. Put "
        f"learning_rate: {rate:g} into the configuration and run the same command.",
        highlight=False,
    )


def main() -> None:
    """Run the command line, with the commands of every package that offers ``uqsonet.commands``."""
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch: large tensors on large pages
    for point in entry_points(group="uqsonet.commands"):
        try:
            app.registered_commands += point.load().registered_commands
        except ModuleNotFoundError as error:  # an extra that is not installed
            app.info.epilog = (
                f"More commands: pip install 'uqsonet\\[study]' (no {error.name} here)."
            )
    app()

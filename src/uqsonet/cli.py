"""The command line ``uqsonet``: commands of this package and of packages that add theirs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from uqsonet.errors import UQSONetError
from uqsonet.version import __version__

app = typer.Typer(add_completion=False, no_args_is_help=True)
console = Console(stderr=True)


@contextmanager
def clear_errors() -> Iterator[None]:
    """Print what a user can mend as one message and exit with status 1."""
    try:
        yield
    except UQSONetError as error:
        console.print(f"error: {error}", style="red", markup=False, highlight=False)
        sys.exit(1)


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


@app.command()
def info(
    weights: Annotated[Path, typer.Argument(help="A weight file, or a folder with one.")],
) -> None:
    """Say what a trained model is: method, fields, data, noise."""
    from uqsonet.models.weights import load

    with clear_errors():
        model = load(weights)
    fields = model.fields
    for side, field in (("input", fields.input), ("output", fields.output)):
        ends = zip(field.grid.lower, field.grid.upper, strict=True)
        box = " x ".join(f"[{a:g}, {b:g}]" for a, b in ends)
        points = " x ".join(map(str, field.grid.shape))
        print(f"{side:9}{field.symbol}: {points} points on {box}, transform {field.transform.name}")
    print(f"{'method':9}{model.method}, architecture {model.config.architecture}")
    print(f"{'data':9}{fields.name}, trained for noise of std {model.noise_std:g}")


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
    for point in entry_points(group="uqsonet.commands"):
        try:
            app.registered_commands += point.load().registered_commands
        except ModuleNotFoundError as error:  # an extra that is not installed
            app.info.epilog = f"More commands: pip install 'uqsonet\\[study]' (no {error.name} here)."
    app()

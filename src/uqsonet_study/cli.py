"""Commands of the study: ``uqsonet check``, ``uqsonet estimate`` and others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from uqsonet.cli import clear_errors, console
from uqsonet.errors import ConfigError
from uqsonet_study.config import Config, json_schema, load_config
from uqsonet_study.config.loading import read_mapping

app = typer.Typer(add_completion=False, no_args_is_help=True, help="UQ-SONet.")


def read_config(paths: list[Path]) -> Config:
    """Merge YAML or JSON files, later ones over earlier ones (`-` reads standard input).

    Raises
    ------
    ConfigError
        If a file cannot be read or the merged configuration is not valid.
    """
    merged: dict[str, Any] = {}
    for path in paths:
        try:
            stdin = str(path) == "-"
            text = sys.stdin.read() if stdin else path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read: {error}") from None
        merged = _merged(merged, read_mapping(text, str(path)))
    return load_config(merged, " + ".join(str(path) for path in paths))


def _merged(base: Any, overlay: Any) -> Any:
    """Return a mapping with an overlay's keys over its own; aliases of YAML share mappings."""
    if not (isinstance(base, dict) and isinstance(overlay, dict)):
        return overlay
    return base | {key: _merged(base.get(key), value) for key, value in overlay.items()}


@app.command()
def estimate(
    files: Annotated[
        list[Path], typer.Argument(help="config.yaml and overlays, in order; - for stdin.")
    ],
    cores: Annotated[int, typer.Option(min=1, help="Jobs at a time.")] = 1,
) -> None:
    """Say what a run will still cost, from what jobs of the published run took."""
    from uqsonet_study.estimate import estimate as left
    from uqsonet_study.estimate import report_of

    with clear_errors():
        config = read_config(files)
        print("\n".join(report_of(config, left(config), cores)))


@app.command()
def check(
    paths: Annotated[list[Path], typer.Argument(help="Files or folders of results.")],
) -> None:
    """Validate data, weights, checkpoints, tables and JSON; exit status 1 if any is bad."""
    from uqsonet_study.check import check_path

    bad = 0
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    for path in paths:
        for file, problem in check_path(path):
            bad += problem is not None
            mark = "ok " if problem is None else "BAD"
            print(f"{mark} {file}" + (f": {problem}" if problem else ""))
    if bad:
        sys.exit(1)


@app.command("lower-rate")
def lower_rate(
    checkpoint: Annotated[Path, typer.Argument(help="A file below results/state.")],
    rate: Annotated[float, typer.Argument(help="As in the configuration from now on.")],
) -> None:
    """Let a training that failed go on from its checkpoint at a lower learning rate."""
    from uqsonet_study.training import lower_rate as lower

    with clear_errors():
        iteration, before = lower(checkpoint, rate)
    console.print(
        f"{checkpoint}: from iteration {iteration} on {rate:g} instead of {before:g}. Put "
        f"learning_rate: {rate:g} into the configuration and run the same command.",
        highlight=False,
    )


@app.command("explore-exact")
def explore_exact(
    name: Annotated[str, typer.Argument(help="diffusion1d, or another problem of section 4.1.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where the page goes: .html.")],
) -> None:
    """Write the page of `uqsonet explore` with the exact posterior beside the model's own."""
    from uqsonet import load
    from uqsonet.show.explore import write_page
    from uqsonet_study.exact_page import exact_law

    with clear_errors():
        write_page(load(name), out, name, exact_law(name))


@app.command()
def schema() -> None:
    """Print the JSON schema of the configuration."""
    print(json_schema(), end="")


@app.command()
def publish(
    results: Annotated[Path, typer.Argument(help="A finished results folder.")],
    folder: Annotated[Path, typer.Argument(help="Where to put what is kept in git.")],
    commit: Annotated[str, typer.Option(help="Version of the sources behind the results.")],
    command: Annotated[str, typer.Option(help="The command that made them.")],
) -> None:
    """Copy tables, logs and the pictures of pages from a run, with provenance."""
    from uqsonet_study.publish import publish as copy

    with clear_errors():
        copy(results, folder, commit, command)


@app.command()
def ship(
    results: Annotated[Path, typer.Argument(help="A results folder with trainings.")],
    config: Annotated[Path, typer.Option(help="Their experiments.")] = Path("config.yaml"),
    published: Annotated[Path, typer.Option(help="Where the scores are.")] = Path("published"),
    out: Annotated[Path, typer.Option(help="The library's weights.")] = Path(
        "src/uqsonet/emulator/weights"
    ),
) -> None:
    """Write the library's weights anew: trained operators in a small form, with cards."""
    from uqsonet_study.ship import ship as write

    with clear_errors():
        done = write(read_config([config]), results, published, out)
    print("\n".join(map(str, done)))


@app.command()
def readme(
    folder: Annotated[Path, typer.Argument(help="The published folder.")] = Path("published"),
    root: Annotated[Path, typer.Argument(help="Where README.md and docs are.")] = Path(),
) -> None:
    """Write the tables of README and docs anew, from `published/` and `interpretations.csv`."""
    from uqsonet.files import write_text
    from uqsonet_study.report.readme import published_tables, replaced

    with clear_errors():
        for name, tables in published_tables(folder).items():
            text = (root / name).read_text(encoding="utf-8")
            write_text(root / name, replaced(text, tables, name))

"""Commands of the study: ``uqsonet schema``, ``uqsonet ship`` and ``uqsonet explore-exact``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from uqsonet.cli import clear_errors

app = typer.Typer(add_completion=False, no_args_is_help=True, help="UQ-SONet.")


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
    from uqsonet_study.config import Config

    print(json.dumps(Config.model_json_schema(), indent=2, sort_keys=True))


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
    from uqsonet_study.cases import Study
    from uqsonet_study.loading import read_config
    from uqsonet_study.ship import ship as write

    with clear_errors():
        done = write(Study(read_config([config])), results, published, out)
    print("\n".join(map(str, done)))

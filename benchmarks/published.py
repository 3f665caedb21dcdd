"""All that `published/`, README and docs show, made again from one commit: `make published`.

    python -m benchmarks.published --list
    python -m benchmarks.published --only attention --only learning

Each step is recorded in `published/steps.csv` when it is done, with its commands and commit, and is
passed over from then on. A step that was stopped goes on where it was. The commit is the last that
changed anything but what is written here, so steps may be run on several days.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from benchmarks.default_run import COSTS
from uqsonet.files import write_text
from uqsonet_study.cli import read_config
from uqsonet_study.pipeline import Paths
from uqsonet_study.publish import publish

ROOT = Path(__file__).parents[1]
FOLDER = Path("published")
RECORD = FOLDER / "steps.csv"
DRAFTS = Path("results/published")
"""Where benchmarks write. A step that is stopped leaves what is published as it was."""

APART = (
    *("published", "docs", "README.md", "CHANGELOG.md", "src/uqsonet/emulator/weights", "tests"),
    *("config/smoke.yaml", "benchmarks/published.py"),
)
"""No number depends on these: what steps write, texts around it, tests, the run in small, and this
file. What it decides is the commands, and a step is due when its commands change."""


@dataclass(frozen=True)
class Step:
    """One part of what is published.

    Attributes
    ----------
    commands : tuple of str
        Run one after the other, from the root of the project.
    run : tuple of (Path, Path), optional
        A folder of results, and where `uqsonet publish` puts it.
    copies : dict
        Files, or patterns of them, and the folders that they are copied to.
    """

    commands: tuple[str, ...]
    run: tuple[Path, Path] | None = None
    copies: dict[str, Path] = field(default_factory=dict)


def pipeline(overlay: str, *targets: str) -> str:
    """Return the command that makes targets, by default all."""
    wanted = "".join(f" {target}" for target in ("--", *targets)) if targets else ""
    return f"snakemake --cores {{cores}} --configfile {overlay}{wanted}"


def steps() -> dict[str, Step]:
    """Return the steps in order."""
    default = f"python -m benchmarks.default_run {COSTS}"
    more = pipeline("config/ablation.yaml published/selection.yaml")
    found = {
        "default": Step(("snakemake --cores {cores}", default)),
        "ablation": Step((more,), (Path("results"), FOLDER)),
    }
    for name, folder in {"laws": "any_law", "attention": "attention"}.items():
        command = pipeline(f"config/{name}.yaml")
        found[name] = Step((command,), (Path("results", name), FOLDER / folder))
    share = Path("results/paper_share")
    targets = f"{share}/tables/all.tex", f"{share}/scorecard.csv"
    command = pipeline("config/paper.yaml config/paper_share.yaml", *targets)
    found["paper_share"] = Step((command,), (share, FOLDER / "paper_share"))
    asked = {"poisson": "--cases 50 --pairs 4000", "darcy": "--cases 3 --pairs 1000"}
    found["posterior"] = Step(
        tuple(
            f"python -W ignore -m benchmarks.posterior --problem {name} {more} "
            f"--out {DRAFTS}/benchmark --figure docs/figures/posterior_{name}.png"
            for name, more in asked.items()
        ),
        copies=drafts("benchmark"),
    )
    found["own_data"] = Step(_own_data(), copies=drafts("own_data"))
    bench = "results/benchmarks"
    found["bench"] = Step(
        (f"python -W ignore -m benchmarks --out {bench}",),
        copies={f"{bench}/benchmarks.csv": FOLDER},
    )
    found["documents"] = Step(("uqsonet ship results", f"uqsonet readme {FOLDER} ."))
    return found


def drafts(name: str) -> dict[str, Path]:
    """Return the copies of a step whose benchmarks write to a folder of drafts."""
    return {f"{DRAFTS / name}/*.csv": FOLDER / name}


def _own_data() -> tuple[str, ...]:
    """Return the commands of docs/own-data.md, and the paper's problems as own data."""
    data, out, model = "docs/own-data", DRAFTS / "own_data", "results/darcy.safetensors"
    given = f"{data}/darcy_16.npz --input a --output p --sensors 5,12,50 --minutes 2"
    validate = f"uqsonet validate {model}"
    config = read_config([ROOT / "config.yaml"])
    paths = Paths(config)
    commands = [
        f"uqsonet fit {given} -o {model}",
        f"{validate} {data}/darcy_test_16.npz --sensors 5,12,50 --csv {out}/scores.csv",
        f"{validate} {data}/darcy_test_32.npz --sensors 5,12,50 --csv {out}/scores_32.csv",
    ]
    for name, more in {"diffusion1d": "", "poisson2d": " --runs 80000 --stride 2"}.items():
        files = paths.data(name), paths.reference(config.cases[name], "precise")
        commands.append(f"snakemake --cores {{cores}} -- {' '.join(files)}")
        fit = f"python -m benchmarks.own_runs {' '.join(files)}{more}"
        commands.append(f"{fit} --csv {out}/{name}.csv")
    return tuple(commands)


def commit() -> str:
    """Return the last commit that changed anything but texts and what steps write.

    Raises
    ------
    SystemExit
        If other files differ from it.
    """
    others = [".", *(f":(exclude){path}" for path in APART)]
    changed = _git("status", "--porcelain", "--", *others)
    if changed:
        raise SystemExit(f"commit these first, or put them away:\n{changed}")
    return _git("log", "-1", "--format=%H", "--", *others)


def _git(*arguments: str) -> str:
    found = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True)
    return found.stdout.decode().rstrip()


def perform(name: str, step: Step, cores: int, version: str) -> None:
    """Run a step, publish what it made, and record it."""
    commands = [command.format(cores=cores) for command in step.commands]
    tools = str(Path(sys.executable).parent)
    environment = os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    start = time.monotonic()
    for command in commands:
        print(f"{name}: {command}", flush=True)
        subprocess.run(shlex.split(command), check=True, env=environment)
    if step.run is not None:
        publish(*step.run, version, commands[0])
    for pattern, folder in step.copies.items():
        for path in sorted(Path().glob(pattern)):
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / path.name)
    row = {"step": name, "commit": version, "minutes": round((time.monotonic() - start) / 60, 1)}
    rows = [kept for kept in recorded() if kept["step"] != name]
    table = pd.DataFrame([*rows, row | {"commands": " && ".join(commands)}])
    write_text(RECORD, table.to_csv(index=False, lineterminator="\n"))


def is_done(row: dict[str, object], step: Step, version: str) -> bool:
    """Return whether a record is of this commit and these commands, on any number of cores."""
    then = re.sub(r"--cores \d+", "--cores {cores}", str(row["commands"]))
    return row["commit"] == version and then == " && ".join(step.commands)


def recorded() -> list[dict[str, object]]:
    """Return the steps that are done."""
    return pd.read_csv(RECORD).to_dict("records") if RECORD.is_file() else []


def main(
    cores: Annotated[int, typer.Option(min=1, help="Jobs at a time.")] = 2,
    only: Annotated[list[str] | None, typer.Option(help="Some steps.")] = None,
    show: Annotated[bool, typer.Option("--list", help="Print the steps, and run none.")] = False,
) -> None:
    """Run the steps that this commit has not seen yet."""
    os.chdir(ROOT)
    known = steps()
    unknown = sorted(set(only or ()) - set(known))
    if unknown:
        raise SystemExit(f"no step {', '.join(unknown)}: there are {', '.join(known)}")
    version = "" if show else commit()
    rows = {str(row["step"]): row for row in recorded()}
    for name in only or known:
        if show:
            print(name, *known[name].commands, sep="\n    ")
        elif name in rows and is_done(rows[name], known[name], version):
            print(f"{name}: done")
        else:
            perform(name, known[name], cores, version)


if __name__ == "__main__":
    typer.run(main)

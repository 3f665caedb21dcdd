"""The whole DAG at smoke scale, run once in parts that all workers share, and copies to edit."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import watch
from uqsonet_study.cli import read_config
from uqsonet_study.pipeline import Plan

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("Snakefile", "config.yaml", "config", "workflow", "profiles", "src", "environment.yml")
SMOKE = Path("results/smoke")
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
CORES = max(1, (os.cpu_count() or 1) // WORKERS)
"""Cores of one run: this worker's share of the machine."""
CONFIG = read_config([ROOT / "config.yaml", ROOT / "config/smoke.yaml"])
PLAN = Plan(CONFIG)


@dataclass
class Project:
    """A working copy: its own sources, configuration and results.

    Runs take the experiments of `select`; what an edit makes the DAG do again is the same for all.
    Both of them share models, one has several noise levels.
    """

    path: Path
    select: tuple[str, ...] | None = ("diffusion1d", "diffusion1d_noise")
    estimates: bool = False
    """Whether a run begins with an estimate of its time; that is advice and takes seconds."""

    def snakemake(self, *arguments: str, cores: int = CORES) -> subprocess.CompletedProcess[str]:
        """Run Snakemake in the copy, with the copy's package."""
        paths = [*([] if self.estimates else [self.path / "bin"]), Path(sys.executable).parent]
        environment = os.environ | {
            "PYTHONPATH": str(self.path / "src"),
            "PATH": os.pathsep.join([*map(str, paths), os.environ["PATH"]]),
            "OMP_NUM_THREADS": "1",
            "MPLBACKEND": "Agg",
        }
        command = [sys.executable, "-m", "snakemake", "--cores", str(cores), *arguments]
        return watch.run(command, self.path, environment, self.path / "results")

    def smoke(
        self,
        *overlays: str,
        targets: tuple[str, ...] = (),
        cores: int = CORES,
        flags: tuple[str, ...] = (),
        dry: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run at smoke scale, with more overlays on top."""
        flags = (*flags, "--dry-run") if dry else flags
        self.choose()
        configs = ("--configfile", "config/smoke.yaml", "config/select.yaml", *overlays)
        return self.snakemake(*flags, *configs, "--", *targets, cores=cores)

    def choose(self) -> None:
        """Write which experiments are run, where that has changed: another run may be reading."""
        text = json.dumps({"select": self.select and list(self.select)})
        chosen = self.path / "config" / "select.yaml"
        if not chosen.exists() or chosen.read_text() != text:
            chosen.write_text(text)

    def planned(self, *overlays: str) -> dict[str, int]:
        """Return rule -> number of jobs that a dry run plans."""
        result = self.smoke(*overlays, dry=True)
        assert result.returncode == 0, result.stdout + result.stderr
        text = result.stdout + result.stderr
        if "Nothing to be done" in text:
            return {}
        table = text.split("Job stats:")[1].split("\n\n")[0]
        counts = {m[1]: int(m[2]) for m in re.finditer(r"^(\w+)\s+(\d+)$", table, re.MULTILINE)}
        return {rule: n for rule, n in counts.items() if rule not in ("total", "all")}

    def redrawn(self, *overlays: str) -> set[str]:
        """Return the figures and pictures that a dry run plans to draw."""
        result = self.smoke(*overlays, dry=True)
        jobs = (result.stdout + result.stderr).split("rule figure:")[1:]
        return {found[1] for job in jobs if (found := re.search(r"wildcards: figure=(\S+)", job))}

    def plan(self, *overlays: str) -> Plan:
        """Return the plan of a run at smoke scale, which knows where its files lie."""
        files = ("config.yaml", "config/smoke.yaml", *overlays)
        return Plan(read_config([self.path / file for file in files]))

    def copy(self, path: Path) -> Project:
        """Return a copy of the copy, with times kept so that nothing looks newer."""
        passing = shutil.ignore_patterns("log", "locks")  # of dry runs that others may do
        shutil.copytree(self.path, path, symlinks=True, ignore=passing)
        return Project(path)


def fresh_copy(path: Path) -> Project:
    """Copy what the workflow needs from the repository."""
    path.mkdir(parents=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir() and not source.is_symlink():
            shutil.copytree(source, path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, path / name, follow_symlinks=False)
    (path / "bin").mkdir()
    (path / "bin/uqsonet").write_text("#!/bin/sh\nexit 0\n")
    (path / "bin/uqsonet").chmod(0o755)
    return Project(path)


def targets_of(problem: str) -> tuple[str, ...]:
    """Return what the whole run makes of one problem: scores, times, tables, figures."""
    mine = {e for e, experiment in CONFIG.experiments.items() if experiment.problem == problem}

    def alone(outputs: dict[str, list[str]]) -> list[str]:
        return [name for name, shown in outputs.items() if shown and mine.issuperset(shown)]

    return (
        *(f"summary/{e}.csv" for e in PLAN.summarised() if e in mine),
        *(f"tables/{name}.csv" for name in alone(PLAN.tables())),
        *(f"figures/{name}.pdf" for name in alone(PLAN.figures())),
        *(f"figures/{name}.pdf" for name in PLAN.pictures() if name.rpartition("_")[0] in mine),
    )


class Parts:
    """The parts of the whole run, each done once by whichever worker needs it first.

    The others wait for it, or do another part meanwhile.

    Parameters
    ----------
    folder : Path
        Shared by all workers.
    """

    TWO, REPORT = "two experiments", "report"
    NAMES = (TWO, "elliptic_sde2d", "poisson2d", "navier_stokes", "elliptic_sde1d", "diffusion1d")
    """Parts that run beside one another, except that the last one continues the first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.two = Project(folder / "two", estimates=True)
        self.whole = Project(folder / "whole", select=None)

    def _once(self, name: str, action: Callable[[], str]) -> None:
        """Do what returns a message of failure, or an empty text, unless it is done."""
        done = self.folder / f"{name}.done"
        with (self.folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                try:
                    done.write_text(action())
                except AssertionError as error:  # it hangs; the next would, too
                    done.write_text(str(error))
        if failure := done.read_text():
            pytest.fail(f"{name}: {failure}", pytrace=False)

    def run(self, name: str) -> None:
        """Do a part, with what it needs, unless it is done."""
        if name == self.TWO:
            self._once(name, self._run_two)
            return
        self._once("copy", self._copy)
        if name == self.REPORT:
            for part in self.NAMES:
                self.run(part)
            self._once(name, lambda: failure(self.whole.smoke()))
            return
        if name == "diffusion1d":
            self.run(self.TWO)
            self._once("merge", self._merge)
        targets = tuple(str(SMOKE / target) for target in targets_of(name))
        # Parts have no file in common, and Snakemake removes all locks with the first that ends.
        self._once(name, lambda: failure(self.whole.smoke(targets=targets, flags=("--nolock",))))

    def _copy(self) -> str:
        fresh_copy(self.whole.path)
        self.whole.choose()
        return ""

    def _run_two(self) -> str:
        fresh_copy(self.two.path)
        return failure(self.two.smoke())

    def _merge(self) -> str:
        for name in ("results", ".snakemake/metadata"):
            shutil.copytree(self.two.path / name, self.whole.path / name, dirs_exist_ok=True)
        return ""


def failure(result: subprocess.CompletedProcess[str]) -> str:
    """Return what a failed command printed, an empty text for one that ended well."""
    return result.stdout + result.stderr if result.returncode else ""


@pytest.fixture(scope="session")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """The parts of the whole run, in a folder that all workers share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "parts"
    folder.mkdir(exist_ok=True)
    return Parts(folder)


@pytest.fixture(scope="session")
def finished(parts: Parts) -> Project:
    """Two experiments through the whole DAG, run once; tests that edit take a copy."""
    parts.run(Parts.TWO)
    return parts.two


@pytest.fixture(scope="session")
def complete(parts: Parts) -> Project:
    """The DAG of all problems, run once."""
    parts.run(Parts.REPORT)
    return parts.whole


@pytest.fixture
def editable(finished: Project, tmp_path: Path) -> Project:
    """A copy of the finished run."""
    return finished.copy(tmp_path / "project")

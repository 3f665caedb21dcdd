"""Copies of the project that are run: a tiny run, and the small one of `make tables`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import make_once
from uqsonet_study.loading import read_config

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("Snakefile", "config.yaml", "config", "workflow", "profiles", "src", "environment.yml")
SMOKE, TINY = Path("results/smoke"), Path("results/tiny")
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
CORES = max(1, (os.cpu_count() or 1) // WORKERS)
"""Cores of one run: this worker's share of the machine."""
CONFIG = read_config([ROOT / "config.yaml", ROOT / "config/smoke.yaml"])
TARGETS = (f"{TINY}/tables/1d-pde-error.tex", f"{TINY}/figures/1d-pde-plot.pdf")
"""All of the tiny run: other experiments of the configuration are left alone."""


def read(name: str) -> dict[str, Any]:
    """Read an overlay of this folder."""
    return yaml.safe_load((Path(__file__).parent / f"{name}.yaml").read_text())


@dataclass
class Project:
    """A working copy: its own sources, configuration and results."""

    path: Path

    def snakemake(self, *arguments: str, cores: int = CORES) -> subprocess.CompletedProcess[str]:
        """Run Snakemake in the copy, with the copy's package."""
        environment = os.environ | {
            "PYTHONPATH": str(self.path / "src"),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "OMP_NUM_THREADS": "1",
            "MPLBACKEND": "Agg",
        }
        command = [sys.executable, "-m", "snakemake", "--cores", str(cores), *arguments]
        return subprocess.run(
            command, cwd=self.path, env=environment, capture_output=True, text=True, check=False
        )

    def smoke(
        self, *overlays: str, targets: tuple[str, ...] = (), cores: int = CORES, dry: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run at smoke scale, with more overlays on top."""
        flags = ["--dry-run"] if dry else []
        configs = ("--configfile", "config/smoke.yaml", *overlays)
        return self.snakemake(*flags, *configs, "--", *targets, cores=cores)

    def run(self, *overlays: str, targets: tuple[str, ...] = (), dry: bool = False) -> str:
        """Return what a run at smoke scale prints that must end well."""
        result = self.smoke(*overlays, targets=targets, dry=dry)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout + result.stderr

    def planned(self, *overlays: str) -> dict[str, int]:
        """Return rule -> number of jobs that a dry run plans."""
        return jobs(self.run(*overlays, dry=True))

    def overlay(self, values: dict[str, Any], name: str = "extra") -> str:
        """Write an overlay and return its path in the copy."""
        (self.path / f"config/{name}.yaml").write_text(yaml.safe_dump(values))
        return f"config/{name}.yaml"

    def copy(self, path: Path) -> Project:
        """Return a copy of the copy, with times kept so that nothing looks newer."""
        passing = shutil.ignore_patterns("log", "locks")  # of dry runs that others may do
        shutil.copytree(self.path, path, symlinks=True, ignore=passing)
        return Project(path)


def jobs(text: str) -> dict[str, int]:
    """Return rule -> number of jobs of a dry run, given what it printed."""
    if "Nothing to be done" in text:
        return {}
    table = text.split("Job stats:")[1].split("\n\n")[0]
    counts = {m[1]: int(m[2]) for m in re.finditer(r"^(\w+)\s+(\d+)$", table, re.MULTILINE)}
    return {rule: n for rule, n in counts.items() if rule not in ("total", "all")}


def fresh_copy(path: Path) -> Project:
    """Copy what the workflow needs from the repository."""
    path.mkdir(parents=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir() and not source.is_symlink():
            shutil.copytree(source, path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, path / name, follow_symlinks=False)
    return Project(path)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The DAG from nothing to a table and a figure at its least size; not to be edited."""

    def make(folder: Path) -> None:
        project = fresh_copy(folder / "project")
        project.run(project.overlay(read("tiny"), "tiny"), targets=TARGETS)

    return Project(make_once(tmp_path_factory, "tiny", make) / "project")


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The run of `make tables`, made once; not to be edited."""
    folder = make_once(tmp_path_factory, "small", lambda path: fresh_copy(path / "project").run())
    return Project(folder / "project")


@pytest.fixture
def editable(tiny: Project, tmp_path: Path) -> Project:
    """A copy of the tiny run."""
    return tiny.copy(tmp_path / "project")

"""A copy of the project that tests may edit, run once at smoke scale."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from uqsonet_study.cli import read_config
from uqsonet_study.pipeline import Plan

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("Snakefile", "config.yaml", "config", "workflow", "profiles", "src", "environment.yml")


@dataclass
class Project:
    """A working copy: its own sources, configuration and results.

    Runs take the experiments of `select`; what an edit makes the DAG do again is the same for all.
    Both of them share models, one has several noise levels.
    """

    path: Path
    select: tuple[str, ...] | None = ("diffusion1d", "diffusion1d_noise")

    def snakemake(self, *arguments: str, cores: int = 2) -> subprocess.CompletedProcess[str]:
        """Run Snakemake in the copy, with the copy's package."""
        binaries = Path(sys.executable).parent
        environment = os.environ | {
            "PYTHONPATH": str(self.path / "src"),
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            "MPLBACKEND": "Agg",
        }
        return subprocess.run(
            [sys.executable, "-m", "snakemake", "--cores", str(cores), *arguments],
            cwd=self.path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def smoke(
        self, *overlays: str, targets: tuple[str, ...] = (), cores: int = 2, dry: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run at smoke scale, with more overlays on top."""
        flags = ("--dry-run",) if dry else ()
        chosen = self.path / "config" / "select.yaml"
        chosen.write_text(json.dumps({"select": self.select and list(self.select)}))
        configs = ("--configfile", "config/smoke.yaml", "config/select.yaml", *overlays)
        return self.snakemake(*flags, *configs, "--", *targets, cores=cores)

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

    def copy(self, path: Path) -> "Project":
        """Return a copy of the copy, with times kept so that nothing looks newer."""
        shutil.copytree(self.path, path, symlinks=True)
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
    return Project(path)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The whole DAG at smoke scale, run once; tests that edit take a copy."""
    project = fresh_copy(tmp_path_factory.mktemp("workflow") / "project")
    result = project.smoke()
    assert result.returncode == 0, result.stdout + result.stderr
    return project


@pytest.fixture(scope="session")
def complete(finished: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The DAG of all problems; what the finished run has made is not made again."""
    project = finished.copy(tmp_path_factory.mktemp("complete") / "project")
    project.select = None
    result = project.smoke()
    assert result.returncode == 0, result.stdout + result.stderr
    return project


@pytest.fixture
def editable(finished: Project, tmp_path: Path) -> Project:
    """A copy of the finished run."""
    return finished.copy(tmp_path / "project")

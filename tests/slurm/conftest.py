"""A SLURM of one node, started for the tests, and a small run to submit to it."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from snakemake.utils import update_config

from tests.watch import wait_for, written
from tests.workflow.conftest import ROOT, Project, fresh_copy
from uqsonet_study.config import load_config
from uqsonet_study.pipeline import Plan

SCRIPT = ROOT / "tests/slurm/cluster.sh"
RESULTS = Path("results/smoke")
SMALL = {
    "select": ["diffusion1d"],
    "problems": {"diffusion1d": {"training": 2000, "validation": 5, "test": 5}},
    "experiments": {
        "diffusion1d": {
            "sensors": {"counts": [2, 4, 7, 10], "pool": 200},
            "methods": ["uqsonet"],
            "trials": 1,
        }
    },
    "evaluations": {
        "validation": {"sets": 2, "reference_samples": 200},
        "paper": {"sets": 2, "reference_samples": 100, "model_samples": 100},
        "precise": {"sets": 2, "reference_samples": 200, "model_samples": 100},
    },
    # Long enough to be caught in the act, with a checkpoint after half a second.
    "recipes": {"tuned": {"diffusion1d": {"uqsonet": {"training": {"iterations": 1000}}}}},
    "jobs": {"checkpoint_minutes": 0.01},
}
"""Six jobs from the data to one model's scores."""


def _small_plan() -> Plan:
    raw = yaml.safe_load((ROOT / "config.yaml").read_text())
    update_config(raw, yaml.safe_load((ROOT / "config/smoke.yaml").read_text()))
    update_config(raw, SMALL)
    return Plan(load_config(raw))


PLAN = _small_plan()
WEIGHTS = Path(PLAN.trained("diffusion1d", "uqsonet", "safetensors")[0])
SCORES = Path(PLAN.scores("diffusion1d")[0])
TRAINING = WEIGHTS.relative_to(RESULTS).with_suffix("")
CHECKPOINT = RESULTS / f"state/{TRAINING}.safetensors"
TRAIN_LOG = RESULTS / f"logs/{TRAINING}.log"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes minutes, visibly, unless the marker `slurm` is asked for."""
    if "slurm" in config.option.markexpr:
        return
    for item in items:
        if item.get_closest_marker("slurm"):
            item.add_marker(pytest.mark.skip(reason="minutes of queueing: make test-slurm"))


@dataclass(frozen=True)
class Cluster:
    """A running SLURM."""

    state: Path

    @property
    def environment(self) -> dict[str, str]:
        binaries = [str(self.state / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
        return os.environ | {
            "SLURM_CONF": str(self.state / "slurm.conf"),
            "PATH": os.pathsep.join(binaries),
        }

    def command(self, *arguments: str) -> str:
        """Return what a SLURM command prints."""
        return subprocess.run(
            arguments, env=self.environment, capture_output=True, text=True, check=True
        ).stdout

    def jobs(self, path: Path, states: str = "pending,running") -> dict[str, str]:
        """Return job -> rule of those that were submitted from a folder."""
        lines = self.command("squeue", "--noheader", f"--states={states}", "--format=%i|%k|%Z")
        rows = [line.split("|") for line in lines.splitlines()]
        return {job: comment for job, comment, folder in rows if folder == str(path)}

    def describe(self, job: str) -> str:
        return self.command("scontrol", "show", "job", job)


@dataclass
class Run:
    """Snakemake in a copy of the project, submitting jobs; what it prints goes to a file."""

    cluster: Cluster
    project: Project
    process: subprocess.Popen[bytes]
    output: Path

    @property
    def text(self) -> str:
        return self.output.read_text(errors="replace")

    @property
    def submitted(self) -> int:
        return self.text.count("has been submitted with SLURM jobid")

    def sign(self) -> object:
        """Return what changes while there is progress."""
        return written(self.output, self.project.path / RESULTS)

    def wait(self) -> int:
        """Wait for the end; the fixture that started Snakemake clears away what hangs."""
        return wait_for(self.process.poll, self.sign, lambda: self.text)

    def hold_training(self) -> str:
        """Stop the training in its tracks after its first checkpoint; return the SLURM job.

        A stopped process is a running job to SLURM, which hangs for as long as a test likes.
        """

        def training() -> str | None:
            assert self.process.poll() is None, self.text
            if not (self.project.path / CHECKPOINT).exists():
                return None
            jobs = self.cluster.jobs(self.project.path, "running")
            return next((j for j, rule in jobs.items() if rule.startswith("rule_train")), None)

        job = wait_for(training, self.sign, lambda: self.text, pause=0.1)
        rows = self.cluster.command("scontrol", "listpids", job).splitlines()[1:]
        pids = [int(row.split()[0]) for row in rows if row.split()[2] != "batch"]
        assert pids, rows
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        assert not (self.project.path / WEIGHTS).exists(), "the training was over already"
        return job


Submit = Callable[..., Run]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A SLURM of one node; without the programs tests are skipped, or fail where required."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    needed = ("slurmctld", "slurmd", "sbatch", "munged")
    missing = [program for program in needed if not shutil.which(program, path=path)]
    if missing:
        message = f"{', '.join(missing)} not installed (Debian: tests/slurm/cluster.sh install)"
        if os.environ.get("UQSONET_REQUIRE_SLURM") == "1":
            pytest.fail(message)
        pytest.skip(message)
    state = tmp_path_factory.mktemp("slurm") / "state"
    environment = os.environ | {"UQSONET_SLURM_STATE": str(state)}
    try:
        started = subprocess.run(
            [SCRIPT, "start"], env=environment, capture_output=True, text=True, check=False
        )
        assert started.returncode == 0, started.stdout + started.stderr
        yield Cluster(state)
    finally:
        subprocess.run([SCRIPT, "stop"], env=environment, check=False)


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The small run with one core of this machine and without SLURM: what all is compared with."""
    project = small_project(tmp_path_factory.mktemp("local") / "project")
    result = project.smoke("config/small.yaml", targets=(str(SCORES),), cores=1)
    assert result.returncode == 0, result.stdout + result.stderr
    return project


def small_project(path: Path) -> Project:
    """Return a copy of the project that has run nothing yet."""
    project = fresh_copy(path)
    project.select = ("diffusion1d",)
    (path / "config/small.yaml").write_text(yaml.safe_dump(SMALL))
    return project


@pytest.fixture
def untrained(local: Project, tmp_path: Path) -> Project:
    """A copy of the local run in which training and scores are still to be made."""
    project = local.copy(tmp_path / "project")
    project.select = local.select
    (project.path / WEIGHTS).unlink()
    (project.path / SCORES).unlink()
    (project.path / TRAIN_LOG).unlink()
    return project


@pytest.fixture
def submit(cluster: Cluster) -> Iterator[Submit]:
    """Start Snakemake with the profile for SLURM; what is left at the end is cleared away."""
    runs: list[Run] = []

    def start(project: Project, *arguments: str, targets: tuple[str, ...] = (str(SCORES),)) -> Run:
        environment = cluster.environment | {
            "PYTHONPATH": str(project.path / "src"),
            "MPLBACKEND": "Agg",
            "CUDA_VISIBLE_DEVICES": "",
        }
        (project.path / "config/select.yaml").write_text("{select: [diffusion1d]}\n")
        command = [
            *(sys.executable, "-m", "snakemake", "--workflow-profile", "workflow/profiles/slurm"),
            # This SLURM has no accounting database. Jobs of seconds are asked after every few.
            *("--slurm-status-command", "squeue"),
            *("--slurm-init-seconds-before-status-checks", "3"),
            *("--default-resources", "slurm_account=tests", "slurm_partition=main"),
            *("--retries", "0"),
            *arguments,
            *("--configfile", "config/smoke.yaml", "config/select.yaml", "config/small.yaml"),
            *("--", *targets),
        ]
        output = project.path / f"snakemake-{len(runs)}.out"
        with output.open("wb") as file:
            process = subprocess.Popen(
                command,
                cwd=project.path,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        runs.append(Run(cluster, project, process, output))
        return runs[-1]

    yield start
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()
        for job in cluster.jobs(run.project.path):
            cluster.command("scancel", job)


def same_bytes(one: Project, other: Project) -> dict[str, bool]:
    """Return file -> whether it is the same in both, for all that is computed."""
    names = sorted(
        str(path.relative_to(one.path))
        for folder in ("simulate", "sensors", "reference", "train", "evaluate")
        for path in (one.path / RESULTS / folder).rglob("*")
        # A record and the log of a training hold times, which differ.
        if path.suffix in (".h5", ".safetensors") or re.search("evaluate.*csv$", str(path))
    )
    return {
        name: (other.path / name).is_file()
        and (one.path / name).read_bytes() == (other.path / name).read_bytes()
        for name in names
    }

"""Jobs through a real SLURM of one node: whatever goes wrong there, the bytes of a local run."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workflow.conftest import ROOT, Project, fresh_copy

pytestmark = pytest.mark.slurm

HERE = Path(__file__).resolve().parent
RESULTS = Path("results/smoke")
DATA = str(RESULTS / "data/diffusion1d.h5")
WEIGHTS = str(RESULTS / "train/diffusion1d/tuned/uqsonet-N1000/trial0.safetensors")
SCORES = str(RESULTS / "scores/diffusion1d/m2-10-noise0/tuned/uqsonet-N1000.paper.csv")
TABLES = str(RESULTS / "tables/1d-pde-error.tex")
CHECKPOINT = RESULTS / "state" / Path(WEIGHTS).relative_to(RESULTS)
TRAIN_LOG = (RESULTS / "logs" / Path(WEIGHTS).relative_to(RESULTS)).with_suffix(".log")

IMPATIENT = """
import asyncio
from snakemake.cli import main
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
RemoteExecutor.sleep = lambda executor: asyncio.sleep(1)
main()
"""
"""Snakemake that asks after its jobs every second; it waits longer and longer by itself."""


class Cluster:
    """A SLURM of one node in a folder of its own."""

    def __init__(self, state: Path) -> None:
        paths = [str(state / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
        self.runs: dict[subprocess.Popen[bytes], Path] = {}
        """Snakemake that submits jobs, and the file that it prints to."""
        self.environment = os.environ | {
            **{"UQSONET_SLURM_STATE": str(state), "SLURM_CONF": str(state / "slurm.conf")},
            **{"PATH": os.pathsep.join(paths), "MPLBACKEND": "Agg", "CUDA_VISIBLE_DEVICES": ""},
        }

    def command(self, *arguments: str, check: bool = True) -> str:
        """Return what a command prints, which must end well."""
        return subprocess.run(
            arguments, env=self.environment, stdout=subprocess.PIPE, text=True, check=check
        ).stdout

    def jobs(self, path: Path, states: str, rule: str = "") -> list[str]:
        """Return the jobs that were submitted from a folder for a rule, the latest first."""
        lines = self.command("squeue", "--noheader", f"--states={states}", "--format=%i|%k|%Z")
        rows = [line.split("|") for line in lines.splitlines()]
        found = [int(j) for j, comment, at in rows if at == str(path) and comment.startswith(rule)]
        return [str(job) for job in sorted(found, reverse=True)]

    def text(self, run: subprocess.Popen[bytes]) -> str:
        """Return what Snakemake has printed."""
        return self.runs[run].read_text()

    def hold_training(self, run: subprocess.Popen[bytes]) -> str:
        """Stop a training in its tracks when it has a checkpoint; return the job.

        A stopped process is a running job to SLURM, which hangs for as long as a test likes.
        """
        path = self.runs[run].parent
        while run.poll() is None:
            time.sleep(0.1)
            for job in self.jobs(path, "running", "rule_train"):
                listed = self.command("scontrol", "listpids", job, check=False)  # none at first
                rows = listed.splitlines()[1:]
                pids = [int(row.split()[0]) for row in rows if row.split()[2] != "batch"]
                # -1 stands for a step that has no process yet. A signal to it would reach them all.
                if pids and min(pids) > 1 and (path / CHECKPOINT).exists():
                    for pid in pids:
                        os.kill(pid, signal.SIGSTOP)
                    assert not (path / WEIGHTS).exists(), "the training was over already"
                    return job
        raise AssertionError(self.text(run))

    def submit(
        self, project: Project, *arguments: str, target: str = SCORES
    ) -> subprocess.Popen[bytes]:
        """Start Snakemake with the profile for SLURM."""
        command = [
            *(sys.executable, "-c", IMPATIENT, "--workflow-profile", "profiles/slurm"),
            *("--slurm-status-command", "squeue"),  # this SLURM has no accounting database
            *("--default-resources", "slurm_account=tests", "slurm_partition=main"),
            *("--retries", "0", *arguments),
            *("--configfile", "config/smoke.yaml", "config/small.yaml", "--", target),
        ]
        paths = f"{project.path / 'bin'}:{self.environment['PATH']}"  # without an estimate of time
        environment = self.environment | {"PYTHONPATH": str(project.path / "src"), "PATH": paths}
        output = project.path / f"snakemake-{len(self.runs)}.out"
        with output.open("wb") as file:
            streams = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": subprocess.STDOUT}
            run = subprocess.Popen(command, cwd=project.path, env=environment, **streams)
        self.runs[run] = output
        return run


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running SLURM; without the programs tests are skipped, or fail where required."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    needed = ("slurmctld", "slurmd", "sbatch", "munged")
    if missing := [program for program in needed if not shutil.which(program, path=path)]:
        message = f"{', '.join(missing)} not installed (Debian: tests/slurm/cluster.sh install)"
        if os.environ.get("UQSONET_REQUIRE_SLURM") == "1":
            pytest.fail(message)
        pytest.skip(message)
    found = Cluster(tmp_path_factory.mktemp("slurm") / "state")
    try:
        found.command(str(HERE / "cluster.sh"), "start")
        yield found
    finally:
        for run in found.runs:  # of a test that failed midway
            run.kill()
            run.wait()
        found.command(str(HERE / "cluster.sh"), "stop")


def small_project(path: Path) -> Project:
    """Return a copy of the project that has run nothing yet."""
    project = fresh_copy(path)
    shutil.copy(HERE / "small.yaml", path / "config")
    return project


def on_this_machine(project: Project, *arguments: str) -> str:
    """Run without SLURM; return what that prints."""
    configs = "--configfile", "config/smoke.yaml", "config/small.yaml"
    result = project.snakemake(*configs, *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def computed(project: Project) -> dict[str, bytes]:
    """Return all that is computed. A record and the log of a training hold times, which differ."""
    kept = r"(data|sensors|reference|train)/.*\.(h5|safetensors)|scores/.*\.csv"
    results = project.path / RESULTS
    paths = {str(path.relative_to(results)): path for path in results.rglob("*.*")}
    return {name: path.read_bytes() for name, path in paths.items() if re.fullmatch(kept, name)}


def test_cancelled_killed_and_late_a_run_has_the_bytes_of_a_local_one(
    cluster: Cluster, tmp_path: Path
) -> None:
    local, project = small_project(tmp_path / "local"), small_project(tmp_path / "project")
    on_this_machine(local, "--", SCORES)

    # A job that is cancelled is named.
    run = cluster.submit(project)
    job = cluster.hold_training(run)
    cluster.command("scancel", job)
    assert run.wait() != 0
    assert f"SLURM-job '{job}' failed, SLURM status is: 'CANCELLED'" in cluster.text(run)
    # Both layouts are one job; scores wait for the training.
    assert cluster.text(run).count("has been submitted with SLURM jobid") == 5, cluster.text(run)

    # A killed Snakemake leaves an orphan and a locked folder, and the message says what to do.
    run = cluster.submit(project)
    job = cluster.hold_training(run)
    run.kill()
    assert run.wait() == -signal.SIGKILL
    assert cluster.jobs(project.path, "running") == [job]
    refused = cluster.submit(project)
    assert refused.wait() != 0 and "--unlock" in cluster.text(refused)
    document = (ROOT / "docs/slurm.md").read_text().splitlines()
    (cancel,) = [line for line in document if line.startswith("squeue --me")]
    subprocess.run(cancel, shell=True, cwd=project.path, env=cluster.environment, check=True)
    while cluster.jobs(project.path, "pending,running,completing"):
        time.sleep(0.1)
    unlocked = cluster.submit(project, "--unlock")
    assert unlocked.wait() == 0, cluster.text(unlocked)

    # A job over its time is retried with more of it, from the checkpoint. SLURM counts in minutes.
    minutes = "--set-resources", "train:runtime=attempt"
    run = cluster.submit(project, "--jobs", "2", "--retries", "1", *minutes, target=TABLES)
    job = cluster.hold_training(run)
    assert run.wait() == 0, cluster.text(run)
    assert f"SLURM-job '{job}' failed, SLURM status is: 'TIMEOUT'" in cluster.text(run)
    latest, *earlier = cluster.jobs(project.path, "all", "rule_train")
    assert earlier[0] == job
    for name, limit in ((job, "TimeLimit=00:01:00"), (latest, "TimeLimit=00:02:00")):
        assert limit in cluster.command("scontrol", "show", "job", name)
    assert "continuing at iteration" in (project.path / TRAIN_LOG).read_text()
    assert cluster.text(run).count("Group job report") == 1  # all summaries and tables are one job

    found, wanted = computed(project), computed(local)
    assert len(wanted) == 7  # data, modes, sensors, two references, weights, scores
    assert not [name for name in wanted if wanted[name] != found.get(name)]
    # The profile for one machine finds nothing to do where the other has been.
    assert "Nothing to be done" in on_this_machine(project, "--dry-run", "--", TABLES)


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ((), "TresPerJob=gres:gpu:1"),
        (("--set-resources", "simulate:gpu=0", "simulate:gres=gpu:1"), "TresPerNode=gres:gpu:1"),
    ],
    ids=["gpu", "gres"],
)
def test_a_gpu_is_asked_for_in_one_way_and_a_failing_job_says_why(
    cluster: Cluster, tmp_path: Path, arguments: tuple[str, ...], asked: str
) -> None:
    project = small_project(tmp_path / "project")
    run = cluster.submit(project, "--config", "jobs={device: cuda}", *arguments, target=DATA)
    # There is none: SLURM hands out a device file. The message is the reason itself.
    assert run.wait() != 0
    assert "SLURM status is: 'FAILED'" in cluster.text(
        run
    ) and "torch sees 0 CUDA devices" in cluster.text(run)
    (job,) = cluster.jobs(project.path, "all")
    described = cluster.command("scontrol", "show", "job", job)
    assert asked in described and described.count("gres:gpu") == 1

"""Jobs through a real SLURM: equal to a local run, and continued after all that goes wrong there.

The first test runs with all others where SLURM is installed, the rest by `make test-slurm`.
"""

import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import h5py
import pytest

from tests.slurm.conftest import (
    CHECKPOINT,
    RESULTS,
    ROOT,
    SCORES,
    TRAIN_LOG,
    WEIGHTS,
    Cluster,
    Submit,
    same_bytes,
    small_project,
)
from tests.watch import wait_for
from tests.workflow.conftest import Project

pytestmark = [pytest.mark.long, pytest.mark.timeout(0)]  # what takes time is watched
DATA = RESULTS / "simulate/diffusion1d.h5"


def documented(start: str) -> str:
    """Return the command of docs/slurm.md that begins like this."""
    lines = (ROOT / "docs/slurm.md").read_text().splitlines()
    (found,) = [line.strip() for line in lines if line.strip().startswith(start)]
    return found


def test_a_run_through_slurm_equals_a_local_one(
    local: Project, submit: Submit, tmp_path: Path
) -> None:
    project = small_project(tmp_path / "project")
    run = submit(project)
    assert run.wait() == 0, run.text
    assert run.submitted == 6, run.text  # both layouts together
    same = same_bytes(local, project)
    assert len(same) == 9 and all(same.values()), same  # seven outputs, two files of kept modes
    # The profile for one machine finds nothing to do where the other has been.
    again = project.smoke("config/small.yaml", targets=(str(SCORES),), dry=True)
    assert "Nothing to be done" in again.stdout + again.stderr


@pytest.mark.slurm
def test_a_cancelled_job_is_named_and_continues(
    local: Project, untrained: Project, cluster: Cluster, submit: Submit
) -> None:
    run = submit(untrained)
    job = run.hold_training()
    cluster.command("scancel", job)
    assert run.wait() != 0
    assert f"SLURM-job '{job}' failed, SLURM status is: 'CANCELLED'" in run.text
    assert not (untrained.path / WEIGHTS).exists()
    assert (untrained.path / CHECKPOINT).exists()

    again = submit(untrained)
    assert again.wait() == 0, again.text
    assert again.submitted == 2, again.text  # training and scores, nothing before them
    assert "continuing at iteration" in (untrained.path / TRAIN_LOG).read_text()
    assert all(same_bytes(local, untrained).values())


@pytest.mark.slurm
def test_a_failing_job_says_why(local: Project, untrained: Project, submit: Submit) -> None:
    kept = (untrained.path / DATA).read_bytes()
    with h5py.File(untrained.path / DATA, "r+") as file:
        file["training/kappa"][3, 7] = float("nan")
    target = str(WEIGHTS)
    run = submit(untrained, targets=(target,))
    assert run.wait() != 0
    assert "SLURM status is: 'FAILED'" in run.text
    # The reason itself, not only where to look for it.
    assert "results/smoke/simulate/diffusion1d.h5" in run.text
    assert "SHA-256" in run.text
    assert not (untrained.path / WEIGHTS).exists()

    (untrained.path / DATA).write_bytes(kept)
    again = submit(untrained)
    assert again.wait() == 0, again.text
    assert all(same_bytes(local, untrained).values())


@pytest.mark.slurm
def test_overtime_is_retried_with_more_time_from_the_checkpoint(
    local: Project, untrained: Project, cluster: Cluster, submit: Submit
) -> None:
    run = submit(untrained, "--retries", "1", "--set-resources", "train:runtime=attempt")
    job = run.hold_training()
    # SLURM counts in minutes and looks every half a minute.
    assert run.wait() == 0, run.text
    assert f"SLURM-job '{job}' failed, SLURM status is: 'TIMEOUT'" in run.text
    assert "JobState=TIMEOUT" in cluster.describe(job)
    assert "TimeLimit=00:01:00" in cluster.describe(job)
    jobs = cluster.jobs(untrained.path, "all")
    trainings = [j for j, rule in jobs.items() if rule.startswith("rule_train")]
    assert len(trainings) == 2
    assert "TimeLimit=00:02:00" in cluster.describe(max(trainings, key=int))
    assert "continuing at iteration" in (untrained.path / TRAIN_LOG).read_text()
    assert all(same_bytes(local, untrained).values())


@pytest.mark.slurm
def test_a_killed_snakemake_leaves_an_orphan_and_continues(
    local: Project, untrained: Project, cluster: Cluster, submit: Submit
) -> None:
    run = submit(untrained)
    job = run.hold_training()
    run.process.send_signal(signal.SIGKILL)
    run.process.wait()
    assert job in cluster.jobs(untrained.path, "running")

    # The folder is locked, and the message says what to do.
    refused = submit(untrained)
    assert refused.wait() != 0
    assert "--unlock" in refused.text
    assert refused.submitted == 0

    # The steps of docs/slurm.md, word for word.
    def step(start: str) -> None:
        command = shlex.join(["bash", "-c", documented(start)])
        subprocess.run(command, shell=True, cwd=untrained.path, env=cluster.environment, check=True)

    step("squeue --me")
    wait_for(lambda: None if cluster.jobs(untrained.path) else "gone", lambda: None)
    unlocked = submit(untrained, "--unlock")
    assert unlocked.wait() == 0, unlocked.text

    again = submit(untrained)
    assert again.wait() == 0, again.text
    assert again.submitted == 2, again.text
    assert "continuing at iteration" in (untrained.path / TRAIN_LOG).read_text()
    assert all(same_bytes(local, untrained).values())


@pytest.mark.slurm
def test_a_report_is_one_job(local: Project, submit: Submit, tmp_path: Path) -> None:
    project = local.copy(tmp_path / "project")
    run = submit(project, "--jobs", "2", targets=())
    assert run.wait() == 0, run.text
    # The precise reference, three more scores, the time of an answer, and all the rest as one.
    assert run.submitted == 6, run.text
    assert run.text.count("Group job report") == 1
    for name in ("tables/all.tex", "scorecard.csv", "report.html"):
        assert (project.path / RESULTS / name).stat().st_size > 0


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ((), "TresPerJob=gres:gpu:1"),
        (("--set-resources", "simulate:gpu=0", "simulate:gres=gpu:1"), "TresPerNode=gres:gpu:1"),
    ],
    ids=["gpu", "gres"],
)
def test_a_gpu_is_asked_for_in_one_way(
    cluster: Cluster, submit: Submit, tmp_path: Path, arguments: tuple[str, ...], asked: str
) -> None:
    project = small_project(tmp_path / "project")
    run = submit(project, "--config", "jobs={device: cuda}", *arguments, targets=(str(DATA),))
    # There is none: SLURM hands out a device file, and the job says what torch sees.
    assert run.wait() != 0
    assert "torch sees 0 CUDA devices" in run.text
    (job,) = cluster.jobs(project.path, "all")
    described = cluster.describe(job)
    assert asked in described
    assert described.count("gres:gpu") == 1
    shutil.rmtree(project.path)

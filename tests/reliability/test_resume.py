"""What is killed goes on with the same command and ends with the same bytes."""

import multiprocessing
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.conftest import DataFiles
from tests.reliability import kill
from uqsonet.errors import TrainingError
from uqsonet.networks import train as loop
from uqsonet.networks.progress import Progress, save_checkpoint
from uqsonet.networks.settings import TrainingConfig
from uqsonet.networks.train import Optimiser
from uqsonet.operator.config import KarhunenLoeveNetwork
from uqsonet.operator.weight_files import read_weights
from uqsonet_study.settings import Jobs, Method
from uqsonet_study.training import TrainingJob, train


@pytest.mark.kill
def test_a_kill_in_every_stage_of_the_pipeline_changes_no_byte(tmp_path: Path) -> None:
    log = tmp_path / "kills.csv"
    assert kill.run(tmp_path / "work", log, len(kill.STAGES)) >= 15
    assert all(f"\n{stage}," in log.read_text() for stage in kill.STAGES)


def training(
    folder: Path, files: list[Path], minutes: float = 1e-9, saves: int = 0, signum: int = 0
) -> None:
    """Train in a folder, from scratch or from the checkpoint there; stop after some checkpoints."""
    save, left = loop.save_checkpoint, [saves]

    def counted(*arguments: object) -> None:
        save(*arguments)
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signum)

    loop.save_checkpoint = counted
    network = KarhunenLoeveNetwork(input_modes=2, output_modes=2, branch=[8])
    options = {"iterations": 20, "batch_size": 20, "learning_rate": 1e-3, "validate_every": 10}
    chosen = TrainingConfig(**options, schedule="cosine", average_decay=0.9)
    method = Method(network=network, training=chosen)
    job = TrainingJob("uqsonet", "diffusion1d", method, 0.0, 1, 400, 4, *files, "code")
    outputs = folder / "w.safetensors", folder / "w.csv", folder / "state"
    try:
        train(job, Jobs(checkpoint_minutes=minutes), *outputs)
    except TrainingError as error:
        sys.exit(str(error))
    finally:
        loop.save_checkpoint = save


def test_a_job_killed_again_and_again_ends_with_the_same_bytes(
    diffusion_files: DataFiles, tmp_path: Path
) -> None:
    """Each training is a process, forked from one that has imported everything."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tests.reliability.test_resume"])
    files = [diffusion_files.functions, diffusion_files.sensors, diffusion_files.validation]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir(), parts.mkdir()
    training(whole, files, minutes=10)
    saved = 0
    for saves, signum, code in ((4, signal.SIGKILL, -9), (6, signal.SIGTERM, 1), (3, 9, -9)):
        process = processes.Process(target=training, args=(parts, files, 1e-9, saves, signum))
        process.start()
        process.join()
        assert process.exitcode == code
        before, saved = saved, read_weights(parts / "state")[1]["iteration"]
        assert saved >= before + saves and not (parts / "w.safetensors").exists()
    training(parts, files)
    assert (parts / "w.safetensors").read_bytes() == (whole / "w.safetensors").read_bytes()
    assert not (parts / "state").exists() and not list(parts.glob(".*.part"))


def test_what_is_saved_is_at_most_as_old_as_configured(
    diffusion_files: DataFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that each iteration moves on by a second: saved is with the first that is due."""
    now, saved = [0.0], []
    step, save = Optimiser.step, loop.save_checkpoint

    def timed(self, *arguments):
        now[0] += 1
        return step(self, *arguments)

    def noted(*arguments):
        saved.append(arguments[-1].iteration)
        save(*arguments)

    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(Optimiser, "step", timed)
    monkeypatch.setattr(loop, "save_checkpoint", noted)
    files = [diffusion_files.functions, diffusion_files.sensors, diffusion_files.validation]
    training(tmp_path, files, minutes=5 / 60)
    assert saved == [6, 12, 18]


def checkpoint(path: Path, state: dict[str, torch.Tensor]) -> None:
    identity = {"config": {"training": {"learning_rate": 0.1}}}
    save_checkpoint(path, identity, state, [torch.Generator()], Progress(7, 1.0, []))


def test_a_state_that_is_not_finite_does_not_replace_the_last_good_one(tmp_path: Path) -> None:
    """A gradient of NaN spoils the parameters one step before any loss tells."""
    path = tmp_path / "state.safetensors"
    with pytest.raises(TrainingError, match="no checkpoint yet"):
        checkpoint(path, {"parameter/w": torch.tensor([float("nan")])})
    checkpoint(path, {"parameter/w": torch.ones(2)})
    before = path.read_bytes()
    message = "parameter/w is not finite at iteration 7"
    with pytest.raises(TrainingError, match=message):
        checkpoint(path, {"parameter/w": torch.tensor([1.0, float("nan")])})
    assert path.read_bytes() == before

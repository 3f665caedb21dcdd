"""Training killed as a process: what SIGTERM saves, what SIGKILL loses, and the same last bit.

`tests/training/test_loop.py` has the same inside one process; here the process really dies.
"""

import multiprocessing
import os
import signal
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.conftest import DataFiles
from tests.reliability.training import work
from tests.training.test_loop import ATTENTION, KRIGING
from tests.watch import wait_for
from uqsonet.errors import DataError, TrainingError
from uqsonet.storage.weights import read_weights, write_weights
from uqsonet.training import loop
from uqsonet.training.checkpoint import Progress, lower_rate, save_checkpoint
from uqsonet.training.optimiser import StackedOptimiser
from uqsonet_study.config import JobsConfig, MethodConfig, TrainingConfig
from uqsonet_study.training import TrainingJob, train

PROCESSES = multiprocessing.get_context("forkserver")
"""Each training is a process that is forked from one that has imported everything."""
PROCESSES.set_forkserver_preload(["tests.reliability.training"])
NETWORKS = {"attention": ATTENTION, "karhunen_loeve": KRIGING}
ITERATIONS, ENDLESS = 100, 10**7


def configure(architecture: str, iterations: int) -> MethodConfig:
    training = TrainingConfig(
        iterations=iterations,
        batch_size=20,
        learning_rate=1e-3,
        validate_every=min(50, iterations),
        schedule="cosine",
        average_decay=0.9,
    )
    return MethodConfig(network=NETWORKS[architecture], training=training)


class Training:
    """One training that is started, killed and continued as a process of its own."""

    def __init__(
        self,
        folder: Path,
        files: DataFiles,
        architecture: str,
        minutes: float,
        iterations: int = ITERATIONS,
    ) -> None:
        folder.mkdir()
        method = configure(architecture, iterations)
        self.folder = folder
        self.messages = folder / "messages"
        self.arguments = (
            folder,
            method.model_dump(mode="json"),
            [files.functions, files.sensors, files.validation],
            minutes,
        )

    def start(self, hold: int | None = None) -> BaseProcess:
        """Start, or continue; stand still at an iteration until a signal comes."""
        self.messages.unlink(missing_ok=True)
        process = PROCESSES.Process(target=work, args=(*self.arguments, hold))
        process.start()
        return process

    def finish(self) -> tuple[bytes, str]:
        """Run to the end; return weights and messages."""
        process = self.start()
        process.join()
        messages = self.messages.read_text()
        assert process.exitcode == 0, messages
        assert not (self.folder / "state").exists()
        assert not list(self.folder.glob(".*.part"))
        return (self.folder / "w.safetensors").read_bytes(), messages

    def saved(self) -> int:
        """Return the iteration of the checkpoint, 0 without one."""
        state = self.folder / "state"

        def read() -> int | None:
            try:
                return read_weights(state)[1]["iteration"] if state.exists() else 0
            except DataError:  # replaced between two looks at it: it is opened twice
                return None

        return wait_for(read, lambda: None, pause=0.01)

    def wait_for_checkpoint(self, process: BaseProcess, after: int) -> int:
        """Wait until a later iteration is saved."""

        def later() -> int | None:
            assert process.exitcode is None, self.messages.read_text()
            found = self.saved()
            return found if found > after else None

        return wait_for(later, lambda: None, pause=0.01)


def stop(process: BaseProcess, signum: int) -> None:
    """Send a signal and wait for the end."""
    assert process.pid is not None
    os.kill(process.pid, signum)
    process.join()


@pytest.mark.long
@pytest.mark.parametrize("architecture", ["attention", "karhunen_loeve"])
def test_killed_again_and_again_it_ends_with_the_same_bytes(
    architecture: str, diffusion_files: DataFiles, tmp_path: Path
) -> None:
    whole, _ = Training(tmp_path / "whole", diffusion_files, architecture, 10).finish()
    # A checkpoint with every iteration: kills meet its writing often.
    parts = Training(tmp_path / "parts", diffusion_files, architecture, 1e-9)
    last = 0
    for signum in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        process = parts.start(hold=last + 25)
        last = parts.wait_for_checkpoint(process, last)
        stop(process, signum)
        messages = parts.messages.read_text()
        found = parts.saved()
        assert found >= last, "a saved iteration was lost"
        if signum == signal.SIGTERM:
            assert f"stopped by signal 15 at iteration {found}" in messages
            assert "Traceback" not in messages and process.exitcode == 1
        last = found
    bytes_, messages = parts.finish()
    assert f"continuing at iteration {last}" in messages
    assert bytes_ == whole


@pytest.mark.long
def test_sigterm_saves_at_once_though_no_checkpoint_is_due(
    diffusion_files: DataFiles, tmp_path: Path
) -> None:
    training = Training(tmp_path / "run", diffusion_files, "attention", 1e6, ENDLESS)
    process = training.start()

    def at_work() -> bool | None:
        assert process.exitcode is None
        return (
            training.messages.exists() and "iteration 50/" in training.messages.read_text()
        ) or None

    wait_for(at_work, lambda: None)
    assert training.saved() == 0
    stop(process, signal.SIGTERM)  # neither the last iteration nor a checkpoint is near
    messages = training.messages.read_text()
    assert f"stopped by signal 15 at iteration {training.saved()};" in messages
    assert training.saved() >= 50


def test_what_is_saved_is_at_most_as_old_as_configured(
    diffusion_files: DataFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that each iteration moves on by a second: saved is with the first that is due."""
    now, saved = [0.0], []
    step, save = StackedOptimiser.step, loop.save_checkpoint

    def timed(self, *arguments):
        now[0] += 1
        return step(self, *arguments)

    def noted(*arguments):
        saved.append(arguments[-1].iteration)
        save(*arguments)

    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(StackedOptimiser, "step", timed)
    monkeypatch.setattr(loop, "save_checkpoint", noted)
    files = diffusion_files.functions, diffusion_files.sensors, diffusion_files.validation
    method = configure("attention", 33)
    job = TrainingJob("uqsonet", "diffusion1d", method, 0.0, [0, 1], 400, 4, *files, "code")
    jobs = JobsConfig(checkpoint_minutes=5 / 60)
    outputs = tmp_path / "w.safetensors", tmp_path / "w.csv", tmp_path / "state"
    train(job, jobs, *outputs, bar=False)
    assert saved == [6, 12, 18, 24, 30]


def checkpoint(path: Path, state: dict[str, torch.Tensor]) -> None:
    identity = {"config": {"training": {"learning_rate": 0.1}}}
    save_checkpoint(path, identity, state, [], Progress(7, 1.0, []))


def test_a_state_that_is_not_finite_does_not_replace_the_last_good_one(tmp_path: Path) -> None:
    """A gradient of NaN spoils the parameters one step before any loss tells."""
    path = tmp_path / "state.safetensors"
    with pytest.raises(TrainingError, match="no checkpoint yet"):
        checkpoint(path, {"parameter/w": torch.tensor([float("nan")])})
    checkpoint(path, {"parameter/w": torch.ones(2)})
    before = path.read_bytes()
    with pytest.raises(
        TrainingError, match=r"parameter/w is not finite at iteration 7.*lower-rate"
    ):
        checkpoint(path, {"parameter/w": torch.tensor([1.0, float("nan")])})
    assert path.read_bytes() == before


def test_a_checkpoint_goes_on_at_a_lower_rate_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    checkpoint(path, {"parameter/w": torch.ones(2)})
    assert lower_rate(path, 0.01) == (7, 0.1)
    _, meta = read_weights(path)
    assert meta["identity"]["config"]["training"]["learning_rate"] == 0.01
    assert meta["earlier_rates"] == [[7, 0.1]]
    with pytest.raises(TrainingError, match="a lower one is asked for"):
        lower_rate(path, 0.02)
    write_weights(path, {"parameter/w": torch.ones(1)}, {"method": "uqsonet"})
    with pytest.raises(DataError, match="not a checkpoint"):
        lower_rate(path, 0.001)

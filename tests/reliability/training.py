"""One training as a process of its own, which can be killed; `test_resume.py` starts it."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from uqsonet.errors import UQSONetError
from uqsonet.training import loop
from uqsonet.training.optimiser import StackedOptimiser
from uqsonet_study.config import JobsConfig, MethodConfig
from uqsonet_study.training import TrainingJob, train


def hold(iteration: int) -> None:
    """Let the training stand still at an iteration until a signal comes: kills find it at work."""
    step, flag, signals = StackedOptimiser.step, loop.termination_flag, []

    @contextmanager
    def known_flag() -> Iterator[list[int]]:
        with flag() as received:
            signals.append(received)
            yield received

    def held(self: StackedOptimiser, index: int, *arguments: Any) -> Any:
        found = step(self, index, *arguments)
        while index + 1 >= iteration and not signals[0]:
            time.sleep(0.01)
        return found

    loop.termination_flag, StackedOptimiser.step = known_flag, held


def work(
    folder: Path, method: dict[str, Any], files: list[Path], minutes: float, held: int | None
) -> None:
    """Train in a folder, from scratch or from the checkpoint there; messages go to a file."""
    messages = os.open(folder / "messages", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(messages, sys.stderr.fileno())
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, force=True)
    if held is not None:
        hold(held)
    chosen = MethodConfig.model_validate(method)
    job = TrainingJob("uqsonet", "diffusion1d", chosen, 0.0, [0, 1], 400, 4, *files, "code")
    outputs = folder / "w.safetensors", folder / "w.csv", folder / "state"
    try:
        train(job, JobsConfig(checkpoint_minutes=minutes), *outputs, bar=False)
    except UQSONetError as error:
        sys.exit(str(error))

"""How far a training is: checkpoints, a line on a terminal, signals that stop it.

A training killed at any moment continues from its checkpoint to the same weights. A checkpoint is
one safetensors file with parameters, Adam moments, weight averages, generator state and history.
Its header says what defines the run; one of another run is refused with the reason and training
starts anew.
"""

from __future__ import annotations

import json
import logging
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from uqsonet.errors import DataError, TrainingError
from uqsonet.operator.weight_files import read_weights, write_weights

LOG = logging.getLogger("uqsonet")

Identity = dict[str, Any]
"""What defines a run: JSON-serialisable."""

GENERATOR = "generator/{}"  # name of a generator's state in a checkpoint, by its number


@dataclass
class Progress:
    """How far a run is."""

    iteration: int = 0  # steps taken
    seconds: float = 0.0  # time spent in training so far, over all sessions
    history: list[dict[str, Any]] = field(default_factory=list)  # logged rows
    earlier_rates: list[list[float]] = field(default_factory=list)
    """Where the rate was lowered on the way: iteration, and the rate until then."""


def save_checkpoint(
    path: Path, identity: Identity, state: dict[str, Tensor],
    generators: Sequence[torch.Generator], progress: Progress,
) -> None:  # fmt: skip
    """Write a checkpoint atomically; errors are those of `require_finite`."""
    require_finite(state, progress.iteration, path)
    meta = {"identity": identity, **vars(progress)}
    drawn = {GENERATOR.format(k): one.get_state() for k, one in enumerate(generators)}
    write_weights(path, state | drawn, meta)


def load_checkpoint(
    path: Path, identity: Identity, generators: Sequence[torch.Generator]
) -> tuple[dict[str, Tensor], Progress] | str:
    """Return state and progress, having restored generators, or why there is nothing to use."""
    if not path.exists():
        return "no checkpoint"
    try:
        state, meta = read_weights(path)
    except DataError as error:
        return f"unreadable checkpoint: {error}"
    if not isinstance(meta.get("identity"), dict):
        return f"{path} holds weights, not a checkpoint"
    before, now = meta.pop("identity"), json.loads(json.dumps(identity))
    if changed := [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]:
        return f"{path} belongs to another run: {', '.join(changed)} changed"
    for k, one in enumerate(generators):
        one.set_state(state.pop(GENERATOR.format(k)).cpu())
    return state, Progress(**meta)


def require_finite(tensors: Mapping[str, Tensor], iteration: int, checkpoint: Path) -> None:
    """Refuse tensors with NaN or infinity: a bad gradient spoils them before a loss tells.

    A `TrainingError` names the first of them, and the last good checkpoint.
    """
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise TrainingError(
                f"{name} is not finite at iteration {iteration}, so the gradient was not; "
                + advice(checkpoint)
            )


def advice(path: Path) -> str:
    """Say what is left of a training that failed, and how to go on."""
    if not path.exists():
        return (
            "there is no checkpoint yet. Lower learning_rate or set gradient_clip in the "
            "configuration and run the same command"
        )
    return (
        f"the last good checkpoint is kept in {path}. To start anew, lower learning_rate or set "
        "gradient_clip and run the same command"
    )


@contextmanager
def termination_flag() -> Iterator[list[int]]:
    """Collect SIGTERM and SIGINT in a list, so that a loop can save before it stops."""
    received: list[int] = []

    def note(number: int, _: object) -> None:
        received.append(number)

    try:
        old = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    except ValueError:  # not the main thread: signals are somebody else's business
        old = {}
    try:
        yield received
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


class ProgressBar:
    """Counts work done, its rate and the time left, and draws them in a line if asked to.

    `done` of the `total` units are of an earlier session. With `bar` the line is drawn if the error
    stream is a terminal. Several jobs on one terminal would overwrite each other, so the workflow
    draws lines only when it runs one job at a time.
    """

    def __init__(
        self, title: str, total: int, done: int = 0, bar: bool = True, unit: str = "it"
    ) -> None:
        self._title, self._total, self._first, self._unit = title, total, done, unit
        self._start, self._drawn, self._note = time.monotonic(), bar and sys.stderr.isatty(), ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            print(file=sys.stderr)

    def rate(self, done: int) -> float:
        """Return units per second in this session."""
        return (done - self._first) / max(time.monotonic() - self._start, 1e-9)

    def left(self, done: int) -> float:
        """Return the seconds that the rest will take at this session's rate."""
        rate = self.rate(done)
        return (self._total - done) / rate if rate else float("inf")

    def update(self, done: int, note: str | None = None) -> None:
        """Move the bar; the note beside it stays unless there is a new one."""
        LOG.log(15, "iteration %d of %d", done, self._total, extra={"drawn": self._drawn})
        self._note = self._note if note is None else note
        if self._drawn:
            bar = f"{'#' * round(20 * done / self._total):-<20}"
            speed = f"{self.rate(done):.0f} {self._unit}/s  {self.left(done):.0f} s left"
            line = f"{self._title} {bar} {done}/{self._total}  {speed}  {self._note}"
            width = shutil.get_terminal_size().columns - 1
            print(f"\r{line[:width]}\033[K", end="", file=sys.stderr, flush=True)

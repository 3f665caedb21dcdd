"""Checkpoints: a training killed at any moment continues to the same weights.

A checkpoint is one safetensors file with parameters, Adam moments, weight averages, generator
state and history. Its header says what defines the run; one of another run is refused with the
reason and training starts anew.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from uqsonet.errors import DataError, TrainingError
from uqsonet.operator.file import read_weights, write_weights

Identity = dict[str, Any]
"""What defines a run: JSON-serialisable."""

GENERATOR = "generator/0"
"""Name of the generator's state in a checkpoint."""


@dataclass
class Progress:
    """How far a run is.

    Attributes
    ----------
    iteration : int
        Steps taken.
    seconds : float
        Time spent in training so far, over all sessions.
    history : list of dict
        Logged rows.
    earlier_rates : list of [int, float]
        Where the rate was lowered on the way: iteration, and the rate until then.
    """

    iteration: int = 0
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)
    earlier_rates: list[list[float]] = field(default_factory=list)


def save_checkpoint(
    path: Path,
    identity: Identity,
    state: dict[str, Tensor],
    generator: torch.Generator,
    progress: Progress,
) -> None:
    """Write a checkpoint atomically.

    Raises
    ------
    TrainingError
        If the state is not finite: one bad gradient spoils the parameters before a loss tells.
        The last good checkpoint is kept.
    """
    bad = not_finite(state)
    if bad:
        raise TrainingError(
            f"{bad[0]} is not finite at iteration {progress.iteration}, so the gradient was not; "
            + advice(path)
        )
    meta = {"identity": identity, **vars(progress)}
    write_weights(path, state | {GENERATOR: generator.get_state()}, meta)


def load_checkpoint(
    path: Path, identity: Identity, generator: torch.Generator
) -> tuple[dict[str, Tensor], Progress] | str:
    """Return state and progress, having restored the generator, or why there is nothing to use."""
    if not path.exists():
        return "no checkpoint"
    try:
        state, meta = read_weights(path)
    except DataError as error:
        return f"unreadable checkpoint: {error}"
    if not isinstance(meta.get("identity"), dict):
        return f"{path} holds weights, not a checkpoint"
    before, now = meta["identity"], json.loads(json.dumps(identity))
    if changed := [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]:
        return f"{path} belongs to another run: {', '.join(changed)} changed"
    generator.set_state(state.pop(GENERATOR).cpu())
    kept = {key: meta[key] for key in ("iteration", "seconds", "history")}
    return state, Progress(**kept, earlier_rates=meta.get("earlier_rates", []))


def not_finite(tensors: dict[str, Tensor]) -> list[str]:
    """Return the names of tensors that hold NaN or infinity."""
    return [
        name
        for name, tensor in tensors.items()
        if tensor.is_floating_point() and not bool(tensor.isfinite().all())
    ]


def advice(path: Path) -> str:
    """Say what is left of a training that failed, and how to go on."""
    if not path.exists():
        return (
            "there is no checkpoint yet. Lower learning_rate or set gradient_clip in the "
            "configuration and run the same command"
        )
    return (
        f"the last good checkpoint is kept in {path}. To go on from it more slowly, run `uqsonet "
        f"lower-rate {path} RATE`, put the same learning_rate into the configuration and run the "
        "same command; to start anew, change learning_rate or gradient_clip alone"
    )


@contextmanager
def termination_flag() -> Iterator[list[int]]:
    """Collect SIGTERM and SIGINT in a list, so that a loop can save before it stops."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)

    try:
        old = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    except ValueError:  # not the main thread: signals are somebody else's business
        yield received
        return
    try:
        yield received
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)

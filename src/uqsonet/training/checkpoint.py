"""Checkpoints: a training killed at any moment continues to the same weights.

A checkpoint is one safetensors file with parameters, Adam moments, weight averages, generator
states and history. It is fingerprinted by what defines the run; one of another run is
refused with the reason and training starts anew.
"""

from __future__ import annotations

import hashlib
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

from uqsonet.errors import DataError
from uqsonet.storage import read_weights, write_weights

Identity = dict[str, Any]
"""What defines a run: JSON-serialisable."""


def fingerprint(identity: Identity) -> str:
    """Return a digest of what defines a run."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


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
    """

    iteration: int = 0
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)


def save_checkpoint(
    path: Path,
    identity: Identity,
    state: dict[str, Tensor],
    generators: list[torch.Generator],
    progress: Progress,
) -> None:
    """Write a checkpoint atomically."""
    states = {f"generator/{i}": g.get_state() for i, g in enumerate(generators)}
    meta = {"identity": identity, **vars(progress)}
    write_weights(path, state | states, meta)


def load_checkpoint(
    path: Path, identity: Identity, generators: list[torch.Generator]
) -> tuple[dict[str, Tensor], Progress] | str:
    """Return state and progress, having restored the generators, or why there is nothing to use."""
    if not path.exists():
        return "no checkpoint"
    try:
        state, meta = read_weights(path)
    except DataError as error:
        return f"unreadable checkpoint: {error}"
    if not isinstance(meta.get("identity"), dict):
        return f"{path} holds weights, not a checkpoint"
    if fingerprint(meta["identity"]) != fingerprint(identity):
        old, keys = meta["identity"], sorted(set(identity) | set(meta["identity"]))
        changed = [key for key in keys if old.get(key) != identity.get(key)]
        return f"{path} belongs to another run: {', '.join(changed)} changed"
    for i, generator in enumerate(generators):
        generator.set_state(state.pop(f"generator/{i}").cpu())
    return state, Progress(meta["iteration"], meta["seconds"], meta["history"])


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

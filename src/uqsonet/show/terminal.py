"""What commands say on a terminal: errors, doubts and progress, all on the error stream."""

from __future__ import annotations

import logging
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from uqsonet.errors import ObservationWarning, UQSONetError

console = Console(stderr=True)

LOG = logging.getLogger("uqsonet")

PROGRESS_LEVEL = 15  # level of messages that say how far work is: below those that are shown anyway
MAX_SILENCE = 5.0  # seconds after which work says what it is at, and again after as many


@contextmanager
def clear_errors() -> Iterator[None]:
    """Print what a user can mend as one message and exit with status 1; doubts as one line each."""

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, ObservationWarning):
            console.print(f"warning: {message}", style="yellow", markup=False, highlight=False)
        else:
            shown(message, category, *rest, **more)

    shown = warnings.showwarning
    try:
        with warnings.catch_warnings():
            warnings.showwarning = show
            yield
    except UQSONetError as error:
        console.print(f"error: {error}", style="red", markup=False, highlight=False)
        sys.exit(1)


class _Stage(logging.Handler):
    """Remembers the last message of the package's log, and when it came."""

    def __init__(self, first: str) -> None:
        super().__init__(PROGRESS_LEVEL)
        self.text, self.spoken = first, time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a message."""
        self.text = record.getMessage()
        shown = record.levelno >= logging.INFO
        if (shown and any(isinstance(one, logging.StreamHandler) for one in LOG.handlers)) or (
            getattr(record, "drawn", False)
        ):
            self.spoken = time.monotonic()


@contextmanager
def never_silent(what: str, wanted: bool = True) -> Iterator[None]:
    """Say on the error stream, every five seconds without another line, what work is at.

    It works with and without a terminal, in scripts and in notebooks, whatever the work does.
    Unless it is `wanted` nothing is said, and work within other work leaves the word to that.
    """
    if not wanted or any(isinstance(one, _Stage) for one in LOG.handlers):
        yield
        return
    stage, level, start, done = _Stage("started"), LOG.level, time.monotonic(), threading.Event()

    def speak() -> None:
        while not done.wait(0.2):
            now = time.monotonic()
            if now - stage.spoken >= MAX_SILENCE:
                print(f"{what}, {now - start:.0f} s: {stage.text}", file=sys.stderr, flush=True)
                stage.spoken = now

    speaker = threading.Thread(target=speak, daemon=True)
    LOG.addHandler(stage)
    LOG.setLevel(min(level, PROGRESS_LEVEL) if level else PROGRESS_LEVEL)
    speaker.start()
    try:
        yield
    finally:
        done.set()
        speaker.join()
        LOG.removeHandler(stage)
        LOG.setLevel(level)


def show_log() -> None:
    """Print what the package logs, with the time of day."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.INFO)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    LOG.handlers[:] = [handler, *(one for one in LOG.handlers if isinstance(one, _Stage))]
    LOG.setLevel(logging.INFO)

"""What commands say on a terminal: errors, doubts and progress, all on the error stream."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from uqsonet.errors import ObservationWarning, UQSONetError

console = Console(stderr=True)


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


def show_log() -> None:
    """Print what the package logs, with the time of day."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    log = logging.getLogger("uqsonet")
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO)

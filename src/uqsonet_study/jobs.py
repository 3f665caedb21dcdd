"""The frame around every job of the workflow: log, threads, clear errors, cost.

A script opens it with ``with job(snakemake) as told:`` and calls one function inside.
"""

from __future__ import annotations

import logging
import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from uqsonet.errors import UQSONetError
from uqsonet.files import remove_debris, write_text
from uqsonet_study.headers import require_headers

LOG = logging.getLogger("uqsonet")


@contextmanager
def job(snakemake: Any, threads: int | None = None) -> Iterator[dict[str, Any]]:
    """Set up logging and threads, yield what the job is told, turn user errors into one line.

    Inputs that say they are about something else are refused before it starts.

    Parameters
    ----------
    snakemake : object
        What Snakemake gives to a script: `params.told`, `input`, `output`, `log`, `threads`.
    threads : int, optional
        Threads of torch, by default those of the job.
    """
    with frame(snakemake, threads):
        told = dict(snakemake.params.told)
        require_headers(dict(snakemake.input.items()), told)
        yield told


@contextmanager
def jobs(snakemake: Any) -> Iterator[list[dict[str, Any]]]:
    """Do `job` for a rule that makes one thing or several: `params.jobs` holds what each is told.

    Their inputs, where they are checked, stand in what they are told.
    """
    with frame(snakemake):
        for told in snakemake.params.jobs:
            require_headers(told, told)
        yield [dict(told) for told in snakemake.params.jobs]


@contextmanager
def frame(snakemake: Any, threads: int | None = None) -> Iterator[None]:
    """Do all of `job` for a script that is told nothing."""
    torch = sys.modules.get("torch")  # a job that has not imported it has no use for it
    if torch is not None:
        torch.set_num_threads(max(1, threads or snakemake.threads))
    handler: logging.Handler | None = None
    start = time.monotonic()
    try:
        log = Path(snakemake.log[0])
        log.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(log, mode="a", encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        LOG.addHandler(handler)
        LOG.setLevel(logging.INFO)
        for path in snakemake.output:  # no other job writes them: left over from a killed one
            remove_debris(Path(path))
        yield
        used = resource.getrusage(resource.RUSAGE_SELF)
        helpers = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = sum(part.ru_utime + part.ru_stime for part in (used, helpers))
        LOG.info(
            "%s done in %.1f s, processor %.1f s, peak memory %.0f MiB",
            snakemake.rule,
            time.monotonic() - start,
            processor,
            used.ru_maxrss / 1024,
        )
    except Exception as error:
        message = _explained(error)
        if message is None:
            LOG.exception("%s failed", snakemake.rule)
            raise
        LOG.error("%s", message)
        print(f"\n{snakemake.rule}: {message}\n", file=sys.stderr, flush=True)
        sys.exit(1)
    finally:
        if handler is not None:
            LOG.removeHandler(handler)
            handler.close()


def draws_bar() -> bool:
    """Return whether jobs draw progress bars: where one runs at a time, on a terminal."""
    return os.environ.get("UQSONET_BAR") == "1"


def log_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the rows of a log as CSV; what a row has not stays empty."""
    import pandas as pd  # deferred: most jobs write none

    text = pd.DataFrame(rows).to_csv(index=False, float_format="%.6g", lineterminator="\n")
    write_text(path, text)


def _explained(error: Exception) -> str | None:
    """Return what to tell a user, None for what is a fault of the program and wants a traceback."""
    if isinstance(error, UQSONetError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'a file'}: {error.strerror}; finished work is untouched"
    # What torch cannot allocate is a RuntimeError like any other on a CPU.
    lacks = ("not enough memory", "can't allocate memory", "out of memory")
    torch_lacks = isinstance(error, RuntimeError) and any(words in str(error) for words in lacks)
    if isinstance(error, MemoryError) or torch_lacks:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        return (
            f"not enough memory (this job had {peak} MiB): run fewer jobs at a time (--cores), "
            "or lower batch_size or shard in the configuration. Finished work is untouched, and "
            "the same command continues"
        )
    return None

"""The frame around every job of the workflow: log, threads, clear errors.

A script opens it with ``with job(snakemake) as (files, params):`` and calls one function inside.
"""

from __future__ import annotations

import logging
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from uqsonet.errors import UQSONetError
from uqsonet.files import remove_debris, write_text

LOG = logging.getLogger("uqsonet")


@contextmanager
def job(snakemake: Any, threads: int | None = None) -> Iterator[tuple[Any, Any]]:
    """Set up log and threads, and turn what a user can mend into one line.

    Parameters
    ----------
    snakemake : object
        What Snakemake gives to a script.
    threads : int, optional
        Threads of torch, by default those of the job.

    Yields
    ------
    files : namespace
        Named inputs and outputs of the rule as paths, or lists of paths; `out` is the first output,
        `state` where the rule keeps finished parts.
    params : object
        Parameters of the rule.
    """
    torch = sys.modules.get("torch")  # a job that has not imported it has no use for it
    if torch is not None:
        torch.set_num_threads(max(1, threads or snakemake.threads))
    log = Path(snakemake.log[0])
    log.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(log, mode="a", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    try:
        for path in snakemake.output:  # no other job writes them: left over from a killed one
            remove_debris(Path(path))
        yield _files(snakemake), snakemake.params
        LOG.info("%s done", snakemake.rule)
    except Exception as error:
        message = _explained(error)
        if message is None:
            LOG.exception("%s failed", snakemake.rule)
            raise
        LOG.error("%s", message)
        print(f"\n{snakemake.rule}: {message}\n", file=sys.stderr, flush=True)
        sys.exit(1)
    finally:
        LOG.removeHandler(handler)
        handler.close()


def _files(snakemake: Any) -> SimpleNamespace:
    named = {**dict(snakemake.input.items()), **dict(snakemake.output.items())}
    found: dict[str, Any] = {
        name: Path(paths) if isinstance(paths, str) else [Path(path) for path in paths]
        for name, paths in named.items()
    }
    if "state" in snakemake.params.keys():
        found["state"] = Path(snakemake.params.state)
    return SimpleNamespace(out=Path(snakemake.output[0]), **found)


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

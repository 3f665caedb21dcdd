"""The frame around every job of the workflow: log, threads, clear errors, cost.

A script opens it with ``with job(snakemake) as spec:`` and calls one function inside.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from uqsonet.errors import UQSONetError
from uqsonet.files import remove_debris
from uqsonet_study.headers import require_headers

LOG = logging.getLogger("uqsonet")


@contextmanager
def job(snakemake: Any, threads: int | None = None) -> Iterator[dict[str, Any]]:
    """Set up logging and threads, yield the job's parameters, turn user errors into one line.

    Files whose headers are not those that the job expects are refused before it starts.

    Parameters
    ----------
    snakemake : object
        What Snakemake gives to a script: `params.spec` (JSON), `output`, `log`, `threads`.
    threads : int, optional
        Threads of torch, by default those of the job.
    """
    with frame(snakemake, threads):
        yield _read(snakemake.params.spec)


@contextmanager
def jobs(snakemake: Any) -> Iterator[dict[str, dict[str, Any]]]:
    """Do `job` for a rule that makes one thing or several; yield name -> parameters.

    Parameters
    ----------
    snakemake : object
        As in `job`, with `params.specs` (name -> JSON).
    """
    with frame(snakemake):
        yield {name: _read(spec) for name, spec in snakemake.params.specs.items()}


def _read(text: str) -> dict[str, Any]:
    """Return parameters from JSON; wrong headers of inputs are refused."""
    spec = json.loads(text)
    require_headers(spec.pop("headers", {}))
    return spec


@contextmanager
def frame(snakemake: Any, threads: int | None = None) -> Iterator[None]:
    """Do all of `job` for a script without a specification."""
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
        for path in snakemake.output:  # no other job writes them, so what is there is of the dead
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


def _explained(error: Exception) -> str | None:
    """Return what to tell a user, None for what is a fault of the program and wants a traceback."""
    if isinstance(error, UQSONetError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'a file'}: {error.strerror}; finished work is untouched"
    if isinstance(error, MemoryError) or _torch_lacks_memory(error):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        return (
            f"not enough memory (this job had {peak} MiB): run fewer jobs at a time (--cores), "
            "or lower batch_size or shard in the configuration. Finished work is untouched, and "
            "the same command continues"
        )
    return None


def _torch_lacks_memory(error: Exception) -> bool:
    """Whether torch could not allocate; on a CPU that is a RuntimeError like any other."""
    return isinstance(error, RuntimeError) and (
        "not enough memory" in str(error)
        or "can't allocate memory" in str(error)
        or "out of memory" in str(error)
    )

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

LOG = logging.getLogger("uqsonet")


@contextmanager
def job(snakemake: Any) -> Iterator[dict[str, Any]]:
    """Set up logging and threads, yield the job's parameters, turn user errors into one line.

    Parameters
    ----------
    snakemake : object
        What Snakemake gives to a script: `params.spec` (JSON), `log`, `threads`.
    """
    import torch

    torch.set_num_threads(max(1, snakemake.threads))
    log = Path(snakemake.log[0])
    log.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(log, mode="a", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    start = time.monotonic()
    try:
        yield json.loads(snakemake.params.spec)
    except UQSONetError as error:
        LOG.error("%s", error)
        print(f"\n{snakemake.rule}: {error}\n", file=sys.stderr, flush=True)
        sys.exit(1)
    except BaseException:
        LOG.exception("%s failed", snakemake.rule)
        raise
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    LOG.info(
        "%s done in %.1f s, peak memory %.0f MiB", snakemake.rule, time.monotonic() - start, peak
    )
    LOG.removeHandler(handler)

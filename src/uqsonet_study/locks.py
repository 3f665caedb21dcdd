"""Who is at work in a folder: locks of the kernel, which vanish with the process that holds them.

Snakemake locks the files of a run with files of its own. They survive SIGKILL, and every later
start is refused until somebody types ``--unlock``. Each run and each of its jobs therefore also
hold a shared kernel lock here; where nobody does, Snakemake's locks are of the dead and are
removed. A job that outlives its killed Snakemake keeps them valid, as it still writes files.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

NAME = "at-work.lock"
"""Beside Snakemake's own folder of locks."""


def join(folder: Path) -> int | None:
    """Hold the shared lock until this process ends.

    Parameters
    ----------
    folder : Path
        Snakemake's folder, ``.snakemake``.

    Returns
    -------
    int or None
        The open file, None where the folder cannot be locked (read-only, or a file system
        without locks): then Snakemake's own locks alone have to do.
    """
    try:
        folder.mkdir(exist_ok=True)
        file = os.open(folder / NAME, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH)
    except OSError:
        os.close(file)
        return None
    return file


def release_dead(folder: Path) -> int:
    """Remove Snakemake's locks if nobody holds the shared lock; return how many there were.

    Parameters
    ----------
    folder : Path
        Snakemake's folder, ``.snakemake``.
    """
    locks = sorted((folder / "locks").glob("*.lock"))
    if not locks:
        return 0
    try:
        file = os.open(folder / NAME, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError:
        return 0
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for lock in locks:
            lock.unlink(missing_ok=True)
    except OSError:  # somebody is at work, or locks are not to be had
        return 0
    finally:
        os.close(file)
    return len(locks)

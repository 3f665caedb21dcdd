"""Measuring: interleaved medians, the peak of matrix products, the machine's name."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from uqsonet.networks.devices import processor


def medians(actions: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the median seconds of each action.

    Actions take turns, so that what else a machine does slows all of them; the first round is a
    warm-up and does not count.
    """
    found: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(repeats + 1):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            if turn:
                found[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in found.items()}


def gemm_peak(repeats: int = 5) -> float:
    """Return operations a second of 1,536 x 1,536 float32 products: the best of some."""
    size = 1536
    a, b = torch.randn(2, size, size)
    best = min(_seconds(lambda: a @ b) for _ in range(repeats + 1))
    return 2 * size**3 / best


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Let torch use so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def hardware(number: int) -> str:
    """Return the processor's name with the number of threads used."""
    return f"{processor()}, {number} thread" + ("s" if number > 1 else "")

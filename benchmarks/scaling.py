"""How a step grows with sensors, points and batch, and what precedes it with N."""

from __future__ import annotations

import time

import torch

from benchmarks.rows import Row
from benchmarks.timing import hardware, medians
from benchmarks.training import engine_pass
from benchmarks.workloads import functions, workload
from uqsonet_study.problems import get_problem


def _row(what: str, number: int, value: float, unit: str = "s/iteration") -> Row:
    return Row(f"scaling with {what}: {number}", hardware(1), value, unit)


def _step(repeats: int, **changes: object) -> float:
    settings: dict[str, object] = {"counts": [5], "batch_size": 1000} | changes
    work = workload("diffusion1d", "paper", **settings)  # pyright: ignore[reportArgumentType]
    return medians({"step": engine_pass(work)}, repeats)["step"]


def rows(quick: bool) -> list[Row]:
    """Return the rows of scaling: recipe paper in 1D where nothing else is said."""
    repeats, found = (1 if quick else 5), []
    for m in (1, 4) if quick else (1, 2, 5, 10):
        found.append(_row("m, sensors", m, _step(repeats, counts=[m])))
    for size in (250, 500) if quick else (250, 500, 1000, 2000, 4000):
        found.append(_row("batch", size, _step(repeats, batch_size=size)))
    problem = get_problem("diffusion1d")
    before = problem.output_stride
    try:
        for stride in (8, 4) if quick else (8, 4, 2, 1):
            problem.output_stride = stride
            functions.cache_clear()
            points = problem.training_grid()[0].size
            found.append(_row("M, output points", points, _step(repeats)))
    finally:
        problem.output_stride = before
        functions.cache_clear()
    for size in (250, 500) if quick else (2500, 5000, 10_000, 20_000):
        work = workload("poisson2d", "paper", counts=[1], batch_size=100, pairs=size)
        data, start = functions("poisson2d", size), time.perf_counter()
        with torch.no_grad():
            work.model.fit_constants(data)
            work.model.targets(data)
        taken = time.perf_counter() - start
        found.append(_row("N, pairs (2D, span and coefficients)", size, taken, "s"))
    return found

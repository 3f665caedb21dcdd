"""Posteriors of 1,000 functions on the full grid: of one set, and of 100 sets together."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.rows import Row
from benchmarks.timing import hardware, medians
from benchmarks.workloads import workload
from uqsonet_study.layouts import uniform_layouts
from uqsonet_study.problems import get_problem

FUNCTIONS = 1000


def _rows(problem: str, recipe: str, quick: bool) -> list[Row]:
    work = workload(problem, recipe, counts=[4], batch_size=100, pairs=1000)
    model = work.model.eval()
    grid, sets = model.fields.input.grid, 4 if quick else 100
    generator = np.random.default_rng(0)
    kappa, _ = get_problem(problem).sample(generator, sets)
    layouts = torch.from_numpy(uniform_layouts(generator, grid.size, 4, sets)).long()
    x, y = model.fields.input.read(kappa, layouts)

    def single() -> None:
        model.condition(x[0], y[0]).sample(FUNCTIONS)

    def moments() -> None:
        posterior = model.condition(x, y)
        _ = posterior.mean(), posterior.std()

    def one_by_one() -> None:
        for k in range(sets):
            posterior = model.condition(x[k], y[k])
            _ = posterior.mean(), posterior.std()

    taken = medians({"single": single, "batch": moments, "loop": one_by_one}, 1)
    title = f"inference, {problem}, recipe {recipe}"
    return [
        Row(
            f"{title}, {FUNCTIONS} functions on {grid.size} points",
            hardware(1),
            taken["single"],
            "s/posterior",
        ),
        Row(
            f"{title}, mean and std on {grid.size} points, {sets} sets together",
            hardware(1),
            taken["batch"] / sets,
            "s/posterior",
            "set by set",
            taken["loop"] / sets,
        ),
    ]


def rows(quick: bool) -> list[Row]:
    """Return the rows of inference."""
    cases = [("diffusion1d", "tuned"), ("diffusion1d", "paper"), ("poisson2d", "tuned")]
    if not quick:
        cases.append(("poisson2d", "paper"))
    return [row for problem, recipe in cases for row in _rows(problem, recipe, quick)]

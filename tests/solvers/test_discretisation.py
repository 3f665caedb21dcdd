"""How far the data of sections 4.1 to 4.4 are from the continuum: the figures of docs/data.md.

The schemes are of second order, so the error on spacing h is 4/3 of the difference to h/2. Inputs
are the same fields on both grids (their factor extends off the grid).
"""

import numpy as np
import pytest
import torch

from uqsonet.fields.grid import Grid
from uqsonet_study.problems import get_problem
from uqsonet_study.solvers.elliptic1d import solve_elliptic1d
from uqsonet_study.solvers.elliptic2d import solve_elliptic2d
from uqsonet_study.solvers.poisson2d import solve_poisson2d

STATED = {  # median and worst relative L2 error of 16 samples, in docs/data.md
    "diffusion1d": (3.5e-4, 8.0e-4),
    "elliptic_sde1d": (4.9e-4, 1.3e-3),
    "poisson2d": (2.0e-4, 2.3e-4),
    "elliptic_sde2d": (1.8e-3, 2.7e-3),
}


def finer(grid: Grid) -> Grid:
    return Grid(grid.lower, grid.upper, tuple(2 * n - 1 for n in grid.shape))


def on(field, grid: Grid, xi: torch.Tensor) -> torch.Tensor:
    mean, rows = field.rows(grid.points())
    return mean + xi @ rows.T


def solve(name: str, grid: Grid, kappa: torch.Tensor, second: torch.Tensor | None) -> torch.Tensor:
    h, shape = grid.spacing()[0], grid.shape
    if name == "diffusion1d":
        return solve_elliptic1d(kappa, 2 * torch.sin(2 * torch.pi * grid.points()[:, 0]), h, 0.1)
    if name == "elliptic_sde1d":
        return solve_elliptic1d(kappa, second, h, 0.1)
    if name == "poisson2d":
        return solve_poisson2d(kappa.reshape(-1, *shape), h, 0.1).flatten(1)
    k, f = second.reshape(-1, *shape), kappa.reshape(-1, *shape)
    return solve_elliptic2d(k, f, h).flatten(1)


@pytest.mark.parametrize("name", STATED)
def test_the_discretisation_error_is_the_one_stated(name):
    problem = get_problem(name)
    xi, second = problem.normals(np.random.default_rng(0), 16)
    found = []
    for grid in (problem.grid, finer(problem.grid)):
        kappa = problem.transform.inverse(on(problem.prior, grid, xi))
        other = None
        if problem.unobserved is not None:
            other = problem.unobserved_transform.inverse(on(problem.unobserved, grid, second))
        found.append(solve(name, grid, kappa, other))
    _, kept = finer(problem.grid).subgrid(2)
    coarse, fine = found[0], found[1][:, kept]
    error = 4 / 3 * (coarse - fine).norm(dim=1) / fine.norm(dim=1)
    median, worst = STATED[name]
    assert float(error.median()) == pytest.approx(median, rel=0.05)
    assert float(error.max()) == pytest.approx(worst, rel=0.05)
    torch.testing.assert_close(coarse, problem.pairs(xi, second)[1])

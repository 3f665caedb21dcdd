"""Stages of data against peers: seconds a function, a solve or a layout, on one core."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import cast

import numpy as np
import torch
from scipy.linalg import solve_banded
from scipy.sparse import diags_array
from scipy.sparse.linalg import splu
from torch import Tensor

from benchmarks.rows import Row, not_run
from benchmarks.timing import hardware, medians
from uqsonet_study.layouts import candidates, first_centres, regular_space_layouts
from uqsonet_study.problems import get_problem
from uqsonet_study.problems.navier_stokes import NavierStokes
from uqsonet_study.solvers.elliptic1d import solve_elliptic1d
from uqsonet_study.solvers.elliptic2d import solve_elliptic2d
from uqsonet_study.solvers.navier_stokes import solve_navier_stokes


def _row(
    name: str,
    unit: str,
    ours: tuple[Callable[[], object], int],
    peer: str,
    theirs: tuple[Callable[[], object], float],
    repeats: int,
) -> Row:
    """Measure two actions in turns; each comes with how many of the unit it makes."""
    taken = medians({"ours": ours[0], "peer": theirs[0]}, repeats)
    return Row(name, hardware(1), taken["ours"] / ours[1], unit, peer, taken["peer"] / theirs[1])


def elliptic1d(repeats: int) -> Row:
    """Closed-form flux integration against a banded solve for each coefficient."""
    problem, size = get_problem("diffusion1d"), 2000
    k, _ = problem.sample(np.random.default_rng(0), size)
    n, spacing = k.shape[1], problem.grid.spacing()[0]
    f = torch.ones(n, dtype=k.dtype)
    half = (0.5 * (k[:, 1:] + k[:, :-1]) / spacing**2).numpy()
    right, some = np.ones(n - 2), 200

    def banded() -> None:
        for middle in half[:some]:
            bands = np.zeros((3, n - 2))
            bands[0, 1:] = bands[2, :-1] = -middle[1:-1]
            bands[1] = middle[1:] + middle[:-1]
            solve_banded((1, 1), bands, right, overwrite_ab=True, check_finite=False)

    ours = (lambda: solve_elliptic1d(k, f, spacing), size)
    name = "1D elliptic solve, 401 points, float64"
    return _row(name, "s/solve", ours, "scipy.linalg.solve_banded", (banded, some), repeats)


def elliptic2d(repeats: int) -> Row:
    """Preconditioned conjugate gradients in batches against a sparse factorisation for each k."""
    problem, size = get_problem("elliptic_sde2d"), 16
    assert problem.unobserved is not None
    xi = torch.randn(size, problem.unobserved.rank, dtype=torch.float64)
    side, spacing = problem.grid.shape[0], problem.grid.spacing()[0]
    k = problem.unobserved.field(xi).exp().reshape(-1, side, side)
    f = torch.ones(1, side, side, dtype=torch.float64)

    def factorised() -> None:
        for one in k[:3].numpy():
            splu(five_point(one, spacing)).solve(np.ones((side - 2) ** 2))

    name = "2D elliptic solve, variable coefficient, 101 x 101 points, float64"
    ours = (lambda: solve_elliptic2d(k, f.expand_as(k), spacing), size)
    return _row(name, "s/solve", ours, "SuperLU (scipy)", (factorised, 3), repeats)


def five_point(k: np.ndarray, spacing: float) -> object:
    """Return the central-difference matrix of ``-div(k grad u)`` at interior points (CSC)."""
    inner = k[1:-1, 1:-1]
    faces = [
        0.5 * (inner + k[2:, 1:-1]),
        0.5 * (inner + k[:-2, 1:-1]),
        0.5 * (inner + k[1:-1, 2:]),
        0.5 * (inner + k[1:-1, :-2]),
    ]
    n = len(inner)
    right = faces[2].copy()
    right[:, -1] = 0  # the neighbour beyond a row's end is a boundary point
    right = right.ravel()[:-1]
    below = faces[0][:-1].ravel()
    bands = [np.sum(faces, 0).ravel(), -right, -right, -below, -below]
    offsets = np.array([0, 1, -1, n, -n])
    return diags_array(bands, offsets=offsets, format="csc") / spacing**2  # pyright: ignore


def gaussian_fields(repeats: int) -> Row:
    """Kronecker factors against a dense Cholesky factor, both made beforehand."""
    problem, size = get_problem("poisson2d"), 64
    xi = torch.randn(size, problem.gaussian_prior.rank, dtype=torch.float64)
    points = problem.grid.size
    lower = torch.randn(points, points, dtype=torch.float64).tril_()

    def dense() -> Tensor:
        return torch.randn(size, points, dtype=torch.float64) @ lower.T

    name = "2D Gaussian field, 101 x 101 points, float64"
    ours = (lambda: problem.gaussian_prior.field(torch.randn_like(xi)), size)
    return _row(name, "s/field", ours, "dense Cholesky factor", (dense, size), repeats)


def clustering(repeats: int) -> list[Row]:
    """Layouts from an early-ending scan against a scan of all points by each library."""
    grid, found = get_problem("poisson2d").grid, []
    places = candidates(grid, 0.1)
    points = grid.points().numpy()[places]
    for library in ("deeptime", "pyemma"):
        name = f"regular-space layout of 3 sensors on 81 x 81 points ({library})"
        if find_spec(library) is None:
            found.append(not_run(name, hardware(1), "s/layout", f"{library} is not installed"))
            continue
        layouts = regular_space_layouts(np.random.default_rng(0), grid, places, 3, 0.5, library)

        def ours(layouts: Iterator[np.ndarray] = layouts) -> None:
            for _ in range(20):
                next(layouts)

        def scan(library: str = library) -> None:
            chosen = np.random.default_rng(0).permutation(points)
            first_centres(chosen, 0.5, len(chosen), library)

        peer = f"{library}, scan of all points"
        found.append(_row(name, "s/layout", (ours, 20), peer, (scan, 1), repeats))
    return found


def navier_stokes(quick: bool) -> Row:
    """Our solver to time 10 against exponax."""
    problem = cast(NavierStokes, get_problem("navier_stokes"))
    size = 2 if quick else 16
    rng = np.random.default_rng(0)
    w0 = problem.gaussian_prior.field(problem.normals(rng, size)[0]).float().reshape(-1, 100, 100)
    forcing = problem.forcing.float()
    time, viscosity = problem.time, problem.viscosity

    def ours() -> Tensor:
        return solve_navier_stokes(w0, forcing, viscosity, time, problem.tolerance)

    name = "Navier-Stokes to T = 10, 100 x 100 points, float32"
    if quick or find_spec("exponax") is None:
        taken = medians({"ours": ours}, 1)["ours"] / size
        return Row(name, hardware(1), taken, "s/sample")
    peer = "exponax, ETDRK4, dt 0.05 (JAX)"
    return _row(name, "s/sample", (ours, size), peer, (_exponax(w0, forcing), 2), 2)


def _exponax(w0: Tensor, forcing: Tensor) -> Callable[[], object]:
    import exponax
    import jax

    spectrum = jax.numpy.fft.rfft2(forcing.numpy())

    class Forced(exponax.stepper.NavierStokesVorticity):
        def _build_nonlinear_fun(self, derivative_operator):  # pyright: ignore
            convection = super()._build_nonlinear_fun(derivative_operator)
            return lambda w: convection(w) + spectrum

    settings = {"diffusivity": 1e-3, "vorticity_convection_scale": -1.0, "order": 4}
    stepper = Forced(2, 1.0, 100, 0.05, **settings)  # pyright: ignore
    run = jax.jit(exponax.repeat(stepper, 200))

    def two() -> None:
        for one in w0[:2].numpy():
            run(one[None]).block_until_ready()

    return two


def rows(quick: bool) -> list[Row]:
    """Return the rows of data."""
    repeats = 1 if quick else 5
    with torch.no_grad():
        found = [elliptic1d(repeats), elliptic2d(repeats)]
        if not quick:
            found.append(gaussian_fields(repeats))
        return [*found, *clustering(repeats), navier_stokes(quick)]

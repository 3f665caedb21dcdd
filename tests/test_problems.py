"""What holds for every problem of the package: shapes, equations, boundaries, symmetries."""

import itertools

import numpy as np
import pytest
import torch

from tests.residuals import residual_elliptic1d, residual_elliptic2d, residual_poisson2d
from uqsonet.errors import ConfigError
from uqsonet_study.priors.gaussian_process import GaussianField
from uqsonet_study.problems import get_problem, problem_names
from uqsonet_study.report.names import problem_about
from uqsonet_study.solvers.elliptic2d import solve_rough2d

NAMES = [name for name in problem_names() if not name.startswith("toy")]
AFFINE = [name for name in NAMES if get_problem(name).affine]
GAUSSIAN = [name for name in NAMES if isinstance(get_problem(name).prior, GaussianField)]
every = pytest.mark.parametrize("name", NAMES)


def square(fields):
    return fields.reshape(-1, 101, 101)


def residual_diffusion(u, kappa, _):
    source = get_problem("diffusion1d").source
    return residual_elliptic1d(u, kappa, source, 0.005, 0.1), source


def residual_elliptic(u, k, f):
    return residual_elliptic2d(square(u), square(k), square(f), 0.01), f


RESIDUALS = {  # name: (u, kappa, unobserved) -> residual and right-hand side
    "diffusion1d": residual_diffusion,
    "elliptic_sde1d": lambda u, k, f: (residual_elliptic1d(u, k, f, 0.005, 0.1), f),
    "poisson2d": lambda u, f, _: (residual_poisson2d(square(u), square(f), 0.01, 0.1), f),
    "elliptic_sde2d": lambda u, f, k: residual_elliptic(u, k, f),
    "elliptic_sde2d_k": residual_elliptic,
}


def drawn(name, seed, size=3):
    """Both inputs and u, each (size, n)."""
    problem = get_problem(name)
    if name not in GAUSSIAN:
        kappa, u = problem.sample(np.random.default_rng(seed), size)
        return kappa, None, u
    xi, other = problem.normals(np.random.default_rng(seed), size)
    kappa, u = problem.pairs(xi, other)
    if problem.unobserved is not None:
        other = problem.unobserved_transform.inverse(problem.unobserved.field(other))
    return kappa, other, u


@every
def test_pairs_are_finite_double_and_repeat(name):
    problem = get_problem(name)
    assert problem.name == name
    assert problem_about(name)[2] == problem.title
    size = problem.block + 1 if problem.grid.dim == 2 else 5  # more than one block
    kappa, u = problem.sample(np.random.default_rng(0), size)
    assert kappa.shape == u.shape == (size, problem.grid.size)
    assert kappa.dtype == u.dtype == torch.float64
    assert kappa.isfinite().all() and u.isfinite().all()
    assert problem.transform.name != "log" or (kappa > 0).all()
    assert u.std(0).max() > 1e-3 and kappa.std(0).max() > 1e-3
    field = problem.transform.forward(kappa)
    torch.testing.assert_close(problem.transform.inverse(field), kappa, rtol=1e-13, atol=0)
    grid, kept = problem.training_grid()
    shapes = {(401,): (101,), (101, 101): (51, 51), (100, 100): (50, 50)}  # as its page states
    assert grid.shape == shapes.get(problem.grid.shape, problem.grid.shape)
    torch.testing.assert_close(problem.grid.points()[kept], grid.points(), rtol=0, atol=1e-15)
    pairs = [problem.sample(np.random.default_rng(seed), 3) for seed in (1, 1, 2)]
    for first, again, other in zip(*pairs, strict=True):
        assert torch.equal(first, again) and not torch.equal(first, other)


@pytest.mark.parametrize("name", RESIDUALS)
def test_u_solves_the_discrete_equation_of_its_section(name):
    kappa, other, u = drawn(name, 3)
    residual, source = RESIDUALS[name](u, kappa, other)
    assert residual.norm() < 1e-7 * source.norm()  # iterations end at 1e-8 of the scaled system
    residual, _ = RESIDUALS[name](1.01 * u, kappa, other)
    assert residual.norm() > 5e-3 * source.norm()
    if name == "elliptic_sde2d":  # both readings of section 4.4 are one equation
        found = get_problem("elliptic_sde2d_k").solve(other, kappa)
        torch.testing.assert_close(found, u, rtol=0, atol=1e-9)


@every
def test_u_vanishes_where_the_boundary_factor_does_and_only_there(name):
    problem = get_problem(name)
    factor = problem.fields.boundary_factor(problem.grid.points())
    assert factor.shape == (problem.grid.size,) and (factor >= 0).all()
    _, _, u = drawn(name, 4)
    assert (u[:, factor == 0] == 0).all()
    assert (u[:, factor > 0] != 0).double().mean() > 0.99
    points = problem.grid.points()
    lower, upper = (torch.tensor(end).double() for end in (problem.grid.lower, problem.grid.upper))
    boundary = ((points == lower) | (points == upper)).any(1)
    assert torch.equal(factor == 0, boundary) or (factor == 1).all()


@pytest.mark.parametrize("name", AFFINE)
def test_respond_affine_is_the_solution_for_every_pair_and_is_affine(name):
    problem = get_problem(name)
    kappa, other, _ = drawn(name, 5, 2)
    sources, fixed = (kappa, other) if problem.affine == "kappa" else (other, kappa)
    sources = torch.cat([sources, 0.3 * sources[:1] + 0.7 * sources[1:], 0 * sources[:1]])
    u = problem.solve_affine(fixed, sources)
    assert u.shape == (1 if fixed is None else 2, 4, problem.grid.size)
    scale = float(u.abs().max())
    for b, r in itertools.product(range(len(u)), range(4)):
        if fixed is None:
            alone = problem.solve(sources[r : r + 1])
        elif problem.affine == "kappa":
            alone = problem.solve(sources[r : r + 1], fixed[b : b + 1])
        else:
            alone = problem.solve(fixed[b : b + 1], sources[r : r + 1])
        torch.testing.assert_close(u[b, r], alone[0], rtol=0, atol=1e-6 * scale)
    mixed = 0.3 * u[:, 0] + 0.7 * u[:, 1]
    torch.testing.assert_close(u[:, 2], mixed, rtol=0, atol=1e-6 * scale)
    assert u[:, 0].std() > 1e-3 and (u[:, 3] == 0).all()


def test_other_problems_refuse_what_needs_an_affine_or_a_gaussian_law():
    for problem in map(get_problem, sorted(set(NAMES) - set(AFFINE))):
        with pytest.raises(NotImplementedError, match=f"{problem.name} is not declared affine"):
            problem.solve_affine(None, torch.ones(1, problem.grid.size))
    for name in sorted(set(NAMES) - set(GAUSSIAN)):
        with pytest.raises(ConfigError, match=f"problem {name}: its input is no Gaussian field"):
            get_problem(name).normals(np.random.default_rng(0), 1)


@every
def test_symmetries_are_a_group_of_distinct_permutations_and_begin_with_the_identity(name):
    problem = get_problem(name)
    permutations = problem.symmetries()
    places = {tuple(p.tolist()) for p in permutations}
    assert permutations[0].tolist() == list(range(problem.grid.size))
    assert all(torch.equal(p.sort().values, permutations[0]) for p in permutations)
    assert len(places) == len(permutations) == (8 if name == "elliptic_sde2d" else 1)
    pairs = itertools.product(permutations, permutations) if len(places) > 1 else ()
    assert {tuple(p[q].tolist()) for p, q in pairs} <= places


@pytest.mark.parametrize("number", [1, 4, 7])
def test_symmetries_move_solutions_along_and_leave_the_law_of_the_coefficient(number):
    problem = get_problem("elliptic_sde2d")
    f, k, u = drawn("elliptic_sde2d", 7, 2)
    p = problem.symmetries()[number]
    torch.testing.assert_close(problem.solve(f[:, p], k[:, p]), u[:, p], rtol=0, atol=1e-7)
    some = torch.from_numpy(np.random.default_rng(0).choice(problem.grid.size, 200, replace=False))
    points, law = problem.grid.points(), problem.unobserved
    mean, rows = law.rows(points[some])
    moved_mean, moved = law.rows(points[p[some]])
    torch.testing.assert_close(moved @ moved.T, rows @ rows.T, rtol=0, atol=1e-12)
    assert torch.equal(moved_mean, mean)


def test_darcy_media_have_two_values_and_solve_the_five_point_system():
    kappa, _, u = drawn("darcy128", 3)
    k, u = (field.reshape(-1, 128, 128) for field in (kappa, u))
    assert kappa.unique().tolist() == [3.0, 12.0]
    one = torch.ones_like(k[:1])
    exact = solve_rough2d(k, one, 1 / 127)
    left, wrong = (residual_elliptic2d(c * exact, k, one, 1 / 127).norm() for c in (1.0, 1.01))
    assert left < 1e-6 * wrong
    assert 0 < (u - exact).abs().max() < 5e-6 * exact.max()  # single precision


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_gives_the_same_pairs_to_rounding(name):
    problem = get_problem(name)
    kappa, u = problem.sample(np.random.default_rng(1), 20)
    same, near = problem.sample(np.random.default_rng(1), 20, device="cuda")
    assert torch.equal(kappa, same)
    assert ((u - near).norm(dim=1) / u.norm(dim=1)).max() < 1e-5

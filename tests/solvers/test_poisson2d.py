"""The sine-transform solver is exact for the five-point system and of second order."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from uqsonet.problems import get_problem
from uqsonet.solvers.poisson2d import residual_poisson2d, sine_basis, solve_poisson2d

EPS = torch.finfo(torch.float64).eps


def five_point(n: int) -> sp.csr_matrix:
    """``-h^2 Lap`` on the interior points, last axis fastest, assembled here."""
    second = sp.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(n - 2, n - 2))
    one = sp.identity(n - 2)
    return (sp.kron(second, one) + sp.kron(one, second)).tocsr()


def random_source(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def mesh(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    line = torch.linspace(0, 1, n, dtype=torch.float64)
    return torch.meshgrid(line, line, indexing="ij")


def test_a_manufactured_solution_converges_at_second_order():
    def error(n: int) -> float:
        x, y = (axis.requires_grad_() for axis in mesh(n))
        u = x * (1 - x) * y * (1 - y) * torch.exp(x * y)
        laplacian = torch.zeros_like(u)
        for axis in (x, y):
            (slope,) = torch.autograd.grad(u.sum(), axis, create_graph=True)
            laplacian = laplacian + torch.autograd.grad(slope.sum(), axis, create_graph=True)[0]
        found = solve_poisson2d(-0.3 * laplacian.detach(), 1 / (n - 1), 0.3)
        return float((found - u.detach()).abs().max())

    sizes = np.array([12, 24, 48, 96])
    errors = [error(n + 1) for n in sizes]
    order = -np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert abs(order - 2) < 0.1, (order, errors)
    assert errors[-1] < 2e-5


@pytest.mark.parametrize("n", [3, 4, 9, 34, 101])
def test_the_solution_equals_a_sparse_direct_solve(n):
    f, h = random_source(n, n, n), 0.7 / (n - 1)
    matrix = five_point(n) * (0.1 / h**2)
    expected = sp.linalg.spsolve(matrix.tocsc(), f[1:-1, 1:-1].flatten().numpy())
    found = solve_poisson2d(f, h, 0.1)[1:-1, 1:-1].flatten().numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def test_the_residual_is_rounding():
    f, h = random_source(0, 5, 101, 101), 0.01
    u = solve_poisson2d(f, h, 0.1)
    # rounding of u is amplified by at most 8 c / h^2, the norm of the operator
    bound = 8 * 0.1 / h**2 * EPS * u.abs().max()
    assert residual_poisson2d(u, f, h, 0.1).abs().max() < 8 * bound
    assert residual_poisson2d(u * 1.001, f, h, 0.1).abs().max() > 1e-3


def test_the_residual_is_that_of_an_assembled_operator():
    u, f = random_source(1, 9, 9), random_source(2, 9, 9)
    u[[0, -1]] = u[:, [0, -1]] = 0.0
    inside = five_point(9) @ u[1:-1, 1:-1].flatten().numpy()
    expected = 0.7 * torch.from_numpy(inside).reshape(7, 7) / 0.2**2 - f[1:-1, 1:-1]
    torch.testing.assert_close(residual_poisson2d(u, f, 0.2, 0.7), expected)


@pytest.mark.parametrize(("a", "b"), [(1, 1), (2, 5), (31, 1), (31, 31)])
def test_discrete_sine_modes_are_eigenfunctions(a, b):
    (x, y), h = mesh(33), 1 / 32
    mode = torch.sin(a * torch.pi * x) * torch.sin(b * torch.pi * y)
    waves = torch.tensor([a, b]).double() * torch.pi * h / 2
    eigenvalue = float((4 * torch.sin(waves) ** 2).sum()) / h**2
    found = solve_poisson2d(mode, h)
    torch.testing.assert_close(found, mode / eigenvalue, rtol=0, atol=10 * EPS)


@pytest.mark.parametrize("points", [3, 10, 101])
def test_the_sine_matrix_is_symmetric_and_its_own_inverse(points):
    basis, _ = sine_basis(points, torch.float64, torch.device("cpu"))
    assert torch.equal(basis, basis.T)
    identity = torch.eye(points - 2).double()
    torch.testing.assert_close(basis @ basis, identity, rtol=0, atol=1e-13)


def test_the_solution_operator_is_symmetric_and_positive():
    sources = torch.zeros(49, 9, 9).double()
    sources[:, 1:-1, 1:-1] = torch.eye(49).double().reshape(49, 7, 7)
    matrix = solve_poisson2d(sources, 1 / 8)[:, 1:-1, 1:-1].flatten(1)
    torch.testing.assert_close(matrix, matrix.T, rtol=0, atol=1e-15)
    assert torch.linalg.eigvalsh(matrix).min() > 1 / (8 * 8**2)  # 1 / the operator's norm 8 / h^2
    assert (matrix > 0).all()  # the maximum principle


def test_float32_differs_from_float64_by_a_millionth():
    problem = get_problem("poisson2d")
    kappa, u = problem.sample(np.random.default_rng(0), 20)
    single = problem.solve(kappa.float())
    assert single.dtype == torch.float32
    error = (single - u).abs().amax(1) / u.abs().amax(1)
    assert 1e-9 < error.max() < 2e-6


def test_a_batch_equals_a_loop():
    f = random_source(3, 2, 3, 17, 17)
    loop = torch.stack([torch.stack([solve_poisson2d(one, 0.1) for one in row]) for row in f])
    torch.testing.assert_close(solve_poisson2d(f, 0.1), loop, rtol=0, atol=1e-14)


def test_boundary_values_of_the_source_have_no_influence_and_u_is_zero_there():
    f = random_source(4, 3, 21, 21)
    edge = torch.ones(21, 21, dtype=torch.bool)
    edge[1:-1, 1:-1] = False
    u = solve_poisson2d(f, 0.05)
    assert (u[:, edge] == 0).all() and (u[:, ~edge] != 0).all()
    assert torch.equal(solve_poisson2d(torch.where(edge, float("nan"), f), 0.05), u)


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), a=st.floats(-5, 5), scale=st.floats(0.1, 10))
def test_linear_in_the_source_and_inverse_in_the_coefficient(seed, a, scale):
    f, g = random_source(seed, 2, 12, 12)
    joint = solve_poisson2d(a * f + g, 0.1)
    torch.testing.assert_close(
        joint, a * solve_poisson2d(f, 0.1) + solve_poisson2d(g, 0.1), rtol=0, atol=1e-14
    )
    scaled = solve_poisson2d(f, 0.1, scale) * scale
    torch.testing.assert_close(scaled, solve_poisson2d(f, 0.1), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize(("coefficient", "reaction"), [(1.0, 0.0), (-1.0, 1.0), (0.1, 3.0)])
def test_sine_modes_are_solved_in_closed_form(coefficient, reaction):
    """``-c Lap u + r u = f`` for u a product of sines, whose five-point Laplacian is known."""
    n, (j, k) = 34, (3, 5)
    h = 1 / (n - 1)
    x, y = mesh(n)
    u = torch.sin(j * torch.pi * x) * torch.sin(k * torch.pi * y)
    laplacian = sum(4 / h**2 * np.sin(np.pi * mode * h / 2) ** 2 for mode in (j, k))
    f = (coefficient * laplacian + reaction) * u
    found = solve_poisson2d(f, h, coefficient, reaction)
    torch.testing.assert_close(found, u, rtol=0, atol=1e-13)
    residual = residual_poisson2d(found, f, h, coefficient, reaction)
    assert residual.abs().max() < 1e-12 * f.abs().max()
    wrong = residual_poisson2d(found, f, h, coefficient, reaction + 1)
    torch.testing.assert_close(wrong, u[1:-1, 1:-1], rtol=0, atol=1e-9)


def test_with_a_reaction_the_scheme_is_of_second_order():
    """Against the sine mode of the equation itself: ``Lap u + u = (1 - 13 pi^2) u``."""

    def error(n: int) -> float:
        x, y = mesh(n + 1)
        u = torch.sin(2 * torch.pi * x) * torch.sin(3 * torch.pi * y)
        found = solve_poisson2d((1 - 13 * torch.pi**2) * u, 1 / n, -1.0, 1.0)
        return float((found - u).abs().max())

    sizes = np.array([16, 32, 64])
    order = -np.polyfit(np.log(sizes), np.log([error(n) for n in sizes]), 1)[0]
    assert abs(order - 2) < 0.05

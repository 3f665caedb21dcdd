"""The bulk solver is exact for the discrete system and second order for the equation."""

import numpy as np
import pytest
import torch
from scipy.linalg import solve_banded

from tests.models.references import INNER, LINE, green1d
from tests.residuals import residual_elliptic1d
from uqsonet_study.problems import get_problem
from uqsonet_study.solvers.elliptic1d import solve_elliptic1d


def banded_solution(k: np.ndarray, f: np.ndarray, h: float, c: float) -> np.ndarray:
    """The same scheme as a tridiagonal system, assembled here and solved by LAPACK."""
    half = c * (k[1:] + k[:-1]) / 2 / h**2
    diagonals = np.zeros((3, len(k) - 2))
    diagonals[0, 1:] = -half[1:-1]
    diagonals[1] = half[:-1] + half[1:]
    diagonals[2, :-1] = -half[1:-1]
    return np.concatenate([[0], solve_banded((1, 1), diagonals, f[1:-1]), [0]])


def random_case(seed: int, shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    k = torch.exp(torch.randn(shape, generator=generator, dtype=torch.float64))
    return k, torch.randn(shape, generator=generator, dtype=torch.float64)


def test_a_manufactured_solution_converges_at_second_order():
    def error(n: int) -> float:
        x = torch.linspace(-1, 1, n + 1, dtype=torch.float64).requires_grad_()
        k = torch.exp(torch.sin(2 * torch.pi * x) + 0.4 * torch.cos(3 * x))
        u = torch.sin(torch.pi * x) * torch.exp(x)
        (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (flux,) = torch.autograd.grad((0.1 * k * slope).sum(), x)
        found = solve_elliptic1d(k.detach(), -flux, 2 / n, 0.1)
        return float((found - u.detach()).abs().max())

    sizes = np.array([100, 200, 400, 800])
    errors = [error(n) for n in sizes]
    order = -np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert abs(order - 2) < 0.03, (order, errors)
    assert errors[-1] < 1e-3


@pytest.mark.parametrize("n", [3, 4, 17, 401])
def test_solution_equals_a_banded_solve_and_residual_is_rounding(n):
    (k, f), h = random_case(n, (n,)), 2 / (n - 1)
    expected = banded_solution(k.numpy(), f.numpy(), h, 0.1)
    u = solve_elliptic1d(k, f, h, 0.1)
    np.testing.assert_allclose(u.numpy(), expected, rtol=0, atol=1e-10 * np.abs(expected).max())
    # rounding of u is amplified by c k / h^2 in the residual
    amplification = 0.1 * k.amax() * u.abs().amax() * 4 / h**2
    rounding = 8 * torch.finfo(torch.float64).eps * amplification
    assert residual_elliptic1d(u, k, f, h, 0.1).abs().max() < rounding
    assert (residual_elliptic1d(2 * u, k, f, h, 0.1) - f[1:-1]).abs().max() < 2 * rounding


def test_coefficients_and_sources_are_broadcast_and_end_values_of_the_source_do_not_count():
    k, f = random_case(8, (5, 33))
    pairs = solve_elliptic1d(k[:, None], f[:3], 1 / 16)
    alone = [[solve_elliptic1d(k[i], f[j], 1 / 16) for j in range(3)] for i in range(5)]
    torch.testing.assert_close(pairs, torch.stack([torch.stack(row) for row in alone]))
    torch.testing.assert_close(solve_elliptic1d(k, f[0], 1 / 16), pairs[:, 0])
    assert (pairs[..., [0, -1]] == 0).all()
    f[:, [0, -1]] = 1e6
    assert torch.equal(solve_elliptic1d(k[:, None], f[:3], 1 / 16), pairs)


@pytest.mark.parametrize("name", ["diffusion1d", "elliptic_sde1d"])
def test_problems_solve_the_equations_of_sections_4_1_and_4_3(name):
    """Against Green's function of ``-(1/10) (k u')' = f`` for random smooth k."""
    problem = get_problem(name)
    xi, second = problem.normals(np.random.default_rng(3), 20)
    kappa, u = problem.pairs(xi, second)
    f = np.tile(2 * np.sin(2 * np.pi * LINE), (20, 1))
    if problem.unobserved is not None:
        f = problem.unobserved.field(second).numpy()
    exact = (green1d(kappa.numpy()) * f[:, None]).sum(2)
    off = u[:, INNER].numpy() - exact
    assert np.linalg.norm(off) < 2e-3 * np.linalg.norm(exact)  # both rules are of second order

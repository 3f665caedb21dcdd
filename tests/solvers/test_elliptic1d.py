"""The bulk solver is exact for the discrete system and second order for the equation."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.linalg import solve_banded

from uqsonet.problems import get_problem
from uqsonet.solvers.elliptic1d import residual_elliptic1d, solve_elliptic1d

PROBLEM = get_problem("diffusion1d")


def smooth_k(x):
    return np.exp(np.sin(2 * np.pi * x) + 0.4 * np.cos(3 * x))


def smooth_f(x):
    return 2 * np.sin(2 * np.pi * x) + np.exp(x)


def smooth_f_integral(x):
    return -np.cos(2 * np.pi * x) / np.pi + np.exp(x)


def quadrature_solution(points: np.ndarray, coefficient: float) -> np.ndarray:
    """``u' = (C - F) / (c k)``: integrated piece by piece to about 1e-14."""

    def pieces(integrand):
        values = [quad(integrand, a, b, epsabs=1e-15, epsrel=1e-13)[0] for a, b in edges]
        return np.concatenate([[0.0], np.cumsum(values)])

    edges = list(itertools.pairwise(points))
    resistance = pieces(lambda x: 1 / smooth_k(x))
    source = pieces(lambda x: smooth_f_integral(x) / smooth_k(x))
    constant = source[-1] / resistance[-1]
    return (constant * resistance - source) / coefficient


def grid_solution(n: int, coefficient: float) -> torch.Tensor:
    x = np.linspace(-1, 1, n)
    k, f = torch.from_numpy(smooth_k(x)), torch.from_numpy(smooth_f(x))
    return solve_elliptic1d(k, f, 2 / (n - 1), coefficient)


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


def test_second_order_against_independent_quadrature():
    points = np.linspace(-1, 1, 26)
    exact = quadrature_solution(points, 0.1)
    sizes = np.array([100, 200, 400, 800])
    errors = [np.abs(grid_solution(n + 1, 0.1).numpy()[:: n // 25] - exact).max() for n in sizes]
    order = -np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert abs(order - 2) < 0.03, (order, errors)
    assert errors[-1] < 1e-4 * np.abs(exact).max()


def test_manufactured_solution_converges_at_second_order():
    def error(n: int) -> float:
        x = torch.linspace(-1, 1, n, dtype=torch.float64)
        k = 1 + 0.5 * x
        u = torch.sin(math.pi * x)
        # -(k u')' = -k' u' - k u''
        f = -0.5 * math.pi * torch.cos(math.pi * x) + k * math.pi**2 * u
        return float((solve_elliptic1d(k, f, 2 / (n - 1)) - u).abs().max())

    sizes = np.array([40, 80, 160, 320])
    order = -np.polyfit(np.log(sizes), np.log([error(n + 1) for n in sizes]), 1)[0]
    assert abs(order - 2) < 0.02


def test_quadratic_solution_is_reproduced_to_rounding():
    x = torch.linspace(-1, 1, 41, dtype=torch.float64)
    found = solve_elliptic1d(torch.ones(41).double(), torch.ones(41).double(), 0.05, 0.1)
    torch.testing.assert_close(found, 5 * (1 - x**2), rtol=0, atol=1e-13)


@pytest.mark.parametrize("n", [3, 4, 17, 401])
def test_solution_equals_a_banded_solve(n):
    k, f = random_case(n, (n,))
    expected = banded_solution(k.numpy(), f.numpy(), 2 / (n - 1), 0.1)
    found = solve_elliptic1d(k, f, 2 / (n - 1), 0.1)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-10 * np.abs(expected).max())


def test_residual_is_rounding():
    k, f = random_case(0, (20, 401))
    u = solve_elliptic1d(k, f, 0.005, 0.1)
    residual = residual_elliptic1d(u, k, f, 0.005, 0.1)
    # rounding of u is amplified by c k / h^2 in the residual
    amplification = 0.1 * k.amax() * u.abs().amax() * 4 / 0.005**2
    assert residual.abs().max() < 8 * torch.finfo(torch.float64).eps * amplification


def test_residual_sees_a_wrong_solution():
    k, f = random_case(1, (101,))
    u = solve_elliptic1d(k, f, 0.02)
    assert residual_elliptic1d(u * 1.001, k, f, 0.02).abs().max() > 1e-4


def test_residual_matches_a_dense_operator():
    k, f = random_case(2, (12,))
    u = random_case(3, (12,))[1]
    h = 0.1
    half = (k[1:] + k[:-1]) / 2
    matrix = torch.zeros(12, 12).double()
    for i in range(1, 11):
        matrix[i, i - 1], matrix[i, i + 1] = -half[i - 1], -half[i]
        matrix[i, i] = half[i - 1] + half[i]
    expected = ((0.7 * matrix / h**2) @ u - f)[1:-1]
    torch.testing.assert_close(residual_elliptic1d(u, k, f, h, 0.7), expected)


def test_boundary_values_are_exactly_zero():
    k, f = random_case(4, (50, 33))
    u = solve_elliptic1d(k, f, 1 / 16)
    assert (u[:, [0, -1]] == 0).all()


def test_batch_equals_loop():
    k, f = random_case(5, (2, 7, 65))
    batch = solve_elliptic1d(k, f, 1 / 32)
    loop = [[solve_elliptic1d(k[i, j], f[i, j], 1 / 32) for j in range(7)] for i in range(2)]
    torch.testing.assert_close(batch, torch.stack([torch.stack(row) for row in loop]))


def test_one_source_serves_a_batch_of_coefficients():
    k, f = random_case(6, (5, 33))
    shared = solve_elliptic1d(k, f[0], 1 / 16)
    torch.testing.assert_close(shared, solve_elliptic1d(k, f[:1].expand(5, -1), 1 / 16))


def test_every_coefficient_meets_every_source():
    k, f = random_case(8, (5, 33))
    pairs = solve_elliptic1d(k[:, None], f[:3], 1 / 16)
    assert pairs.shape == (5, 3, 33)
    for j in range(3):
        torch.testing.assert_close(pairs[:, j], solve_elliptic1d(k, f[j], 1 / 16))
    torch.testing.assert_close(solve_elliptic1d(k[0], f[:3], 1 / 16), pairs[0])


def test_end_values_of_the_source_have_no_influence():
    k, f = random_case(7, (33,))
    other = f.clone()
    other[[0, -1]] = 1e6
    assert torch.equal(solve_elliptic1d(k, f, 1 / 16), solve_elliptic1d(k, other, 1 / 16))


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    a=st.floats(-5, 5),
    b=st.floats(-5, 5),
    scale=st.floats(0.1, 10),
)
def test_linear_in_the_source_and_inverse_in_the_coefficient(seed, a, b, scale):
    k, f = random_case(seed, (2, 21))
    g = f.flip(0)
    joint = solve_elliptic1d(k, a * f + b * g, 0.1)
    parts = a * solve_elliptic1d(k, f, 0.1) + b * solve_elliptic1d(k, g, 0.1)
    torch.testing.assert_close(joint, parts, rtol=1e-9, atol=1e-9)
    scaled = solve_elliptic1d(scale * k, f, 0.1)
    torch.testing.assert_close(scaled * scale, solve_elliptic1d(k, f, 0.1), rtol=1e-9, atol=1e-9)


def test_diffusion1d_solves_the_equation_of_section_4_1():
    """``-(1/10) (k u')' = 2 sin(2 pi x)`` with a random smooth k, against quadrature."""
    generator = np.random.default_rng(3)
    kappa, u = PROBLEM.sample(generator, 1)
    x = PROBLEM.grid.points()[:, 0].numpy()
    fine = np.linspace(-1, 1, 8001)
    mean, rows = PROBLEM.prior.rows(torch.from_numpy(fine)[:, None])
    xi = torch.linalg.lstsq(
        PROBLEM.prior.factor, (kappa[0].log() - PROBLEM.prior.mean)[:, None]
    ).solution[:, 0]
    k = torch.exp(mean + rows @ xi).numpy()
    big_f = -np.cos(2 * np.pi * fine) / np.pi
    h = fine[1] - fine[0]

    def running(values):
        return np.concatenate([[0], np.cumsum((values[1:] + values[:-1]) / 2 * h)])

    resistance, source = running(1 / k), running(big_f / k)
    exact = 10 * (source[-1] / resistance[-1] * resistance - source)[:: 8000 // 400]
    assert x.shape == exact.shape
    assert np.abs(u[0].numpy() - exact).max() < 5e-3 * np.abs(exact).max()

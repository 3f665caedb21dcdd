"""Preconditioned conjugate gradients solve the central-difference system, whatever k and n."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from uqsonet.errors import DataError
from uqsonet.problems import get_problem
from uqsonet.solvers.elliptic2d import (
    TOLERANCE,
    EllipticOperator2D,
    residual_elliptic2d,
    solve_elliptic2d,
    solve_rough2d,
)
from uqsonet.solvers.poisson2d import both_axes, sine_basis, solve_poisson2d

PROBLEM = get_problem("elliptic_sde2d")


class Counted(EllipticOperator2D):
    """Counts iterations."""

    iterations = 0

    def precondition(self, r: torch.Tensor) -> torch.Tensor:
        self.iterations += 1
        return super().precondition(r)


def assembled(k: torch.Tensor) -> sp.csc_matrix:
    """``-h^2 div(k grad)`` on the interior points as ``D^T diag(k at faces) D``."""
    n = len(k)
    step, one = sp.diags([-1.0, 1.0], [0, 1], shape=(n - 1, n)), sp.identity(n)
    inside = (np.arange(n * n) // n % (n - 1) != 0) & (np.arange(n * n) % n % (n - 1) != 0)
    matrix = sp.csr_matrix((n * n, n * n))
    for difference in (sp.kron(step, one), sp.kron(one, step)):
        faces = abs(difference) / 2 @ k.flatten().numpy()
        matrix = matrix + difference.T @ sp.diags(faces) @ difference
    return sp.csc_matrix(matrix[inside][:, inside])


def direct(k: torch.Tensor, f: torch.Tensor, h: float) -> torch.Tensor:
    """Solve by sparse LU."""
    n = len(k)
    inside = sp.linalg.spsolve(assembled(k) / h**2, f[1:-1, 1:-1].flatten().numpy())
    return torch.nn.functional.pad(torch.from_numpy(inside).reshape(n - 2, n - 2), (1, 1, 1, 1))


def mesh(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    line = torch.linspace(0, 1, n, dtype=torch.float64)
    return torch.meshgrid(line, line, indexing="ij")


def smooth(n: int, std: float = 1.0) -> torch.Tensor:
    """``exp(std g)`` with a smooth g between -1 and 1."""
    x, y = mesh(n)
    return torch.exp(std * torch.sin(6 * x) * torch.cos(5 * y))


def checkerboard(n: int) -> torch.Tensor:
    x, y = mesh(n)
    return torch.where(((4 * x).floor() + (4 * y).floor()) % 2 == 0, 1e3, 1.0).double()


def inclusion(n: int) -> torch.Tensor:
    x, y = mesh(n)
    return torch.where((x - 0.5) ** 2 + (y - 0.4) ** 2 < 0.06, 1e3, 1.0).double()


def random_source(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def prior_pairs(seed: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    f, k = PROBLEM.normals(np.random.default_rng(seed), size)
    k, f = PROBLEM.unobserved.field(k).exp(), PROBLEM.prior.field(f)
    return k.reshape(-1, 101, 101), f.reshape(-1, 101, 101)


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("n", [3, 8, 33, 101])
def test_a_constant_coefficient_gives_the_poisson_solution(n):
    f, h = random_source(n, 2, n, n), 1 / (n - 1)
    found = solve_elliptic2d(torch.full((2, n, n), 3.0).double(), f, h)
    assert relative(found, solve_poisson2d(f, h, 3.0)) < 1e-12  # the preconditioner is exact


def test_a_manufactured_solution_converges_at_second_order():
    def error(n: int) -> float:
        x, y = (axis.requires_grad_() for axis in mesh(n))
        u = x * (1 - x) * y * (1 - y) * torch.exp(x * y)
        k = torch.exp(torch.sin(3 * x) + x * torch.cos(2 * y))
        divergence = torch.zeros_like(u)
        for axis in (x, y):
            (slope,) = torch.autograd.grad(u.sum(), axis, create_graph=True)
            (flux,) = torch.autograd.grad((k * slope).sum(), axis, create_graph=True)
            divergence = divergence + flux
        f = -divergence.detach()[None]
        found = solve_elliptic2d(k.detach()[None], f, 1 / (n - 1))[0]
        return float((found - u.detach()).abs().max())

    sizes = np.array([12, 24, 48, 96])
    errors = [error(n + 1) for n in sizes]
    order = -np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert abs(order - 2) < 0.1, (order, errors)
    assert errors[-1] < 5e-5


@pytest.mark.parametrize("n", [8, 33, 64])
@pytest.mark.parametrize("coefficient", [smooth, lambda n: smooth(n, 3.5), checkerboard, inclusion])
def test_the_solution_equals_a_sparse_direct_solve_up_to_a_contrast_of_a_thousand(coefficient, n):
    k, f, h = coefficient(n), random_source(n, n, n), 0.7 / (n - 1)
    found = solve_elliptic2d(k[None], f[None], h, tolerance=1e-13)[0]
    assert relative(found, direct(k, f, h)) < 1e-9


def test_prior_samples_agree_with_a_sparse_direct_solve():
    k, f = prior_pairs(0, 3)
    found = PROBLEM.solve_pairs(k.flatten(1), f.flatten(1)).reshape(3, 101, 101)
    for i in range(3):
        assert relative(found[i], direct(k[i], f[i], 0.01)) < 2e-8


def test_the_residual_of_the_scaled_system_is_within_the_tolerance():
    k, f = prior_pairs(1, 16)
    weight = torch.stack([torch.from_numpy(assembled(one).diagonal()) for one in k]) ** -0.5
    for tolerance in (1e-3, TOLERANCE[torch.float64]):
        left = residual_elliptic2d(solve_elliptic2d(k, f, 0.01, tolerance), k, f, 0.01).flatten(1)
        goal = tolerance * (weight * f[:, 1:-1, 1:-1].flatten(1)).norm(dim=1)
        assert ((weight * left).norm(dim=1) <= 1.001 * goal).all()
        assert ((weight * left).norm(dim=1) >= 1e-4 * goal).all()  # it stops when it is there


def test_the_residual_is_that_of_an_assembled_operator():
    k, u, f = smooth(9), random_source(1, 9, 9), random_source(2, 9, 9)
    u[[0, -1]] = u[:, [0, -1]] = 0.0
    inside = torch.from_numpy(assembled(k) @ u[1:-1, 1:-1].flatten().numpy()).reshape(7, 7)
    found = residual_elliptic2d(u[None], k[None], f[None], 0.2)[0]
    torch.testing.assert_close(found, inside / 0.2**2 - f[1:-1, 1:-1])


def test_the_scaled_operator_and_its_low_block_are_those_of_the_dense_matrix():
    """``A = S M S`` with ``S = 2 diag(M)^(-1/2)``; the low block is its Galerkin projection."""
    n, low = 20, 14
    k = smooth(n, 2.0)
    operator = EllipticOperator2D(k[None], 1 / (n - 1))
    matrix = torch.from_numpy(assembled(k).toarray())
    scale = 2 * matrix.diagonal().rsqrt()
    matrix = scale[:, None] * matrix * scale
    unit = torch.eye((n - 2) ** 2).double().reshape(1, -1, n - 2, n - 2)
    torch.testing.assert_close(operator.apply(unit)[0].flatten(1), matrix, rtol=0, atol=1e-14)
    basis, _ = sine_basis(n, torch.float64, torch.device("cpu"))
    projection = both_axes(unit[0], basis)[:, :low, :low].flatten(1)
    expected = projection.T @ matrix @ projection
    found = (operator._factor @ operator._factor.mT)[0]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)


def test_the_preconditioner_is_symmetric_and_positive():
    n = 18  # more modes than the low block holds
    operator = EllipticOperator2D(checkerboard(n)[None], 1 / (n - 1))
    unit = torch.eye((n - 2) ** 2).double().reshape(1, -1, n - 2, n - 2)
    matrix = operator.precondition(unit)[0].flatten(1)
    torch.testing.assert_close(matrix, matrix.T, rtol=1e-9, atol=1e-12)
    assert torch.linalg.eigvalsh(matrix).min() > 0


def test_twelve_iterations_are_enough_for_prior_samples():
    k, f = prior_pairs(2, 48)
    operator = Counted(k, 0.01)
    operator.solve(f[:, None])
    assert 4 <= operator.iterations <= 12


def test_the_iteration_count_hardly_depends_on_the_grid():
    counts = []
    for n in (33, 65, 129):
        operator = Counted(smooth(n, 3.0)[None], 1 / (n - 1))
        operator.solve(random_source(n, 1, 1, n, n))
        counts.append(operator.iterations)
    assert max(counts) <= 6, counts


@pytest.mark.parametrize("c", [1e-6, 0.3, 1e6])
def test_a_coefficient_c_times_as_large_gives_a_solution_c_times_as_small(c):
    k, f = smooth(33)[None], random_source(0, 1, 33, 33)
    once = solve_elliptic2d(k, f, 1 / 32)
    torch.testing.assert_close(c * solve_elliptic2d(c * k, f, 1 / 32), once, rtol=0, atol=1e-9)


def test_several_sources_and_coefficients_together_equal_one_at_a_time():
    k = torch.stack([smooth(21), checkerboard(21), inclusion(21)])
    f = random_source(3, 3, 4, 21, 21) * torch.tensor([1e-6, 1.0, 1e6, 0.0])[:, None, None]
    together = EllipticOperator2D(k, 0.05).solve(f, 1e-12)
    for i in range(3):
        for j in range(4):
            alone = solve_elliptic2d(k[i : i + 1], f[i, j][None], 0.05, 1e-12)[0]
            assert (together[i, j] - alone).norm() <= 1e-9 * alone.norm()


def test_one_source_serves_a_batch_of_coefficients():
    k, f = torch.stack([smooth(17), smooth(17, 2.0)]), random_source(4, 1, 17, 17)
    each = solve_elliptic2d(k, f.repeat(2, 1, 1), 1 / 16)
    torch.testing.assert_close(solve_elliptic2d(k, f, 1 / 16), each)


def test_a_zero_source_gives_zero_beside_others_that_are_not():
    f = random_source(5, 1, 2, 17, 17)
    f[0, 0] = 0.0
    u = EllipticOperator2D(smooth(17)[None], 1 / 16).solve(f)
    assert (u[0, 0] == 0).all() and u[0, 1].abs().max() > 0


def test_boundary_values_of_the_source_have_no_influence_and_u_is_zero_there():
    edge = torch.ones(21, 21, dtype=torch.bool)
    edge[1:-1, 1:-1] = False
    k, f = smooth(21)[None], random_source(6, 1, 21, 21)
    u = solve_elliptic2d(k, f, 0.05)
    assert (u[:, edge] == 0).all() and (u[:, ~edge] != 0).all()
    assert torch.equal(solve_elliptic2d(k, torch.where(edge, float("nan"), f), 0.05), u)


def test_float32_costs_less_than_a_ten_thousandth_on_prior_samples():
    k, f = prior_pairs(3, 16)
    u = solve_elliptic2d(k, f, 0.01)
    single = solve_elliptic2d(k.float(), f.float(), 0.01)
    assert single.dtype == torch.float32
    error = (single - u).flatten(1).norm(dim=1) / u.flatten(1).norm(dim=1)
    assert 1e-8 < error.max() < 1e-4


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("place", [(0, 0), (4, 5)])
def test_a_coefficient_that_is_not_positive_and_finite_is_refused(value, place):
    k = torch.ones(2, 9, 9).double()
    k[1][place] = value
    with pytest.raises(DataError, match=f"positive and finite, found .*{value:g}"):
        solve_elliptic2d(k, torch.ones(2, 9, 9).double(), 1 / 8)


def test_a_source_that_is_not_finite_is_refused():
    f = torch.ones(1, 9, 9).double()
    f[0, 4, 4] = float("nan")
    with pytest.raises(DataError, match=r"no convergence to 1e-08 .* is f finite"):
        solve_elliptic2d(torch.ones(1, 9, 9).double(), f, 1 / 8)


@pytest.mark.parametrize(("n", "contrast"), [(9, 4.0), (40, 4.0), (40, 100.0)])
def test_jumps_are_solved_as_sparse_lu_does(n, contrast):
    generator = torch.Generator().manual_seed(n)
    x, y = mesh(n)
    wave = torch.sin(9 * x + torch.rand((), generator=generator)) * torch.cos(7 * y)
    k = torch.where(wave > 0, contrast, 1.0).double()
    f = torch.ones(n, n).double() + x
    found = solve_rough2d(k[None], f[None], 1 / (n - 1))[0]
    expected = direct(k, f, 1 / (n - 1))
    assert (found - expected).abs().max() < 1e-7 * expected.abs().max()
    single = solve_rough2d(k[None].float(), f[None].float(), 1 / (n - 1))[0]
    assert (single - expected).abs().max() < 5e-5 * expected.abs().max()


def test_a_coefficient_with_jumps_has_to_be_positive():
    k = torch.ones(1, 9, 9).double()
    k[0, 4, 4] = 0
    with pytest.raises(DataError, match="positive and finite, found 0 to 1"):
        solve_rough2d(k, torch.ones_like(k), 1 / 8)

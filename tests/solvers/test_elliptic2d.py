"""The solvers of ``-div(k grad u) + r u = f`` on the square solve their central differences.

With constant k by sine transforms (`poisson2d`), else by preconditioned conjugate gradients or,
where k jumps, by multigrid (`elliptic2d`), whatever k and n.
"""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from tests.residuals import residual_elliptic2d, residual_poisson2d
from uqsonet.errors import DataError
from uqsonet_study.problems import get_problem
from uqsonet_study.solvers.elliptic2d import (
    TOLERANCE,
    EllipticOperator2D,
    solve_elliptic2d,
    solve_rough2d,
)
from uqsonet_study.solvers.poisson2d import solve_poisson2d

PROBLEM = get_problem("elliptic_sde2d")
EPS = torch.finfo(torch.float64).eps


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


def random_source(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def prior_pairs(seed: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    f, k = PROBLEM.normals(np.random.default_rng(seed), size)
    k, f = PROBLEM.unobserved.field(k).exp(), PROBLEM.prior.field(f)
    return k.reshape(-1, 101, 101), f.reshape(-1, 101, 101)


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("coefficient", [0.3, -1.0, None], ids=str)
def test_a_manufactured_solution_converges_at_second_order(coefficient):
    def error(n: int) -> float:
        x, y = (axis.requires_grad_() for axis in mesh(n))
        u = x * (1 - x) * y * (1 - y) * torch.exp(x * y)
        k = torch.exp(torch.sin(3 * x) + x * torch.cos(2 * y))
        if coefficient is not None:
            k = coefficient + 0 * x
        divergence = torch.zeros_like(u)
        for axis in (x, y):
            (slope,) = torch.autograd.grad(u.sum(), axis, create_graph=True)
            (flux,) = torch.autograd.grad((k * slope).sum(), axis, create_graph=True)
            divergence = divergence + flux
        f, h = -divergence.detach()[None], 1 / (n - 1)
        if coefficient is None:
            found = solve_elliptic2d(k.detach()[None], f, h)
        else:
            found = solve_poisson2d(f, h, coefficient)
        return float((found[0] - u.detach()).abs().max())

    sizes = np.array([12, 24, 48, 96])
    errors = [error(n + 1) for n in sizes]
    order = -np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert abs(order - 2) < 0.1, (order, errors)
    assert errors[-1] < 5e-5


@pytest.mark.parametrize("n", [3, 4, 34, 101])
def test_with_a_constant_coefficient_both_solvers_equal_a_sparse_direct_solve(n):
    f, h = random_source(n, n, n), 0.7 / (n - 1)
    expected = direct(0.1 * torch.ones(n, n).double(), f, h)
    u = solve_poisson2d(f, h, 0.1)
    assert (u - expected).abs().max() < 1e-12 * expected.abs().max()
    single = solve_poisson2d(f.float(), h, 0.1)
    assert single.dtype == torch.float32 and relative(single.double(), u) < 2e-6
    # rounding of u is amplified by at most 8 c / h^2, the norm of the operator
    rounding = 64 * 0.1 / h**2 * EPS * u.abs().max()
    inside = f[1:-1, 1:-1]
    assert residual_poisson2d(u, f, h, 0.1).abs().max() < rounding
    assert (residual_poisson2d(2 * u, f, h, 0.1) - inside).abs().max() < 2 * rounding
    found = solve_elliptic2d(torch.full((1, n, n), 0.1, dtype=torch.float64), f[None], h)[0]
    assert relative(found, u) < 1e-12  # the preconditioner is exact


@pytest.mark.parametrize("coefficient", [1.0, -1.0, 0.1])
@pytest.mark.parametrize(("j", "k"), [(3, 5), (32, 1), (32, 32)])
def test_sine_modes_are_solved_in_closed_form(coefficient, j, k):
    """Products of sines, whose five-point Laplacian is known."""
    n = 34
    h = 1 / (n - 1)
    x, y = mesh(n)
    u = torch.sin(j * torch.pi * x) * torch.sin(k * torch.pi * y)
    laplacian = sum(4 / h**2 * np.sin(np.pi * mode * h / 2) ** 2 for mode in (j, k))
    f = coefficient * laplacian * u
    found = solve_poisson2d(f, h, coefficient)
    torch.testing.assert_close(found, u, rtol=0, atol=1e-12)
    wrong = residual_poisson2d(found, f, h, 2 * coefficient)
    torch.testing.assert_close(wrong, f[1:-1, 1:-1], rtol=0, atol=2e-8)


@pytest.mark.parametrize("n", [8, 33])
@pytest.mark.parametrize("coefficient", [smooth, lambda n: smooth(n, 3.5), checkerboard])
def test_the_solution_equals_a_sparse_direct_solve_up_to_a_contrast_of_a_thousand(coefficient, n):
    k, f, h = coefficient(n), random_source(n, n, n), 0.7 / (n - 1)
    found = solve_elliptic2d(k[None], f[None], h, tolerance=1e-13)[0]
    assert relative(found, direct(k, f, h)) < 1e-9


def test_prior_samples_agree_with_a_sparse_direct_solve_and_take_twelve_iterations():
    k, f = prior_pairs(0, 12)
    counted = Counted(k, 0.01)
    found = counted.solve(f[:, None])[:, 0]
    assert 4 <= counted.iterations <= 12
    whole = PROBLEM.solve_pairs(k.flatten(1), f.flatten(1)).reshape(found.shape)
    torch.testing.assert_close(whole, found)
    single = solve_elliptic2d(k.float(), f.float(), 0.01)
    assert single.dtype == torch.float32
    for i in range(2):
        exact = direct(k[i], f[i], 0.01)
        assert relative(found[i], exact) < 2e-8
        assert 1e-8 < relative(single[i].double(), exact) < 1e-4


def test_the_residual_of_the_scaled_system_is_within_the_tolerance():
    k, f = prior_pairs(1, 8)
    weight = torch.stack([torch.from_numpy(assembled(one).diagonal()) for one in k]) ** -0.5
    for tolerance in (1e-3, TOLERANCE[torch.float64]):
        u = solve_elliptic2d(k, f, 0.01, tolerance)
        left = residual_elliptic2d(u, k, f, 0.01)
        torch.testing.assert_close(
            residual_elliptic2d(2 * u, k, f, 0.01) - 2 * left, f[:, 1:-1, 1:-1]
        )
        goal = tolerance * (weight * f[:, 1:-1, 1:-1].flatten(1)).norm(dim=1)
        size = (weight * left.flatten(1)).norm(dim=1)
        assert (size <= 1.001 * goal).all() and (size >= 1e-4 * goal).all()  # it stops when there


def test_several_sources_and_coefficients_together_equal_one_at_a_time():
    """Whatever their size: a source of zero, and a coefficient of a millionth, among others."""
    k = torch.stack([smooth(21), 1e-6 * checkerboard(21), 1e6 * smooth(21, 2.0)])
    f = random_source(3, 3, 4, 21, 21) * torch.tensor([1e-6, 1.0, 1e6, 0.0])[:, None, None]
    together = EllipticOperator2D(k, 0.05).solve(f, 1e-12)
    assert (together[:, 3] == 0).all()
    for i in range(3):
        for j in range(4):
            alone = direct(k[i], f[i, j], 0.05)
            assert (together[i, j] - alone).norm() <= 1e-9 * alone.norm()
    same = solve_elliptic2d(k, f[:1, 1], 0.05, 1e-12)  # one source serves all coefficients
    torch.testing.assert_close(same[0], together[0, 1], rtol=0, atol=1e-9)


def test_edges_of_the_source_have_no_influence_and_u_is_zero_there():
    edge = torch.ones(21, 21, dtype=torch.bool)
    edge[1:-1, 1:-1] = False
    k, f = smooth(21)[None], random_source(6, 1, 21, 21)
    for solve in (lambda f: solve_elliptic2d(k, f, 0.05), lambda f: solve_poisson2d(f, 0.05)):
        u = solve(f)
        assert (u[:, edge] == 0).all() and (u[:, ~edge] != 0).all()
        assert torch.equal(solve(torch.where(edge, float("nan"), f)), u)


@pytest.mark.parametrize(("n", "contrast"), [(9, 4.0), (40, 4.0), (40, 100.0)])
def test_jumps_are_solved_as_sparse_lu_does(n, contrast):
    generator = torch.Generator().manual_seed(n)
    x, y = mesh(n)
    wave = torch.sin(9 * x + torch.rand((), generator=generator)) * torch.cos(7 * y)
    k = torch.where(wave > 0, contrast, 1.0).double()
    f = torch.ones(n, n).double() + x
    expected = direct(k, f, 1 / (n - 1))
    for dtype, error in ((torch.float64, 1e-7), (torch.float32, 5e-5)):
        found = solve_rough2d(k[None].to(dtype), f[None].to(dtype), 1 / (n - 1))[0]
        assert (found - expected).abs().max() < error * expected.abs().max()


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_coefficient_that_is_not_positive_and_finite_is_refused(value):
    k = torch.ones(2, 9, 9).double()
    k[1, 4, 5] = value
    for solve in (solve_elliptic2d, solve_rough2d):
        with pytest.raises(DataError, match=f"positive and finite, found .*{value:g}"):
            solve(k, torch.ones_like(k), 1 / 8)


def test_a_source_that_is_not_finite_is_refused():
    f = torch.ones(1, 9, 9).double()
    f[0, 4, 4] = float("nan")
    with pytest.raises(DataError, match=r"no convergence to 1e-08 .* is f finite"):
        solve_elliptic2d(torch.ones(1, 9, 9).double(), f, 1 / 8)

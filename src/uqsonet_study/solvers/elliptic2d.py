"""Solution of ``-div(k grad u) = f`` on a square, ``u = 0`` on its boundary (section 4.4).

Second-order central differences with k averaged to the faces. Scaled by its diagonal the system
reads ``A = 4 - sum of c u(neighbour)``: nearly the five-point Laplacian, plus a smooth potential
that couples low sine modes only. So conjugate gradients are preconditioned in the sine basis by

- the exact block of A on the lowest `LOW` x `LOW` modes (a small dense Cholesky factor), and
- the Laplacian's own eigenvalues on all others.

Six to nine iterations replace about thirty of a plain fast Poisson preconditioner, or several
hundred without the scaling; the count hardly depends on the grid. Everything is batched over
coefficients and over right-hand sides that share one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import inf

import torch
from jaxtyping import Float
from torch import Tensor

from uqsonet.errors import DataError
from uqsonet_study.solvers.poisson2d import both_axes, sine_basis

LOW = 14  # sine modes along each axis in the exact block: measured fastest on 101 x 101 points
MAX_ITERATIONS = 500
TOLERANCE = {torch.float64: 1e-8, torch.float32: 2e-6}
"""Default residual of the scaled system, relative to the right-hand side. Single precision suits
the laws of the paper (error below 1e-4); a contrast of 1e3 across a sharp edge needs double."""

Map = Callable[[Tensor], Tensor]


class EllipticOperator2D:
    """The discrete operator of a batch of coefficients, with its preconditioner.

    Parameters
    ----------
    k : Tensor, shape (B, n, n)
        Positive coefficient at the grid points, boundary included.
    spacing : float
        Grid spacing h, the same along both axes.

    Raises
    ------
    DataError
        If k is not positive or not finite.
    """

    def __init__(self, k: Float[Tensor, "B n n"], spacing: float) -> None:
        _require_positive(k)
        self._spacing = spacing
        faces_x = 0.5 * (k[:, 1:, 1:-1] + k[:, :-1, 1:-1])
        faces_y = 0.5 * (k[:, 1:-1, 1:] + k[:, 1:-1, :-1])
        diagonal = faces_x[:, 1:] + faces_x[:, :-1] + faces_y[..., 1:] + faces_y[..., :-1]
        scale = 2.0 / diagonal.sqrt()
        # (B, 1, ...): the second axis is that of right-hand sides
        self._scale = scale[:, None]
        self._x = (faces_x[:, 1:-1] * scale[:, 1:] * scale[:, :-1])[:, None]
        self._y = (faces_y[..., 1:-1] * scale[..., 1:] * scale[..., :-1])[:, None]
        points = k.shape[-1]
        self._basis, eigenvalues = sine_basis(points, k.dtype, k.device)
        self._inverse = 1.0 / (eigenvalues[:, None] + eigenvalues)
        self._low = min(LOW, points - 2)
        self._factor = torch.linalg.cholesky(self._low_block())

    def _low_block(self) -> Tensor:
        """Return the exact matrix of A on the lowest modes, (B, LOW^2, LOW^2)."""
        low = self._low
        step, same, pair = _mode_products(self._basis.shape[0] + 2, low, self._x.dtype)
        step, same = step.to(self._x), same.to(self._x)
        x, y = self._x[:, 0], self._y[:, 0]
        # The x-coupling pairs neighbours along axis 0 and equal indices along axis 1, and so on.
        block = -(step @ x @ same.T + same @ y @ step.T)
        block = block[:, pair.to(x.device)][..., pair.to(x.device)]  # (B, a, a', b, b')
        # Transposed transforms (see `both_axes`) put axis 1 first.
        block = block.permute(0, 3, 1, 4, 2).reshape(len(x), low**2, low**2)
        return block + 4 * torch.eye(low**2, dtype=x.dtype, device=x.device)

    def apply(self, v: Tensor) -> Tensor:
        """Return A v of the scaled system for v (B, R, n-2, n-2)."""
        return _minus_neighbours(4 * v, v, self._x, self._y)

    def precondition(self, r: Tensor) -> Tensor:
        """Return the preconditioner applied to r (B, R, n-2, n-2)."""
        low = self._low
        modes = both_axes(r, self._basis)
        head = modes[..., :low, :low].flatten(2).transpose(1, 2)
        modes = modes * self._inverse
        solved = torch.cholesky_solve(head, self._factor).transpose(1, 2)
        modes[..., :low, :low] = solved.unflatten(2, (low, low))
        return both_axes(modes, self._basis)

    def solve(
        self, f: Float[Tensor, "B R n n"], tolerance: float | None = None
    ) -> Float[Tensor, "B R n n"]:
        """Solve for right-hand sides f by preconditioned conjugate gradients.

        Parameters
        ----------
        f : Tensor, shape (B, R, n, n)
            R sources for each coefficient; boundary values have no influence.
        tolerance : float, optional
            Largest residual of the scaled system relative to its right-hand side.

        Raises
        ------
        DataError
            If the iteration does not converge: f is not finite, or the contrast of k is beyond
            what the dtype can resolve.
        """
        right = self._scale * f[..., 1:-1, 1:-1] * self._spacing**2
        solution = _conjugate_gradients(self.apply, self.precondition, right, tolerance)
        return torch.nn.functional.pad(self._scale * solution, (1, 1, 1, 1))


def solve_elliptic2d(
    k: Float[Tensor, "B n n"],
    f: Float[Tensor, "*source n n"],
    spacing: float,
    tolerance: float | None = None,
) -> Float[Tensor, "B n n"]:
    """Solve ``-div(k grad u) = f`` with homogeneous Dirichlet conditions (eqn:2d-sde).

    Parameters
    ----------
    k : Tensor, shape (B, n, n)
        Positive diffusion coefficient at the grid points.
    f : Tensor, shape (B, n, n) or (1, n, n)
        Source at the grid points.
    spacing : float
        Grid spacing h.
    tolerance : float, optional
        Relative residual at which iterations stop; by default `TOLERANCE` of the dtype.

    Returns
    -------
    Tensor, shape (B, n, n)

    Raises
    ------
    DataError
        If k is not positive or not finite, or the iteration does not converge.
    """
    f = f.expand_as(k)
    return EllipticOperator2D(k, spacing).solve(f[:, None], tolerance)[:, 0]


def solve_rough2d(
    k: Float[Tensor, "B n n"],
    f: Float[Tensor, "*source n n"],
    spacing: float,
    tolerance: float | None = None,
) -> Float[Tensor, "B n n"]:
    """Solve the system of `solve_elliptic2d` where k jumps, with the same arguments and errors.

    Scaling by the diagonal would make a potential of every jump. Without it the Laplacian alone is
    the preconditioner, and the number of iterations depends on the contrast of k, not on the grid:
    15 to 20 for a contrast of four.
    """
    _require_positive(k)
    faces_x = 0.5 * (k[:, 1:, 1:-1] + k[:, :-1, 1:-1])
    faces_y = 0.5 * (k[:, 1:-1, 1:] + k[:, 1:-1, :-1])
    diagonal = faces_x[:, 1:] + faces_x[:, :-1] + faces_y[..., 1:] + faces_y[..., :-1]
    faces_x, faces_y = faces_x[:, 1:-1].contiguous(), faces_y[..., 1:-1].contiguous()
    basis, eigenvalues = sine_basis(k.shape[-1], k.dtype, k.device)
    inverse = 1.0 / (eigenvalues[:, None] + eigenvalues)

    def apply(v: Tensor) -> Tensor:
        return _minus_neighbours(diagonal * v, v, faces_x, faces_y)

    def precondition(r: Tensor) -> Tensor:
        return both_axes(both_axes(r, basis) * inverse, basis)

    right = f.expand_as(k)[..., 1:-1, 1:-1] * spacing**2
    solution = _conjugate_gradients(apply, precondition, right, tolerance)
    return torch.nn.functional.pad(solution, (1, 1, 1, 1))


@cache
def _mode_products(points: int, low: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return products of sine modes over unordered pairs (a, a'), and the pair's number (a, a').

    ``step[pair, i] = s_a(i) s_a'(i+1) + s_a(i+1) s_a'(i)``, ``same[pair, i] = s_a(i) s_a'(i)``.
    """
    basis, _ = sine_basis(points, torch.float64, torch.device("cpu"))
    modes = basis[:, :low]
    a, b = torch.triu_indices(low, low)
    step = modes[:-1, a] * modes[1:, b] + modes[1:, a] * modes[:-1, b]
    same = modes[:, a] * modes[:, b]
    pair = torch.zeros(low, low, dtype=torch.long)
    pair[a, b] = pair[b, a] = torch.arange(len(a))
    return step.T.contiguous().to(dtype), same.T.contiguous().to(dtype), pair


def _require_positive(k: Tensor) -> None:
    least, most = (float(extreme) for extreme in k.aminmax())
    if not 0 < least <= most < inf:  # NaN fails every comparison
        raise DataError(
            f"-div(k grad u) = f: k must be positive and finite, found {least:g} to {most:g}"
        )


def _minus_neighbours(out: Tensor, v: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Take from `out` what the neighbours' values of v give through the faces x and y."""
    out[..., :-1, :] -= x * v[..., 1:, :]
    out[..., 1:, :] -= x * v[..., :-1, :]
    out[..., :-1] -= y * v[..., 1:]
    out[..., 1:] -= y * v[..., :-1]
    return out


def _conjugate_gradients(
    apply: Map, precondition: Map, right: Tensor, tolerance: float | None
) -> Tensor:
    """Solve ``apply(v) = right`` for each function (..., n-2, n-2) of a batch."""
    tolerance = TOLERANCE[right.dtype] if tolerance is None else tolerance
    residual = right
    goal = tolerance * residual.flatten(-2).norm(dim=-1)
    solution = torch.zeros_like(residual)
    direction, product = torch.zeros_like(residual), torch.ones_like(goal)
    for _ in range(MAX_ITERATIONS):
        left = residual.flatten(-2).norm(dim=-1)
        if bool((left <= goal).all()):
            return solution
        z = precondition(residual)
        previous, product = product, _dot(residual, z)
        # A source that is zero everywhere has nothing to divide by.
        direction = z + _ratio(product, previous)[..., None, None] * direction
        image = apply(direction)
        step = _ratio(product, _dot(direction, image))[..., None, None]
        solution = solution + step * direction
        residual = residual - step * image
    raise DataError(
        f"-div(k grad u) = f: no convergence to {tolerance:g} in {MAX_ITERATIONS} iterations; "
        f"is f finite, and the contrast of k within what {right.dtype} resolves?"
    )


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum((-1, -2))


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(b != 0, a / b, torch.zeros_like(a))

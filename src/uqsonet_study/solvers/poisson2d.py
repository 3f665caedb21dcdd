"""Fast solution of ``-c Lap u = f`` on a square, ``u = 0`` on its boundary (section 4.2).

The five-point Laplacian is diagonal in the sine basis ``S_ij = sqrt(2/N) sin(pi i j / N)``, so u is
two sine transforms apart from f. On grids of about a hundred points a side the transform is fastest
as a matrix product: 99^3 multiply-adds run at the machine's peak, on CPU and GPU alike.
"""

from __future__ import annotations

from functools import cache
from math import pi

import torch
from jaxtyping import Float
from torch import Tensor


@cache
def sine_basis(points: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the sine matrix of the interior points and the eigenvalues of ``-h^2 d^2/dx^2``.

    Parameters
    ----------
    points : int
        Grid points along an axis, both ends included.

    Returns
    -------
    basis : Tensor, shape (points - 2, points - 2)
        Symmetric and orthogonal: its own inverse.
    eigenvalues : Tensor, shape (points - 2,)
        ``4 sin^2(pi j / (2 N))``.
    """
    cells = points - 1
    index = torch.arange(1, cells, dtype=torch.float64)
    basis = torch.sin(pi / cells * torch.outer(index, index)) * (2 / cells) ** 0.5
    eigenvalues = 4 * torch.sin(pi / (2 * cells) * index) ** 2
    return basis.to(device, dtype), eigenvalues.to(device, dtype)


def solve_poisson2d(
    f: Float[Tensor, "*batch n n"], spacing: float, coefficient: float = 1.0
) -> Float[Tensor, "*batch n n"]:
    """Solve the second-order five-point system of ``-c Lap u = f``.

    Parameters
    ----------
    f : Tensor, shape (..., n, n)
        Source at the grid points, boundary included; boundary values have no influence.
    spacing : float
        Grid spacing h, the same along both axes.
    coefficient : float
        The constant c (1/10 in eqn:2d-pde), of either sign.

    Returns
    -------
    Tensor, shape (..., n, n)
        The exact solution of the discrete system, zero on the boundary.
    """
    basis, eigenvalues = sine_basis(f.shape[-1], f.dtype, f.device)
    inverse = spacing**2 / coefficient / (eigenvalues[:, None] + eigenvalues)
    transformed = both_axes(f[..., 1:-1, 1:-1].contiguous(), basis) * inverse
    return torch.nn.functional.pad(both_axes(transformed, basis), (1, 1, 1, 1))


def both_axes(x: Tensor, basis: Tensor) -> Tensor:
    """Return ``(basis @ x @ basis).T``: each product is one large matrix product for a batch."""
    return (x @ basis).transpose(-1, -2).contiguous() @ basis

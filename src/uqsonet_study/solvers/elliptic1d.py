"""Exact bulk solution of the finite-difference system of ``-c (k u')' = f``, ``u = 0`` at the ends.

The second-order scheme balances fluxes ``q_{i+1/2} = c k_{i+1/2} (u_{i+1} - u_i) / h`` with
``k_{i+1/2} = (k_i + k_{i+1}) / 2``:

    q_{i+1/2} - q_{i-1/2} = -h f_i,    i = 1 .. n-2.

So ``q_{i+1/2} = q_0 - F_i`` with a running sum ``F``; dividing by ``k`` and summing again gives u,
and ``q_0`` follows from ``u(right) = 0``. Two running sums replace a tridiagonal solve.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, cumsum, zeros


def solve_elliptic1d(
    k: Float[Tensor, "*batch n"],
    f: Float[Tensor, "*source n"],
    spacing: float,
    coefficient: float = 1.0,
) -> Float[Tensor, "*solution n"]:
    """Solve ``-c (k u')' = f`` with homogeneous Dirichlet conditions on a uniform grid.

    Parameters
    ----------
    k : Tensor, shape (..., n)
        Positive diffusion coefficient at the n grid points, both ends included.
    f : Tensor, shape (..., n)
        Source at the grid points; the two end values have no influence. Leading dimensions of k
        and f broadcast.
    spacing : float
        Grid spacing h.
    coefficient : float
        The constant c (1/10 in equations eq:1d and eq:1d-sto).

    Returns
    -------
    Tensor, shape (..., n)
        The exact solution of the discrete system, zero at both ends.
    """
    resistance = 2.0 / (k[..., 1:] + k[..., :-1])
    outflow = zeros((*f.shape[:-1], resistance.shape[-1]), dtype=k.dtype, device=k.device)
    outflow[..., 1:] = cumsum(f[..., 1:-1], dim=-1) * spacing
    inflow = (resistance * outflow).sum(-1, keepdim=True) / resistance.sum(-1, keepdim=True)
    slopes = resistance * (inflow - outflow)
    u = zeros((*slopes.shape[:-1], k.shape[-1]), dtype=k.dtype, device=k.device)
    u[..., 1:-1] = cumsum(slopes[..., :-1], dim=-1) * (spacing / coefficient)
    return u

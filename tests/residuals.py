"""What solutions leave over of the discrete systems."""

from __future__ import annotations

from torch import Tensor


def residual_elliptic1d(
    u: Tensor, k: Tensor, f: Tensor, spacing: float, coefficient: float = 1.0
) -> Tensor:
    """Return ``-c (k u')' - f`` of the discrete system at the interior points, shape (..., n-2)."""
    flux = coefficient * 0.5 * (k[..., 1:] + k[..., :-1]) * (u[..., 1:] - u[..., :-1]) / spacing
    return -(flux[..., 1:] - flux[..., :-1]) / spacing - f[..., 1:-1]


def residual_elliptic2d(u: Tensor, k: Tensor, f: Tensor, spacing: float) -> Tensor:
    """Return ``-div(k grad u) - f`` of the discrete system at interior points (B, n-2, n-2)."""
    flux_x = 0.5 * (k[:, 1:] + k[:, :-1]) * (u[:, 1:] - u[:, :-1])
    flux_y = 0.5 * (k[..., 1:] + k[..., :-1]) * (u[..., 1:] - u[..., :-1])
    divergence = flux_x[:, 1:, 1:-1] - flux_x[:, :-1, 1:-1]
    divergence = divergence + flux_y[:, 1:-1, 1:] - flux_y[:, 1:-1, :-1]
    return -divergence / spacing**2 - f[:, 1:-1, 1:-1]


def residual_poisson2d(u: Tensor, f: Tensor, spacing: float, coefficient: float = 1.0) -> Tensor:
    """Return ``-c Lap u - f`` of the discrete system at interior points (..., n-2, n-2)."""
    middle = u[..., 1:-1, 1:-1]
    around = u[..., 2:, 1:-1] + u[..., :-2, 1:-1] + u[..., 1:-1, 2:] + u[..., 1:-1, :-2]
    laplacian = coefficient * (4 * middle - around) / spacing**2
    return laplacian - f[..., 1:-1, 1:-1]

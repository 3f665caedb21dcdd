"""Gaussian fields on a grid: kernels, exact sampling, exact conditioning on noisy sensors.

A field is held as ``mean + factor @ xi`` with ``xi ~ N(0, I_r)``: the eigenfactor of the grid
covariance, cut only where eigenvalues fall below rounding. Smooth kernels then need tens of
normals a sample instead of hundreds, and conditioning is linear algebra on r x r matrices
(section 4.1 and appendix A.2 of the paper). Everything is float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

RELATIVE_CUT = 1e-14
"""Eigenvalues below this fraction of the largest are rounding noise of float64."""

Kernel = Callable[[Tensor, Tensor], Tensor]
"""Maps locations (n, d) and (m, d) to their covariance (n, m)."""


def squared_exponential(std: float, length: float, halved: bool = False) -> Kernel:
    """Return the kernel ``std**2 exp(-|x - x'|**2 / length**2)``.

    Parameters
    ----------
    std : float
        Standard deviation of the field.
    length : float
        Correlation length, in units of the locations.
    halved : bool
        Use ``exp(-|x - x'|**2 / (2 length**2))`` instead. The paper prints the first form in one
        dimension (eqn:1d-gp) and the second in two (eqn:2d-gp); each is used as printed.
    """
    scale = (2.0 if halved else 1.0) * length**2

    def kernel(a: Float[Tensor, "n d"], b: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
        squared = ((a[:, None, :] - b[None, :, :]) ** 2).sum(-1)
        return std**2 * torch.exp(-squared / scale)

    return kernel


@dataclass(frozen=True)
class GaussianLaw:
    """A Gaussian law of coordinates: ``N(mean, root @ root.T)``.

    Attributes
    ----------
    mean : Tensor, shape (..., r)
    root : Tensor, shape (..., r, r)
        A square root of the covariance (symmetric), exact for singular covariances too.
    """

    mean: Float[Tensor, "*batch r"]
    root: Float[Tensor, "*batch r r"]


def condition(
    rows: Float[Tensor, "*batch m r"],
    residuals: Float[Tensor, "*batch m"],
    noise_std: float,
    mask: Bool[Tensor, "*batch m"] | None,
) -> GaussianLaw:
    """Condition ``xi ~ N(0, I_r)`` on ``residuals = rows @ xi + noise``.

    The posterior is computed from the singular values of `rows`, so exact (noiseless) and repeated
    sensors need no jitter: directions that are observed twice without noise are used once, in
    the least-squares sense.

    Parameters
    ----------
    rows : Tensor, shape (..., m, r)
        Row i holds the response of sensor i to each coordinate of `xi`.
    residuals : Tensor, shape (..., m)
        Observed value minus prior mean at each sensor.
    noise_std : float
        Standard deviation of independent Gaussian observation noise; zero is allowed.
    mask : Tensor of bool, shape (..., m), or None
        False marks padding, which has no influence.

    Returns
    -------
    GaussianLaw
        Leading dimensions as those of the arguments.

    Notes
    -----
    With ``rows = U S V^T`` the posterior mean is ``V S / (S**2 + sigma**2) U^T residuals`` and
    the covariance ``I - V diag(S**2 / (S**2 + sigma**2)) V^T`` (appendix A.2), whose symmetric
    root is ``I - V diag(1 - sigma / sqrt(S**2 + sigma**2)) V^T``.
    """
    if mask is not None:
        rows = rows * mask[..., None].to(rows.dtype)
        residuals = torch.where(mask, residuals, torch.zeros_like(residuals))
    left, singular, right = torch.linalg.svd(rows, full_matrices=False)
    # Directions below rounding carry no information; with noise they carry S^2/sigma^2, harmless.
    floor = singular.amax(-1, keepdim=True) * rows.shape[-1] * torch.finfo(rows.dtype).eps
    seen = singular > floor
    total = torch.where(seen, singular**2 + noise_std**2, torch.ones_like(singular))
    gain = torch.where(seen, singular / total, torch.zeros_like(singular))
    projected = (left.transpose(-1, -2) @ residuals[..., None])[..., 0]
    mean = (right.transpose(-1, -2) @ (gain * projected)[..., None])[..., 0]
    shrink = torch.where(seen, 1.0 - noise_std / total.sqrt(), torch.zeros_like(singular))
    identity = torch.eye(rows.shape[-1], dtype=rows.dtype, device=rows.device)
    root = identity - right.transpose(-1, -2) @ (shrink[..., None] * right)
    return GaussianLaw(mean, root)


class GaussianField:
    """A Gaussian random field on a fixed set of grid points.

    Parameters
    ----------
    locations : Tensor, shape (n, d)
        Grid points.
    mean : callable
        Maps locations (k, d) to the mean (k,).
    kernel : Kernel
        Covariance function.
    """

    def __init__(self, locations: Tensor, mean: Callable[[Tensor], Tensor], kernel: Kernel) -> None:
        self.locations = locations.to(torch.float64)
        self._mean, self._kernel = mean, kernel
        self.mean = mean(self.locations)
        values, vectors = torch.linalg.eigh(kernel(self.locations, self.locations))
        keep = values > values[-1] * RELATIVE_CUT
        self._values, self._vectors = values[keep].flip(0), vectors[:, keep].flip(1)
        self.factor = self._vectors * self._values.sqrt()

    @property
    def rank(self) -> int:
        """Number of independent normals in a sample."""
        return self.factor.shape[1]

    def rows(
        self, locations: Float[Tensor, "k d"]
    ) -> tuple[Float[Tensor, " k"], Float[Tensor, "k r"]]:
        """Return the mean (k,) and factor rows (k, r) at any locations (k, d).

        On grid points these are the grid's own; between them the Nystroem extension
        ``k(x, X) V S**(-1/2)`` is used, exact to rounding for kernels that the grid resolves.
        """
        locations = locations.to(self.locations)
        rows = self._kernel(locations, self.locations) @ self._vectors / self._values.sqrt()
        return self._mean(locations), rows

    def field(self, xi: Float[Tensor, "*batch r"]) -> Float[Tensor, "*batch n"]:
        """Map coordinates (..., r) to fields (..., n)."""
        return self.mean + xi @ self.factor.T

    def condition(
        self,
        locations: Float[Tensor, "m d"],
        values: Float[Tensor, " m"],
        noise_std: float = 0.0,
        mask: Bool[Tensor, " m"] | None = None,
    ) -> GaussianLaw:
        """Return the exact posterior given values (m,) at locations (m, d) (appendix A.2)."""
        mean, rows = self.rows(locations)
        return condition(rows, values.to(mean) - mean, noise_std, mask)

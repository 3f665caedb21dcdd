"""Gaussian laws in closed form: conditioning on sensors, and the law that comes out.

Everything here is exact linear algebra on standard normal coordinates (appendix A.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

MIN_NOISE = 1e-8  # that a sensor counts with, as a share of the largest that is heard in its set


@dataclass(frozen=True)
class GaussianLaw:
    """A posterior law of standard normal coordinates: the prior, narrowed along a few directions.

    Its covariance has the symmetric root ``I - directions.T @ diag(std_reduction) @ directions``,
    exact for singular covariances too. Held in this form a posterior sample costs hardly more than
    a prior one, whatever the rank of the field.
    """

    mean: Float[Tensor, "*batch r"]
    directions: Float[Tensor, "*batch m r"]
    """Orthonormal rows: what the sensors see of the coordinates."""
    std_reduction: Float[Tensor, "*batch m"]
    """One minus the posterior standard deviation along each direction."""

    def __getitem__(self, row: int) -> GaussianLaw:
        """Return the law of one of the sets."""
        return GaussianLaw(self.mean[row], self.directions[row], self.std_reduction[row])

    @property
    def variance_reduction(self) -> Float[Tensor, "*batch m"]:
        """One minus the posterior variance along each direction."""
        return self.std_reduction * (2 - self.std_reduction)

    @property
    def root(self) -> Float[Tensor, "*batch r r"]:
        """The symmetric root of the covariance as a matrix."""
        rank = self.mean.shape[-1]
        return self.spread(torch.eye(rank, dtype=self.mean.dtype, device=self.mean.device))

    def spread(self, rows: Float[Tensor, "*rows k r"]) -> Float[Tensor, "*result k r"]:
        """Return ``rows @ root`` without forming the root."""
        seen = (rows @ self.directions.transpose(-1, -2)) * self.std_reduction[..., None, :]
        return rows - seen @ self.directions

    def coordinates(self, normals: Float[Tensor, "*rows k r"]) -> Float[Tensor, "*result k r"]:
        """Map standard normals (..., k, r) to posterior samples of the coordinates."""
        return self.mean[..., None, :] + self.spread(normals)


def covariance_root(covariance: Float[Tensor, "*batch k k"]) -> Float[Tensor, "*batch k k"]:
    """Return the symmetric root of the matrix's nearest covariance: negative parts are cut off."""
    values, vectors = torch.linalg.eigh(covariance)
    return (vectors * values.clamp_min(0).sqrt().unsqueeze(-2)) @ vectors.transpose(-1, -2)


def condition(
    rows: Float[Tensor, "*batch m r"],
    residuals: Float[Tensor, "*batch m"],
    noise_std: float | Float[Tensor, "*batch m"],
    mask: Bool[Tensor, "*batch m"] | None,
) -> GaussianLaw:
    """Condition ``xi ~ N(0, I_r)`` on ``residuals = rows @ xi + noise``.

    The posterior is computed from the singular values of `rows`, so exact (noiseless) and repeated
    sensors need no jitter: directions that are observed twice without noise are used once, in the
    least-squares sense. Row i of `rows` (..., m, r) holds the response of sensor i to each
    coordinate, `residuals` (..., m) the observed values minus the prior mean. Noise is independent
    with this standard deviation, a number or (..., m), where zero is allowed. Where sensors differ,
    levels below `MIN_NOISE` times the largest one count as that, so that rounding of an exact
    reading does not drown a noisy one. Of noise beyond the prior's spread at its sensor the spread
    counts: a sensor that is switched off by its noise leaves the others as exact as they are.
    Sensors without `mask` (..., m) are padding.

    Notes
    -----
    With ``rows = U S V^T`` the posterior mean is ``V S / (S**2 + sigma**2) U^T residuals`` and
    the covariance ``I - V diag(S**2 / (S**2 + sigma**2)) V^T`` (appendix A.2), whose symmetric
    root is ``I - V diag(1 - sigma / sqrt(S**2 + sigma**2)) V^T``. Applied to prior normals it
    gives posterior samples at the cost of prior ones (as Matheron's rule does, in coordinates).
    """
    if rows.shape[-2] == 0:
        return GaussianLaw(rows.sum(-2), rows, residuals)
    if mask is not None:
        rows = rows * mask[..., None].to(rows.dtype)
        residuals = torch.where(mask, residuals, torch.zeros_like(residuals))
    if isinstance(noise_std, Tensor):  # whitened: every sensor then has unit noise
        largest = torch.minimum(noise_std, rows.norm(dim=-1)).amax(-1, keepdim=True)
        noisy = largest > 0
        level = torch.maximum(noise_std, MIN_NOISE * largest)
        level = torch.where(noisy, level, torch.ones_like(level))
        rows, residuals = rows / level[..., None], residuals / level
        noise_std = noisy.to(rows)
    left, singular, right = torch.linalg.svd(rows, full_matrices=False)
    # Directions below rounding carry no information; with noise they carry S^2/sigma^2, harmless.
    floor = singular.amax(-1, keepdim=True) * rows.shape[-1] * torch.finfo(rows.dtype).eps
    seen = singular > floor
    total = torch.where(seen, singular**2 + noise_std**2, torch.ones_like(singular))
    gain = torch.where(seen, singular / total, torch.zeros_like(singular))
    projected = (left.transpose(-1, -2) @ residuals[..., None])[..., 0]
    mean = (right.transpose(-1, -2) @ (gain * projected)[..., None])[..., 0]
    reduction = torch.where(seen, 1.0 - noise_std / total.sqrt(), torch.zeros_like(singular))
    return GaussianLaw(mean, right, reduction)


def sensor_noise(
    noise_std: float | Tensor, *errors: float | Tensor, norm: float | Tensor = 1.0
) -> Tensor:
    """Return the noise (standard deviation) that a sensor counts with when a law is conditioned.

    The stated noise (..., m), in the transformed field, and the errors of the values that a sensor
    reads are independent, so their variances add up. Without such errors, close sensors would ask
    the leading modes to explain rounding.

    Errors are standard deviations, independent from point to point: what the modes leave out
    (`input_remainder` of the bases), and `rounding_noise`. Those of a sensor are multiplied by the
    Euclidean norm (..., m) of its weights (`Sensors.norm`), 1 for sensors at points.
    """
    variance = torch.as_tensor(noise_std, dtype=torch.float64) ** 2
    for error in errors:
        variance = variance + (error * norm) ** 2
    return variance.sqrt()

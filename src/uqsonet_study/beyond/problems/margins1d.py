"""The equation of section 4.1 where k has gamma margins: no logarithm makes it Gaussian.

k is at each point the quantile of a gamma law of shape 3 and mean 1 that a Gaussian field is of a
normal law. The field is GP(0, exp(-(x - x')^2 / 0.1^2)), on the grids of `diffusion1d`. The law of
log k has a skewness of -0.6.
"""

from __future__ import annotations

import torch
from scipy.special import gammainccinv, gammaincinv
from torch import Tensor

from uqsonet_study.beyond.priors.mapped import MappedField
from uqsonet_study.problems.diffusion1d import Diffusion1D

SHAPE = 3.0  # shape of the gamma law of k


def log_gamma(latent: Tensor) -> Tensor:
    """Return log k for latent values, both tails without cancellation."""
    low, high = (torch.special.ndtr(sign * latent).numpy() for sign in (1, -1))
    below = gammaincinv(SHAPE, low)
    above = gammainccinv(SHAPE, high)
    return (torch.where(latent < 0, torch.from_numpy(below), torch.from_numpy(above)) / SHAPE).log()


class Margins1D(Diffusion1D):
    """Equation (eq:1d) where k has gamma margins."""

    name = "margins1d"
    title = "One-dimensional diffusion, gamma margins"

    def __init__(self) -> None:
        super().__init__()
        self.prior = MappedField(self.gaussian(std=1.0, length=0.1), log_gamma)

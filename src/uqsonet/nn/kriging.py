"""UQ-SONet on a Karhunen-Loeve latent space: the `kriging` architecture of the tuned recipe.

What sensors leave unknown is the rest of the input function, so z carries exactly that. With the
empirical mean and modes of the (transformed) training inputs, ``kappa = mean + modes a``,
``a ~ N(0, I)``:

- set embedding h(O) = (mean, root) of a given O: Gaussian conditioning (kriging) in closed
  form, permutation-invariant, for any number, place and noise level of the sensors;
- latent z ~ N(0, I), a = mean + root z;
- branch b(a): a linear map (its start is the least-squares one, that is cokriging) plus a
  perceptron for what linear theory cannot explain;
- trunk t: empirical modes of the training outputs, interpolated to any query;
- where the operator itself is random (sections 4.3, 4.4), a second latent carries what kappa
  leaves open: the index of a training residual, given the covariance that fits the sensors
  (`uqsonet.nn.intrinsic`).

It is the stochastic operator model (eq:stochastic-operator) with b depending on (h, z) through
a. In the ELBO the encoder may see the full kappa of a training pair, which fixes z; its KL term
then no longer depends on the branch, and the reconstruction term is the regression trained here.
Gaussianity of the transformed input is an assumption: docs/model.md says where it matters.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from uqsonet.gaussian_process import GaussianLaw, covariance_root
from uqsonet.nn.base import Batch, register
from uqsonet.nn.intrinsic import (
    KEPT,
    residual_covariance,
    residual_slopes,
    standardised_residuals,
)
from uqsonet.nn.karhunen_loeve import KarhunenLoeveModel, correction
from uqsonet.posterior import MOMENT_SEED, LatentPosterior, Posterior, coefficient_moments
from uqsonet.sensors import Observations
from uqsonet.simulation import Functions
from uqsonet_study.config import KrigingNetwork

PRIOR_SAMPLES = 16_384
"""Inputs that show how much of the operator's randomness training has explained."""


@register("kriging")
class KrigingUQSONet(KarhunenLoeveModel):
    """Conditional sampling of KL coefficients of kappa, then a learned operator on them."""

    method = "uqsonet"
    reads_sensors = False

    intrinsic_covariance: Tensor
    intrinsic_slopes: Tensor
    intrinsic_residuals: Tensor

    def __init__(self, problem: str, config: KrigingNetwork, noise_std: float) -> None:
        super().__init__(problem, config, noise_std)
        r, p = config.input_modes, config.output_modes
        if self.problem.intrinsic is not None:
            covariance = torch.zeros(p, p, dtype=torch.float64)
            self.register_buffer("intrinsic_covariance", covariance)
            self.register_buffer("intrinsic_slopes", torch.zeros(r, p, p))
            self.register_buffer("intrinsic_residuals", torch.zeros(KEPT, p))
        self._kept: tuple[object, Tensor, Tensor] | None = None
        self.linear = nn.Linear(r, p) if config.linear_skip else None
        if self.linear is not None:
            nn.init.zeros_(self.linear.weight)
            nn.init.zeros_(self.linear.bias)
        self.network = correction(r, config)

    def fit_constants(self, functions: Functions) -> None:
        """Set both bases, and the linear branch by least squares (training data only)."""
        super().fit_constants(functions)
        if self.problem.intrinsic is not None:
            targets = self.targets(functions)
            pairs = targets["a"], targets["c"], self.start_weight
            self.intrinsic_covariance.copy_(residual_covariance(*pairs))
            self.intrinsic_slopes.copy_(residual_slopes(*pairs))
            self.intrinsic_residuals.copy_(standardised_residuals(*pairs))
            self._ready = functions, targets

    def branch(self, a: Tensor) -> Tensor:
        """Map input coefficients (..., r) to scaled output coefficients (..., p)."""
        return self._straight(a) + self.network(a)

    def _straight(self, a: Tensor) -> Tensor:
        start = nn.functional.linear(a, self.start_weight)
        return start if self.linear is None else start + self.linear(a)

    def loss(self, batch: Batch, normals: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the squared error as a fraction of the output's variance."""
        error = ((self.branch(batch["a"]) - batch["c"]) ** 2).sum(-1).mean()
        return error, {"reconstruction": error}

    def _intrinsic_root(self, mean: Tensor) -> Tensor | None:
        """Return a root (B, p, p) of what kappa leaves open, None for a fixed operator.

        Parameters
        ----------
        mean : Tensor, shape (B, r)
            Of the input's coefficients given the observations.
        """
        if self.problem.intrinsic is None:
            return None
        covariance, slopes = self._left_open()
        return covariance_root(covariance + torch.tensordot(mean, slopes, dims=1))

    def _left_open(self) -> tuple[Tensor, Tensor]:
        """Return C_0 (p, p) and slopes (r, p, p) without what the trained branch explains.

        Both were fitted to residuals of the linear start, in which the correction g(a) that
        training has added since counts as random: ``E[g g^T]`` and ``E[a_j g g^T]`` of it are
        subtracted. Kept until weights change.
        """
        fitted = *self.parameters(), self.intrinsic_covariance, self.intrinsic_slopes
        weights = tuple((id(tensor), tensor._version) for tensor in fitted)
        if self._kept is None or self._kept[0] != weights:
            generator = torch.Generator().manual_seed(MOMENT_SEED)
            a = torch.randn(PRIOR_SAMPLES, self.config.input_modes, generator=generator)
            a = a.to(self.start_weight)
            with torch.no_grad():
                added = self.branch(a) - nn.functional.linear(a, self.start_weight)
            explained = residual_covariance(a, added, torch.zeros_like(self.start_weight))
            along = residual_slopes(a, added, torch.zeros_like(self.start_weight))
            left = self.intrinsic_covariance - explained.to(self.intrinsic_covariance)
            self._kept = weights, left, self.intrinsic_slopes.double() - along.to(left)
        return self._kept[1:]

    def _posterior(self, observations: Observations, noise_std: float, single: bool) -> Posterior:
        law = self.input_law(observations, noise_std)
        mean = law.mean.float()
        given = GaussianLaw(mean, law.directions.float(), law.std_reduction.float())
        root = self._intrinsic_root(law.mean)

        def normals(size: int, width: int, generator: torch.Generator) -> Tensor:
            shape = (len(mean), size, width)
            return torch.randn(shape, generator=generator, device=generator.device).to(mean)

        def inputs(size: int, generator: torch.Generator) -> Tensor:
            return given.coordinates(normals(size, mean.shape[-1], generator))

        @torch.no_grad()
        def draw(size: int, generator: torch.Generator) -> Tensor:
            c = self.branch(inputs(size, generator)).double()
            if root is None:
                return c
            picked = torch.randint(KEPT, c.shape[:-1], generator=generator, device=generator.device)
            return c + self.intrinsic_residuals[picked.to(c.device)].double() @ root

        @torch.no_grad()
        def estimate(size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
            a = inputs(size, generator)
            straight = self._straight(a)
            sampled = coefficient_moments(straight + self.network(a))
            control, exact = coefficient_moments(straight), self._straight_moments(law)
            found = [s - c + e for s, c, e in zip(sampled, control, exact, strict=True)]
            left_open = 0.0 if root is None else root @ root.transpose(-1, -2)
            return found[0], found[1] + left_open

        return LatentPosterior(self.problem.grid, self.basis, single, draw, estimate)

    def _straight_moments(self, law: GaussianLaw) -> tuple[Tensor, Tensor]:
        """Return mean (B, p) and covariance (B, p, p) of the linear part of b(a), in closed form.

        It is the control variate of the sampled moments: only the perceptron's part keeps the
        error of sampling.
        """
        weight, bias = self.start_weight, self.start_weight.new_zeros(len(self.start_weight))
        if self.linear is not None:
            weight, bias = weight + self.linear.weight, self.linear.bias
        root = law.spread(weight.double())
        mean = law.mean @ weight.double().T + bias.double()
        return mean, root @ root.transpose(-1, -2)

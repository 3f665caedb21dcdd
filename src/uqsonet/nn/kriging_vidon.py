"""VIDON on the kriged input: the `kriging_set` architecture of the tuned recipe.

A deterministic operator from sensors to the conditional mean of u, trained by squared error as
VIDON is (Prasthofer et al. 2022). Its set embedding h(O) is not a learned attention but the mean
and variances of the input's Karhunen-Loeve coefficients given the sensors
(`uqsonet.nn.karhunen_loeve`); branch and trunk act on it as in `uqsonet.nn.kriging`.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from uqsonet.nn.base import Batch, register
from uqsonet.nn.karhunen_loeve import KarhunenLoeveModel, correction
from uqsonet.posterior import PointPosterior, Posterior
from uqsonet.sensors import Observations
from uqsonet.simulation import Functions
from uqsonet_study.config import KrigingNetwork


@register("kriging_set")
class KrigingVIDON(KarhunenLoeveModel):
    """Deterministic: `condition(...).mean` works, every spread raises."""

    method = "vidon"
    probabilistic = False

    def __init__(self, problem: str, config: KrigingNetwork, noise_std: float) -> None:
        super().__init__(problem, config, noise_std)
        self.network = correction(2 * config.input_modes, config)

    def targets(self, functions: Functions) -> dict[str, Tensor]:
        """Return standardised coefficients of outputs (N, p)."""
        return {"c": super().targets(functions)["c"]}

    def embed(self, observations: Observations, noise_std: float) -> Tensor:
        """Return h(O), shape (B, 2 r): mean and variances of the input's coefficients."""
        law = self.input_law(observations, noise_std)
        variance = 1 - (law.variance_reduction[..., None] * law.directions**2).sum(-2)
        return torch.cat([law.mean, variance], dim=-1).float()

    def branch(self, h: Tensor) -> Tensor:
        """Map h (..., 2 r) to scaled output coefficients (..., p)."""
        mean = h[..., : self.config.input_modes]
        return nn.functional.linear(mean, self.start_weight) + self.network(h)

    def loss(self, batch: Batch, normals: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the squared error as a fraction of the output's variance."""
        with torch.no_grad(), warnings.catch_warnings():
            # Stacked trials interpolate one after the other: slower, and no concern of the user.
            warnings.filterwarnings("ignore", "There is a performance drop")
            values = batch["values"]
            # There is no mask where no set of the batch is padded.
            mask = batch.get("mask", torch.ones_like(values, dtype=torch.bool))
            sensors = Observations(batch["locations"], values, mask)
            h = self.embed(sensors, self.noise_std)
        error = ((self.branch(h) - batch["c"]) ** 2).sum(-1).mean()
        return error, {"reconstruction": error}

    def _posterior(self, observations: Observations, noise_std: float, single: bool) -> Posterior:
        coefficients = self.branch(self.embed(observations, noise_std)).double()
        return PointPosterior(self.problem.grid, self.basis, single, coefficients, self.method)

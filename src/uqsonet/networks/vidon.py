"""VIDON on Karhunen-Loeve coefficients: recipe `tuned`, architecture `karhunen_loeve_set`.

A deterministic operator from sensors to the conditional mean of u, trained by squared error as
VIDON is (Prasthofer et al. 2022). Its set embedding h(O) is not a learned attention but the mean
and variances of the input's Karhunen-Loeve coefficients given the sensors; branch and trunk act on
it as in `uqsonet.operator.model`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.gauss.given import Point
from uqsonet.gauss.posterior import Posterior
from uqsonet.laws.bases import SINGLE_PRECISION, KarhunenLoeveBases
from uqsonet.networks.config import KarhunenLoeveSetNetwork
from uqsonet.operator.base import Batch, OperatorModel, register
from uqsonet.operator.closed_form import fit_bases, targets
from uqsonet.operator.model import correction
from uqsonet.sensors.sensors import Sensors

if TYPE_CHECKING:
    from uqsonet.runs.functions import Functions


@register("karhunen_loeve_set")
class KarhunenLoeveVIDON(OperatorModel):
    """Deterministic: `condition(...).mean` works, every spread raises."""

    method = "vidon"
    config_type = KarhunenLoeveSetNetwork
    probabilistic = False

    def __init__(
        self, fields: OperatorFields, config: KarhunenLoeveSetNetwork, noise_std: float
    ) -> None:
        super().__init__(fields, config, noise_std)
        self.config: KarhunenLoeveSetNetwork = config
        self.bases = KarhunenLoeveBases(fields, config.input_modes, config.output_modes)
        self.network = correction(2 * config.input_modes, config)

    @torch.no_grad()
    def answer(self, sensors: Sensors) -> Posterior:
        """Return the conditional mean of u given sensors (`OperatorModel.condition`)."""
        self.require_trained_noise(sensors)
        h, single = self.embed(sensors), sensors.single
        basis = self.bases.output_basis
        coefficients = self.branch(h).double()
        law = Point(coefficients, self.method)
        return Posterior(self.fields.output.grid, basis, single, law)

    def embed(self, sensors: Sensors) -> Tensor:
        """Return h(O), shape (B, 2 r): mean and variances of the input's coefficients."""
        law = self.bases.input_law(sensors, self.noise_std)
        variance = 1 - (law.variance_reduction[..., None] * law.directions**2).sum(-2)
        return torch.cat([law.mean, variance], dim=-1).float()

    def embed_on_grid(self, index: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Return h(O), as `embed` does, of sensors (B, m) on grid points of these numbers.

        A Cholesky factor of the sensors' covariance takes a tenth of the time of singular values,
        and nothing here waits for a GPU. It needs some noise: a sensor counts with at least the
        rounding of the data.
        """
        at_sensors = self.bases.input_values(index)
        residual = self.fields.input.transform.forward(values.double()) - at_sensors[..., 0]
        rows = torch.cat([at_sensors[..., 1:], residual[..., None]], -1)
        if mask is not None:
            rows = rows * mask[..., None]
        covariance = rows[..., :-1] @ rows[..., :-1].mT
        variances = covariance.diagonal(dim1=-2, dim2=-1)
        least = SINGLE_PRECISION**2 * variances.amax(-1, keepdim=True)
        variances += least.maximum(self.noise_std**2 + self.bases.input_remainder.square())
        root, _ = torch.linalg.cholesky_ex(covariance)
        seen = torch.linalg.solve_triangular(root, rows, upper=False)
        mean = (seen[..., -1:].mT @ seen[..., :-1])[..., 0, :]
        variance = 1 - seen[..., :-1].square().sum(-2)
        return torch.cat([mean, variance], dim=-1).to(values)

    def branch(self, h: Tensor) -> Tensor:
        """Map h (..., 2 r) to scaled output coefficients (..., p)."""
        mean = h[..., : self.config.input_modes]
        return nn.functional.linear(mean, self.bases.linear_weight) + self.network(h)

    def fit_constants(self, functions: Functions) -> None:
        """Set both bases, and the linear branch by least squares (training data only)."""
        fit_bases(self.bases, functions, self.config.linear_skip)

    def targets(self, functions: Functions) -> dict[str, Tensor]:
        """Return standardised coefficients of outputs (N, p)."""
        return {"c": targets(self.bases, functions)["c"]}

    def loss(self, batch: Batch, normals: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the squared error as a fraction of the output's variance."""
        with torch.no_grad():
            h = self.embed_on_grid(batch["index"], batch["values"], batch.get("mask"))
        error = ((self.branch(h) - batch["c"]) ** 2).sum(-1).mean()
        return error, {"reconstruction": error}

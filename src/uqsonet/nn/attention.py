"""The networks that UQ-SONet and VIDON share (sections 2, 3.1): h(O), branch, trunk.

The expansion is ``u(y) = factor(y) * sum_n b^n t^n(y)`` with the problem's hard boundary factor.
"""

from __future__ import annotations

import torch
from torch import Tensor

from uqsonet.blocks import column_moments
from uqsonet.config import AttentionNetwork
from uqsonet.errors import ConfigError, ObservationError
from uqsonet.nn.base import OperatorModel
from uqsonet.nn.mlp import MLP
from uqsonet.nn.set_embedding import SetEmbedding
from uqsonet.sensors import Observations
from uqsonet.simulation import Functions


class AttentionModel(OperatorModel):
    """Set embedding, branch on (h, z) and trunk; z is empty for VIDON."""

    input_mean: Tensor
    input_std: Tensor
    points: Tensor
    factor: Tensor

    def __init__(self, problem: str, config: AttentionNetwork, noise_std: float) -> None:
        super().__init__(problem, config, noise_std)
        self.config: AttentionNetwork = config
        grid = self.problem.grid
        self.embedding = SetEmbedding(grid.dim, config)
        self.branch = MLP(
            self.embedding.outputs + self.latent_dim,
            config.branch,
            config.truncation,
            config.activation,
        )
        self.trunk = MLP(grid.dim, config.trunk, config.truncation, config.activation)
        training_grid, _ = self.problem.training_grid()
        points = training_grid.points()
        self.register_buffer("points", points.float(), persistent=False)
        self.register_buffer(
            "factor", self.problem.boundary_factor(points).float(), persistent=False
        )
        self.register_buffer("input_mean", torch.zeros(()))
        self.register_buffer("input_std", torch.ones(()))

    def fit_constants(self, functions: Functions) -> None:
        """Set the statistics of the transformed input (training data only)."""
        if self.config.standardise_inputs:
            size, points = functions.kappa_rows.shape
            means, stds = column_moments(functions.field_rows())
            mean = means.mean()
            squares = (size - 1) * stds.square().sum() + size * (means - mean).square().sum()
            self.input_mean.copy_(mean)
            self.input_std.copy_((squares / (size * points - 1)).sqrt())

    def targets(self, functions: Functions) -> dict[str, Tensor]:
        """Return the outputs on the training grid."""
        points = functions.u_rows.shape[1]
        if points != len(self.points):
            raise ConfigError(f"outputs have {points} points, expected {len(self.points)}")
        return {"u": functions.u}

    def embed(self, locations: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """Return h(O), shape (B, H q), after the configured scaling of the inputs."""
        if self.config.standardise_inputs:
            values = (self.problem.transform.forward(values) - self.input_mean) / self.input_std
            lower = locations.new_tensor(self.problem.grid.lower)
            upper = locations.new_tensor(self.problem.grid.upper)
            locations = 2 * (locations - lower) / (upper - lower) - 1
        return self.embedding(locations, values, mask)

    def basis(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Return offset zero (M,) and the trunk with its boundary factor (M, p), float64."""
        with torch.no_grad():
            trunk = self.trunk(queries.to(self.points)).double()
        factor = self.problem.boundary_factor(queries.double())
        return torch.zeros_like(factor), factor[:, None] * trunk

    def decode(self, coefficients: Tensor) -> Tensor:
        """Map coefficients (B, p) to outputs on the training grid (B, M)."""
        return coefficients @ (self.factor[:, None] * self.trunk(self.points)).T

    def _checked(self, observations: Observations, noise_std: float) -> Observations:
        if noise_std != self.noise_std:
            raise ObservationError(
                f"these networks were trained at noise_std = {self.noise_std}, asked for "
                f"{noise_std}; train at that level or use the kriging architecture"
            )
        return observations.to(self.points.dtype, self.points.device)

"""The networks that the paper's UQ-SONet and VIDON share (sections 2, 3.1): h(O), branch, trunk.

The expansion is ``u(y) = factor(y) * sum_n b^n t^n(y)`` with the problem's hard boundary factor.

In training u is known by its coefficients c in an orthonormal basis V of the training outputs
(`output_basis`): u = V c. Solutions of smooth equations fill a space of few dimensions, so a
product with u costs hundreds of operations instead of M (2,601 points in 4.2), and norms are those
of c. Let B be the trunk on the grid. The squared error of an expansion ``B b`` is its error within
the span of V plus what B b has outside of that span:

    |V c - B b|^2 = |c - V^T B b|^2 + b^T (R^T R) b,    R = B - V V^T B.

Neither term loses digits, as |u|^2 - 2 b^T B^T u + b^T B^T B b would where the error is small.
Before `fit_constants`, or where outputs fill the whole space, V is the identity.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from uqsonet.errors import ConfigError
from uqsonet.fields.field import centred
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.gauss.blocks import RowBlocks, column_moments
from uqsonet.gauss.given import Given
from uqsonet.gauss.posterior import Posterior
from uqsonet.networks.config import AttentionNetwork
from uqsonet.networks.set_embedding import SetEmbedding
from uqsonet.operator.base import Batch, OperatorModel
from uqsonet.operator.perceptrons import MLP
from uqsonet.sensors.sensors import Sensors

if TYPE_CHECKING:
    from uqsonet.runs.functions import Functions

TOLERANCE = torch.finfo(torch.float32).eps
"""Root mean square of what a basis leaves out, relative to that of the outputs: no more than
float32 leaves out of each stored value."""

WORTHWHILE = 0.8
"""Share of the points above which a basis is not used: products with it would cost as much."""

BASIS_ROWS = 512
"""Functions that extend the basis at a time."""


def output_basis(outputs: RowBlocks) -> Tensor | None:
    """Return an orthonormal basis (M, r) of the outputs (N, M), float64, or None if r is near M.

    One pass. What the basis so far leaves out of a block of functions is decomposed, and
    directions are added, the largest first, until the rest of that block is within `TOLERANCE`. So
    the bound holds for each block and for the data as a whole.
    """
    points = outputs.shape[1]
    basis = torch.zeros(points, 0, dtype=torch.float64)
    for block in outputs.blocks(BASIS_ROWS):
        rows = block.double()
        allowed = (TOLERANCE * rows.norm()).square()
        rest = rows
        for _ in range(2):  # twice: the second time removes the rounding of the first
            rest = rest - (rest @ basis) @ basis.T
        if rest.square().sum() <= allowed:
            continue
        _, values, directions = torch.linalg.svd(rest, full_matrices=False)
        # left[k]: what remains of the block if k directions are taken
        left = values.square().flip(0).cumsum(0).flip(0)
        taken = int((left > allowed).sum())
        basis = torch.linalg.qr(torch.cat([basis, directions[:taken].T], dim=1)).Q
        if basis.shape[1] > WORTHWHILE * points:
            return None
    return basis


@torch.no_grad()
def glorot(module: nn.Module) -> None:
    """Draw weights by the normal law of Glorot and Bengio (2010, AISTATS); set biases to 0."""
    for name, parameter in module.named_parameters():
        if "bias" in name:
            parameter.zero_()
        else:
            parameter.normal_(std=(2 / sum(parameter.shape[-2:])) ** 0.5)


def scaled_squared_error(
    prediction: Float[Tensor, "B M"], u: Float[Tensor, "B M"], noise_variance: float
) -> Float[Tensor, ""]:
    """Return ``sum_i (prediction_i - u_i)^2 / (2 M sigma_u^2)`` averaged over the batch.

    The sum over M points is divided by M (eq:loss), so on a uniform grid it converges to
    ``|prediction - u|^2_{L2} / (2 |Omega| sigma_u^2)`` as M grows (appendix A.3).
    """
    return torch.nn.functional.mse_loss(prediction, u) / (2 * noise_variance)


class AttentionNetworks(OperatorModel):
    """Set embedding, branch on (h, z) and trunk; z is empty for VIDON."""

    z_dim: int = 0
    """d_z."""

    input_mean: Tensor
    input_std: Tensor
    points: Tensor
    factor: Tensor
    output_basis: Tensor | None

    def __init__(self, fields: OperatorFields, config: AttentionNetwork, noise_std: float) -> None:
        super().__init__(fields, config, noise_std)
        self.config: AttentionNetwork = config
        grid = fields.input.grid
        self.embedding = SetEmbedding(grid.dim, config)
        self.branch = MLP(
            self.embedding.outputs + self.z_dim,
            config.branch,
            config.truncation,
            config.activation,
        )
        self.trunk = MLP(fields.output.grid.dim, config.trunk, config.truncation, config.activation)
        self._initialise(self)
        training_grid, _ = fields.training_grid()
        points = training_grid.points()
        self.register_buffer("points", points.float(), persistent=False)
        self.register_buffer("factor", fields.boundary_factor(points).float(), persistent=False)
        self.register_buffer("output_basis", None, persistent=False)
        self.register_buffer("input_mean", torch.zeros(()))
        self.register_buffer("input_std", torch.ones(()))

    def _initialise(self, networks: nn.Module) -> None:
        if self.config.initialisation == "xavier":
            glorot(networks)

    def fit_constants(self, functions: Functions) -> None:
        """Set the basis of the outputs and statistics of the input (training data only)."""
        basis = output_basis(functions.u_rows)
        self.output_basis = None if basis is None else basis.to(self.points)
        if self.config.standardise_inputs:
            size, points = functions.kappa_rows.shape
            means, stds = column_moments(functions.transformed_inputs())
            mean = means.mean()
            squares = (size - 1) * stds.square().sum() + size * (means - mean).square().sum()
            self.input_mean.copy_(mean)
            self.input_std.copy_((squares / (size * points - 1)).sqrt())

    def targets(self, functions: Functions) -> dict[str, Tensor]:
        """Return the outputs on the training grid, or their coefficients in `output_basis`."""
        points = functions.u_rows.shape[1]
        if points != len(self.points):
            raise ConfigError(f"outputs have {points} points, expected {len(self.points)}")
        if self.output_basis is None:
            return {"u": functions.u}
        coefficients, first = torch.empty(functions.size, self.output_basis.shape[1]), 0
        for block in functions.u_rows.blocks():
            coefficients[first : first + len(block)] = block.double() @ self.output_basis.double()
            first += len(block)
        return {"u": coefficients}

    def embed_batch(self, batch: Batch) -> Tensor:
        """Return h(O) of training samples, shape (B, H q)."""
        return self.embed(batch["locations"], batch["values"], batch.get("mask"))

    def reconstruction(self, b: Tensor, u: Tensor) -> Tensor:
        """Return the scaled squared error of the expansions with coefficients b (B, p).

        Parameters
        ----------
        b : Tensor, shape (B, p)
        u : Tensor, shape (B, M) or (B, r)
            On the training grid, or coefficients in the basis of the outputs.
        """
        variance, trunk = self.config.noise_variance, self.trunk_on_grid()
        if self.output_basis is None:
            return scaled_squared_error(b @ trunk.T, u, variance)
        inside = self.output_basis.T @ trunk
        outside = trunk - self.output_basis @ inside
        error = scaled_squared_error(b @ inside.T, u, variance)
        beyond = (b @ (outside.T @ outside) * b).sum(-1).mean() / (2 * variance)
        return (error * u.shape[-1] + beyond) / len(self.points)

    def trunk_on_grid(self) -> Tensor:
        """Return the trunk with its boundary factor on the training grid (M, p)."""
        return self.factor[:, None] * self.trunk(self.points)

    def embed(self, locations: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Return h(O), shape (B, H q), after the configured scaling of the inputs."""
        return self.embedding(self._scaled(locations), self._standardised(values), mask)

    def embed_observations(self, observations: Sensors) -> Tensor:
        """Return h(O), shape (B, H q), of checked observations."""
        ready = observations.to(self.points.dtype, self.points.device)
        return self.embed(ready.locations, ready.values, ready.mask)

    def _scaled(self, locations: Tensor) -> Tensor:
        scaled = self.config.standardise_inputs
        return centred(self.fields.input.grid, locations) if scaled else locations

    def _standardised(self, values: Tensor) -> Tensor:
        if self.config.transform_inputs:
            return self.fields.input.transform.forward(values)
        if not self.config.standardise_inputs:
            return values
        return (self.fields.input.transform.forward(values) - self.input_mean) / self.input_std

    @torch.no_grad()
    def answer(self, sensors: Sensors) -> Posterior:
        """Return the law of u given sensors, at the noise of training; see `OperatorModel`."""
        self.require_trained_noise(sensors)
        law = self.given(self.embed_observations(sensors))
        return Posterior(self.fields.output.grid, self.basis, sensors.single, law)

    @abstractmethod
    def given(self, h: Tensor) -> Given:
        """Return the law of the coefficients of u given h(O) (B, H q)."""

    def basis(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Return offset zero (M,) and the trunk with its boundary factor (M, p), float64."""
        with torch.no_grad():
            trunk = self.trunk(queries.to(self.points)).double()
        factor = self.fields.boundary_factor(queries.double())
        return torch.zeros_like(factor), factor[:, None] * trunk

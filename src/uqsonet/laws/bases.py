"""Karhunen-Loeve expansions of input and output, and training inputs as they see them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.fields.stacked import Domain, point_weights
from uqsonet.gauss.gaussian import GaussianLaw, condition, sensor_noise
from uqsonet.sensors.sensors import Sensors

BASIS_POINTS = 1 << 15  # points of a basis that are worked on at a time in double precision
WITHIN_POINTS = 1 << 12  # points at a time where thousands of inputs are compared with bounds
PASS_ROWS = 1024  # samples in one pass of the perceptron: its states stay in the cache
MAX_KEPT_BASIS = 1 << 23  # values of the output's basis that are kept for the next question there
SINGLE_PRECISION = 1e-6  # rounding error of the data, as a share of the field's std


class KarhunenLoeveBases(nn.Module):
    """Bases of r input and p output modes, and the least-squares operator between coefficients."""

    input_mean: Tensor
    input_factor: Tensor
    to_coefficients: Tensor
    mode_std: Tensor
    input_remainder: Tensor
    output_mean: Tensor
    output_modes: Tensor
    output_scale: Tensor
    linear_weight: Tensor

    def __init__(self, fields: OperatorFields, input_modes: int, output_modes: int) -> None:
        super().__init__()
        self.fields, r, p = fields, input_modes, output_modes
        self._training_grid, _ = fields.training_grid()
        n, points = fields.input.grid.size, self._training_grid.size

        def double(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64)

        self._map: tuple[object, Tensor, Tensor] | None = None
        self._kept_std: tuple[object, float] | None = None
        self._kept_basis: dict[str, tuple[object, Tensor, Tensor]] = {}
        self.register_buffer("input_mean", double(n))
        # Single precision halves the weight file; rounding is far below what r modes leave out.
        self.register_buffer("input_factor", torch.zeros(n, r))
        # Of training only, and double: a mode of 1e-6 times the first one's size is told from it.
        self.register_buffer("to_coefficients", double(n, r), persistent=False)
        # Of training only: the std of modes over that of the runs which they were fitted to.
        self.register_buffer("mode_std", torch.ones(r, dtype=torch.float64), persistent=False)
        self.register_buffer("input_remainder", double())
        self.register_buffer("output_mean", double(points))
        self.register_buffer("output_modes", torch.zeros(points, p))
        self.register_buffer("output_scale", torch.ones(()))
        self.register_buffer("linear_weight", torch.zeros(p, r))

    @cached_property
    def input_weights(self) -> Tensor | None:
        """Weights (n,) of the input's points (`point_weights`)."""
        return point_weights(self.fields.input.grid)

    @cached_property
    def output_weights(self) -> Tensor | None:
        """Weights (M,) of the output's points (`point_weights`)."""
        return point_weights(self._training_grid)

    def output_basis(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Return output mean (M,) and scaled modes (M, p) at queries (M, d), float64."""
        tensors = self.output_mean, self.output_modes, self.output_scale
        return self._basis("output", self._training_grid, self._output_values, tensors, queries)

    def _basis(
        self, side: str, grid: Domain, values_at: Callable[[Tensor], Tensor],
        tensors: tuple[Tensor, ...], queries: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Return mean and scaled modes at queries; those of the last queries are kept."""
        state = [(id(one), one._version) for one in tensors]
        kept = self._kept_basis.pop(side, None)
        if kept is None or kept[0] != state or not torch.equal(kept[1], queries):
            kept = state, queries.clone(), grid.interpolate(values_at, queries)
        if kept[2].numel() <= MAX_KEPT_BASIS:
            self._kept_basis[side] = kept
        return kept[2][:, 0], kept[2][:, 1:]

    def output_at(self, observations: Sensors) -> tuple[Tensor, Tensor]:
        """Return what sensors read of output mean (B, m) and scaled modes (B, m, p), float64."""
        values = observations.read(self._training_grid, self._output_values)
        return values[..., 0], values[..., 1:]

    def _output_values(self, points: Tensor) -> Tensor:
        """Return output mean and scaled modes (k, 1 + p), float64, at points of these numbers."""
        modes = self.output_modes[points] * self.output_scale.double()
        return torch.cat([self.output_mean[points, None], modes], 1)

    def input_values(self, points: Tensor) -> Tensor:
        """Return mean and scaled modes (..., 1 + r) of the input, float64, at such points (...)."""
        return torch.cat([self.input_mean[points, None], self.input_factor[points].double()], -1)

    def input_basis(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean (M,) and scaled modes (M, r) of the transformed input at queries (M, d)."""
        tensors = self.input_mean, self.input_factor
        return self._basis("input", self.fields.input.grid, self.input_values, tensors, queries)

    def input_law(self, sensors: Sensors, noise_std: float = 0.0) -> GaussianLaw:
        """Return h(O): the law of the input's coefficients given sensors, float64.

        Those that state no noise have `noise_std`.
        """
        rows, residual = self.at_sensors(sensors)
        noise = sensors.noise_level(noise_std)
        level = sensor_noise(noise, self.input_remainder.cpu(), norm=sensors.norm(2))
        level = float(level) if not level.ndim else level.to(residual)
        return condition(rows, residual, level, sensors.mask.to(rows.device))

    def output_projection(self) -> Tensor:
        """Return the map (M, p) from outputs less their mean to unscaled coefficients."""
        weights = self.output_weights
        return self.output_modes if weights is None else self.output_modes * weights[:, None]

    def output_coefficients(self, outputs: Tensor) -> Tensor:
        """Return scaled coefficients (..., p), float64, of outputs (..., M) on their grid."""
        left = outputs.double() - self.output_mean
        return left @ self.output_projection().double() / self.output_scale.double()

    def input_std(self) -> float:
        """Return the standard deviation of the input in its modes, root mean square over points."""
        state = id(self.input_factor), self.input_factor._version
        if self._kept_std is None or self._kept_std[0] != state:
            norm = torch.linalg.vector_norm(self.input_factor, dtype=torch.float64)
            self._kept_std = state, float(norm) / len(self.input_factor) ** 0.5
        return self._kept_std[1]

    def from_fields(self) -> Tensor:
        """Return the map (n, r), float64, from inputs less their mean to coefficients."""
        factor = self.input_factor.double()
        if self.input_weights is None:
            norms = sum(part.square().sum(0) for part in factor.split(BASIS_POINTS))
            return factor.div_(torch.as_tensor(norms).clamp_min(1e-300))
        weighted = factor * self.input_weights[:, None]
        # Not the diagonal alone: modes of older files are orthogonal in sums without weights.
        return weighted @ torch.linalg.pinv(factor.T @ weighted, rtol=1e-14, hermitian=True)

    def coefficients_of(self, fields: Tensor) -> Tensor:
        """Return standardised coefficients (..., r), float32, of transformed inputs (..., n)."""
        factor = self.input_factor
        if self._map is None or self._map[0] != (id(factor), factor._version):
            to = self.from_fields().float()
            at_mean = (self.input_mean @ to.double()).float()
            self._map = (id(factor), factor._version), to, at_mean
        _, to, at_mean = self._map
        return fields.float().to(to.device) @ to - at_mean

    def within(self, a: Tensor, low: float, high: float) -> Tensor:
        """Return whether inputs of coefficients (n, r) lie between two values at all points."""
        inside, a = torch.ones(len(a), dtype=torch.bool), a.float()
        mean, factor = self.input_mean.float().cpu(), self.input_factor.cpu()
        parts = zip(mean.split(WITHIN_POINTS), factor.split(WITHIN_POINTS), strict=True)
        for some, modes in parts:
            field = some + a @ modes.T
            inside &= (field.amin(1) >= low) & (field.amax(1) <= high)
        return inside

    def at_sensors(self, observations: Sensors) -> tuple[Tensor, Tensor]:
        """Return responses (B, m, r) of sensors to coefficients, and readings (B, m), float64.

        Readings are transformed, less the mean there.
        """
        ready = observations.to(torch.float64, self.input_mean.device)
        at_sensors = ready.read(self.fields.input.grid, self.input_values)
        residual = self.fields.input.transform.forward(ready.values) - at_sensors[..., 0]
        return at_sensors[..., 1:], residual


@dataclass(frozen=True)
class InputSample:
    """N training inputs in the form that laws are fitted to."""

    bases: KarhunenLoeveBases
    fields: Tensor  # (N, n), float32, transformed inputs on the grid
    coefficients: Tensor  # (N, r), float64, standardised
    remainder: Tensor  # (N,), float64, root mean square of what the modes leave out of each
    noise_std: Tensor | float = 0.0  # of readings of the transformed input; (n,), or everywhere


def rounding_noise(bases: KarhunenLoeveBases) -> float:
    """Return the rounding error of the data, in the transformed input."""
    return SINGLE_PRECISION * bases.input_std()

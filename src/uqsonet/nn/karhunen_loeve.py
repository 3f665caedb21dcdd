"""Mean and modes of inputs and outputs, and sensors as their closed-form posterior.

What the models on a Karhunen-Loeve latent space share. With the empirical mean and modes of the
(transformed) training inputs, ``kappa = mean + modes a``, ``a ~ N(0, I)``, Gaussian conditioning
(kriging) gives the law of `a` for any number, place and noise level of the sensors: a set
embedding h(O) in closed form, invariant under permutation. Outputs live in their own empirical
modes, interpolated to any query: the trunk.
Gaussianity of the transformed input is an assumption: docs/model.md says where it matters.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import torch
from torch import Tensor

from uqsonet.blocks import least_squares
from uqsonet.gaussian_process import GaussianLaw, condition
from uqsonet.modes import empirical_modes
from uqsonet.nn.base import OperatorModel
from uqsonet.nn.mlp import MLP
from uqsonet.sensors import Observations
from uqsonet.simulation import Functions
from uqsonet_study.config import KrigingNetwork


def correction(inputs: int, config: KrigingNetwork) -> MLP:
    """Return the branch's perceptron, zero at first: training starts at the linear operator."""
    network = MLP(inputs, config.branch, config.output_modes, config.activation)
    with torch.no_grad():
        *_, weight, bias = network.parameters()
        weight.zero_()
        bias.zero_()
    return network


class KarhunenLoeveModel(OperatorModel):
    """Bases of inputs and outputs, the least-squares operator between them, and h(O)."""

    kappa_mean: Tensor
    kappa_factor: Tensor
    to_a: Tensor
    nugget: Tensor
    u_mean: Tensor
    u_modes: Tensor
    scale: Tensor
    start_weight: Tensor

    def __init__(self, problem: str, config: KrigingNetwork, noise_std: float) -> None:
        super().__init__(problem, config, noise_std)
        self.config: KrigingNetwork = config
        r, p = config.input_modes, config.output_modes
        self.training_grid, _ = self.problem.training_grid()
        n, points = self.problem.grid.size, self.training_grid.size

        def double(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64)

        self._ready: tuple[Functions, dict[str, Tensor]] | None = None
        self.register_buffer("kappa_mean", double(n))
        # Single precision halves the weight file; rounding is far below what r modes leave out.
        self.register_buffer("kappa_factor", torch.zeros(n, r))
        # Of training only, and double: a mode of 1e-6 times the first one's size is told from it.
        self.register_buffer("to_a", double(n, r), persistent=False)
        self.register_buffer("nugget", double())
        self.register_buffer("u_mean", double(points))
        self.register_buffer("u_modes", torch.zeros(points, p))
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("start_weight", torch.zeros(p, r))

    def fit_constants(self, functions: Functions) -> None:
        """Set both bases, and the linear branch by least squares (training data only)."""
        field, u = functions.field_rows(), functions.u_rows
        inputs = empirical_modes(field, self.config.input_modes, "network.input_modes")
        outputs = empirical_modes(u, self.config.output_modes, "network.output_modes")
        self.kappa_mean.copy_(inputs.mean)
        # Modes below the rounding of stored data carry nothing and must not be divided by.
        seen = inputs.std > 1e-6 * inputs.std[0]
        self.kappa_factor.copy_(inputs.vectors * inputs.std * seen)
        self.to_a.copy_(inputs.vectors / inputs.std.clamp_min(1e-300) * seen)
        self.nugget.fill_(inputs.remainder)
        self.u_mean.copy_(outputs.mean)
        self.u_modes.copy_(outputs.vectors)
        self.scale.fill_(float(outputs.std.norm()))
        if self.config.linear_skip:
            # Standardised coefficients are uncorrelated: normal equations lose no accuracy.
            self.start_weight.copy_(least_squares(self._keeping(functions)).T)

    def coefficients(self, functions: Functions) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield standardised coefficients of inputs (B, r) and outputs (B, p), float64."""
        modes = self.u_modes.double()
        for kappa, u in functions.blocks():
            field = self.problem.transform.forward(kappa.double()) - self.kappa_mean
            yield field @ self.to_a, (u.double() - self.u_mean) @ modes / self.scale

    def _keeping(self, functions: Functions) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield `coefficients` and keep them for `targets`: a pass over the data takes long."""
        a = torch.empty(functions.size, self.config.input_modes)
        c = torch.empty(functions.size, self.config.output_modes)
        first = 0
        for left, right in self.coefficients(functions):
            rows = slice(first, first + len(left))
            a[rows], c[rows] = left, right
            first += len(left)
            yield left, right
        self._ready = functions, {"a": a, "c": c}

    def targets(self, functions: Functions) -> dict[str, Tensor]:
        """Return standardised coefficients of inputs (N, r) and outputs (N, p)."""
        if self._ready is None or self._ready[0] is not functions:
            deque(self._keeping(functions), maxlen=0)
        assert self._ready is not None
        (_, found), self._ready = self._ready, None
        return found

    def basis(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Return output mean (M,) and modes (M, p) at queries, float64."""
        stacked = torch.cat([self.u_mean[:, None], self.u_modes * self.scale.double()], dim=1)
        values = self.training_grid.interpolate(stacked, queries)
        return values[:, 0], values[:, 1:]

    def input_law(self, observations: Observations, noise_std: float) -> GaussianLaw:
        """Return h(O): the law of the input's coefficients given observations, float64."""
        ready = observations.to(torch.float64, self.kappa_mean.device)
        stacked = torch.cat([self.kappa_mean[:, None], self.kappa_factor], dim=1)
        at_sensors = self.problem.grid.interpolate(stacked, ready.locations)
        residual = self.problem.transform.forward(ready.values) - at_sensors[..., 0]
        # What the modes leave out acts as observation noise; without it, close sensors would
        # ask the leading modes to explain rounding.
        level = float((noise_std**2 + self.nugget**2) ** 0.5)
        return condition(at_sensors[..., 1:], residual, level, ready.mask)

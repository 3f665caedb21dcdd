"""Two predictors without networks that every learned model must beat.

`SensorFree` ignores the sensors: prior mean and spread of u. `Cokriging` is the best linear
predictor: sensor values of the transformed input and u as one Gaussian, moments from the training
pairs. Both answer `condition` as a trained model does.
"""

from __future__ import annotations

import torch
from torch import Tensor

from uqsonet.data import Functions
from uqsonet.errors import ConfigError
from uqsonet.gaussian import covariance_root
from uqsonet.models.karhunen_loeve import KarhunenLoeveBases
from uqsonet.models.random_operator import residual_covariance
from uqsonet.modes import empirical_modes
from uqsonet.posterior import GaussianPosterior, Posterior

INPUT_MODES, OUTPUT_MODES = 256, 64
"""At most; modes below the rounding of the data are left out by themselves."""


class SensorFree:
    """The law of u without any observation, as a Gaussian on the leading modes of u."""

    def __init__(self, functions: Functions, noise_std: float) -> None:
        self.fields = functions.fields
        self._training_grid, _ = self.fields.training_grid()
        count = min(OUTPUT_MODES, functions.size - 1, self._training_grid.size)
        modes = empirical_modes(functions.u_rows, count, "output modes")
        self._stacked = torch.cat([modes.mean[:, None], modes.vectors], dim=1)
        self._root = torch.diag(modes.std)

    def _basis(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        values = self._training_grid.interpolate(self._stacked, queries)
        return values[:, 0], values[:, 1:]

    def condition(
        self, locations: object, values: object, mask: object = None, noise_std: float | None = None
    ) -> Posterior:
        """Return the prior law of u, once per observation set."""
        observations, single = self.fields.input.observations(locations, values, mask)
        size = len(observations.values)
        mean = torch.zeros(size, len(self._root), dtype=torch.float64)
        root = self._root.expand(size, -1, -1)
        return GaussianPosterior(self.fields.output.grid, self._basis, single, mean, root)


class Cokriging:
    """Joint Gaussian of the transformed input and u, conditioned on the sensors in closed form."""

    def __init__(self, functions: Functions, noise_std: float) -> None:
        most = functions.size - 1
        self.fields, self._noise_std = functions.fields, noise_std
        self._bases = KarhunenLoeveBases(
            functions.fields,
            min(INPUT_MODES, most, functions.kappa_rows.shape[1]),
            min(OUTPUT_MODES, most, functions.u_rows.shape[1]),
        )
        self._bases.fit(functions)
        targets = self._bases.targets(functions)
        self._bases.forget()
        self._weight = self._bases.linear_weight.double()
        unexplained = residual_covariance(targets["a"], targets["c"], self._weight)
        self._remainder = covariance_root(unexplained)

    def condition(
        self, locations: object, values: object, mask: object = None, noise_std: float | None = None
    ) -> Posterior:
        """Return the Gaussian law of u given sensors."""
        observations, single = self.fields.input.observations(locations, values, mask)
        level = self._noise_std if noise_std is None else noise_std
        law = self._bases.input_law(observations, level)
        mean = law.mean @ self._weight.T
        explained = law.spread(self._weight)
        root = torch.cat([explained, self._remainder.expand(len(mean), -1, -1)], dim=-1)
        basis = self._bases.output_basis
        return GaussianPosterior(self.fields.output.grid, basis, single, mean, root)


def build_baseline(name: str, functions: Functions, noise_std: float) -> SensorFree | Cokriging:
    """Return the baseline called `sensor_free` or `cokriging`, fitted to training pairs."""
    if name == "sensor_free":
        return SensorFree(functions, noise_std)
    if name == "cokriging":
        return Cokriging(functions, noise_std)
    raise ConfigError(f"baseline {name!r} is unknown; there are sensor_free and cokriging")

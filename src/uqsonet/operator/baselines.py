"""Predictors without networks: cokriging, the best linear one, and the law of the pairs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from uqsonet.gauss.gaussian import condition, covariance_root, sensor_noise
from uqsonet.gauss.posterior import GaussianPosterior, Posterior
from uqsonet.laws.bases import KarhunenLoeveBases
from uqsonet.operator.closed_form import fit_bases, residual_covariance, targets
from uqsonet.runs.functions import Functions
from uqsonet.sensors.sensors import Sensors, checked_sensors

if TYPE_CHECKING:
    from uqsonet.operator.joint import JointPosterior, Readings

INPUT_MODES, OUTPUT_MODES = 256, 64
"""Maximum numbers of modes. Modes below the rounding of the data are always left out."""


class Cokriging:
    """Joint Gaussian of the transformed input and u, conditioned on the sensors in closed form."""

    reads_functionals = True

    def __init__(self, functions: Functions, noise_std: float) -> None:
        most = functions.size - 1
        bases = KarhunenLoeveBases(
            functions.fields,
            min(INPUT_MODES, most, functions.kappa_rows.shape[1]),
            min(OUTPUT_MODES, most, functions.u_rows.shape[1]),
        )
        fit_bases(bases, functions)
        self._set(bases, unexplained_root(bases, functions), noise_std)

    @classmethod
    def on(cls, bases: KarhunenLoeveBases, remainder: Tensor, noise_std: float = 0.0) -> Self:
        """Return cokriging on bases that are fitted already, with `unexplained_root` of them."""
        cokriging = cls.__new__(cls)
        cokriging._set(bases, remainder, noise_std)
        return cokriging

    def _set(self, bases: KarhunenLoeveBases, remainder: Tensor, noise_std: float) -> None:
        """Set the bases and the root of what their linear operator leaves unexplained."""
        self.fields, self.bases, self._noise_std = bases.fields, bases, noise_std
        self._weight, self.remainder = bases.linear_weight.double(), remainder.double()

    def condition(
        self, locations: object, values: object, mask: object = None, noise_std: object = None
    ) -> Posterior:
        """Return the Gaussian law of u given sensors."""
        return self.condition_on(
            checked_sensors(self.fields.input, locations, values, mask, noise_std)
        )

    def condition_on(self, sensors: Sensors) -> Posterior:
        """Return the Gaussian law of u given checked sensors."""
        law = self.bases.input_law(sensors, self._noise_std)
        mean = law.mean @ self._weight.T
        explained = law.spread(self._weight)
        root = torch.cat([explained, self.remainder.expand(len(mean), -1, -1)], dim=-1)
        basis = self.bases.output_basis
        return GaussianPosterior(self.fields.output.grid, basis, sensors.single, mean, root)

    def condition_jointly(self, inputs: Readings, outputs: Readings) -> JointPosterior:
        """Return the Gaussian law of both sides given sensors of both (`uqsonet.operator.joint`).

        What the linear operator leaves unexplained is conditioned on sensors of u, too.
        """
        from uqsonet.operator.joint import both_sides

        return self.condition_both(*both_sides(self.fields, inputs, outputs))

    def condition_both(self, seen: Sensors, read: Sensors) -> JointPosterior:
        """Return the Gaussian law of both sides given checked sensors of both."""
        from uqsonet.operator.joint import JointPosterior

        bases, batch, single = self.bases, len(seen), seen.single
        rows, residual = bases.at_sensors(seen)
        r, p = rows.shape[2], len(self._weight)
        offset, basis = bases.output_at(read)
        both = torch.cat([self._weight, self.remainder], 1)  # u's coefficients by (a, z)
        rows = torch.cat([torch.nn.functional.pad(rows, [0, p]), basis @ both], 1)
        residual = torch.cat([residual, read.values - offset], 1)
        noise = sensor_noise(seen.noise(self._noise_std), bases.input_remainder, norm=seen.norm(2))
        law = condition(
            rows,
            residual,
            torch.cat([noise, read.noise()], 1),
            torch.cat([seen.mask, read.mask], 1),
        )
        laws: list[Posterior] = []
        for grid, basis_of, weight in (
            (self.fields.input.grid, bases.input_basis, torch.eye(r, r + p, dtype=torch.float64)),
            (self.fields.output.grid, bases.output_basis, both),
        ):
            mean, root = law.mean @ weight.T, law.spread(weight)
            laws.append(GaussianPosterior(grid, basis_of, single, mean, root))
        exact = torch.full((batch,), torch.inf, dtype=torch.float64)
        return JointPosterior(laws[0], laws[1], exact, torch.ones_like(exact))


class Unread(Cokriging):
    """The Gaussian law of the training pairs, whatever sensors read."""

    def condition_on(self, sensors: Sensors) -> Posterior:
        """Return the law of u without any sensor, once for each set."""
        return super().condition_on(_blind(sensors))

    def condition_both(self, seen: Sensors, read: Sensors) -> JointPosterior:
        """Return the law of both sides without any sensor, once for each set."""
        return super().condition_both(_blind(seen), _blind(read))


def _blind(sensors: Sensors) -> Sensors:
    return replace(sensors, mask=torch.zeros_like(sensors.mask))


def unexplained_root(bases: KarhunenLoeveBases, functions: Functions) -> Tensor:
    """Return a root (p, p) of the covariance that the linear operator leaves of training pairs."""
    pairs = targets(bases, functions)
    weight = bases.linear_weight.double()
    return covariance_root(residual_covariance(pairs["a"], pairs["c"], weight))

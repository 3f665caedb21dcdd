"""Predictors without networks: cokriging, the best linear one, and the law of the pairs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from uqsonet.gauss.gaussian import GaussianLaw, condition, covariance_root, sensor_noise
from uqsonet.gauss.posterior import GaussianPosterior, Posterior
from uqsonet.laws.bases import KarhunenLoeveBases
from uqsonet.operator.base import SAMPLES, EitherSide
from uqsonet.operator.closed_form import fit_bases, residual_covariance, sized_bases, targets
from uqsonet.runs.functions import Functions
from uqsonet.sensors.sensors import Sensors

if TYPE_CHECKING:
    from uqsonet.operator.joint import JointPosterior


class Cokriging(EitherSide):
    """Joint Gaussian of the transformed input and u, conditioned on the sensors in closed form."""

    def __init__(self, functions: Functions, noise_std: float) -> None:
        bases = sized_bases(functions)
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
        self.remainder = remainder.double()
        # Coefficients of u by (a, z): of the input, and of what is unexplained.
        self._both = torch.cat([bases.linear_weight.double(), self.remainder], 1)

    def condition_on(self, sensors: Sensors) -> Posterior:
        """Return the Gaussian law of u given checked sensors."""
        return self._side("output", self._law(sensors, None), sensors.single)

    def condition_both(self, seen: Sensors, read: Sensors, size: int = SAMPLES) -> JointPosterior:
        """Return the Gaussian law of both sides given checked sensors of both.

        What the linear operator leaves unexplained is conditioned on sensors of u, too.
        """
        from uqsonet.operator.joint import JointPosterior

        law = self._law(seen, read)
        input, output = (self._side(side, law, seen.single) for side in ("input", "output"))
        exact = torch.full((len(seen),), torch.inf, dtype=torch.float64)
        return JointPosterior(input, output, exact, torch.ones_like(exact))

    def _law(self, seen: Sensors, read: Sensors | None) -> GaussianLaw:
        """Return the law of the coefficients (a, z)."""
        bases = self.bases
        rows, residual = bases.at_sensors(seen)
        rows = torch.nn.functional.pad(rows, [0, len(self.remainder)])
        noise = sensor_noise(seen.noise(self._noise_std), bases.input_remainder, norm=seen.norm(2))
        mask = seen.mask
        if read is not None:
            offset, basis = bases.output_at(read)
            rows = torch.cat([rows, basis @ self._both], 1)
            residual = torch.cat([residual, read.values - offset], 1)
            noise, mask = torch.cat([noise, read.noise()], 1), torch.cat([mask, read.mask], 1)
        return condition(rows, residual, noise, mask)

    def _side(self, side: str, law: GaussianLaw, single: bool) -> Posterior:
        """Return the law of one side from that of (a, z)."""
        grid, basis = getattr(self.fields, side).grid, getattr(self.bases, f"{side}_basis")
        p, both = self._both.shape
        weight = self._both if side == "output" else torch.eye(both - p, both, dtype=torch.float64)
        return GaussianPosterior(grid, basis, single, law.mean @ weight.T, law.spread(weight))


class Unread(Cokriging):
    """The Gaussian law of the training pairs, whatever sensors read."""

    def condition_on(self, sensors: Sensors) -> Posterior:
        """Return the law of u without any sensor, once for each set."""
        return super().condition_on(_blind(sensors))

    def condition_both(self, seen: Sensors, read: Sensors, size: int = SAMPLES) -> JointPosterior:
        """Return the law of both sides without any sensor, once for each set."""
        return super().condition_both(_blind(seen), _blind(read))


def _blind(sensors: Sensors) -> Sensors:
    return replace(sensors, mask=torch.zeros_like(sensors.mask))


def unexplained_root(bases: KarhunenLoeveBases, functions: Functions) -> Tensor:
    """Return a root (p, p) of the covariance that the linear operator leaves of training pairs."""
    pairs = targets(bases, functions)
    weight = bases.linear_weight.double()
    return covariance_root(residual_covariance(pairs["a"], pairs["c"], weight))

"""Answers without a learned operator: what a model must not be worse than, and may be answered by.

Cokriging is the best linear predictor; the mean of the runs is the same law that reads nothing.
`uqsonet.fitting.choose_answer` compares them, and regression on the pairs, with a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Self

import torch
from torch import Tensor

from uqsonet.errors import DataError
from uqsonet.gauss.gaussian import GaussianLaw, condition, sensor_noise
from uqsonet.gauss.given import ClosedForm
from uqsonet.gauss.posterior import Joint, Posterior
from uqsonet.laws.bases import KarhunenLoeveBases
from uqsonet.operator.base import SAMPLES, Conditioned
from uqsonet.operator.closed_form import fit_bases, sized_bases, targets, with_left_over
from uqsonet.operator.regression import Regression
from uqsonet.runs.functions import Functions
from uqsonet.sensors.sensors import Sensors


class Cokriging(Conditioned):
    """Joint Gaussian of the transformed input and u, conditioned on the sensors in closed form."""

    reads_functionals = True
    method = "cokriging"
    """Under the name ``mean`` it is the law of the runs: cokriging that reads nothing."""

    pairs: Mapping[str, Tensor] = MappingProxyType({})
    """It keeps none."""

    def __init__(self, functions: Functions, noise_std: float) -> None:
        bases = sized_bases(functions)
        fit_bases(bases, functions)
        both = with_left_over(bases.linear_weight, targets(bases, functions))
        self._set(bases, both, noise_std)

    @classmethod
    def on(cls, bases: KarhunenLoeveBases, both: Tensor, method: str = "cokriging") -> Self:
        """Return cokriging on bases that are fitted already: `with_left_over` of an operator."""
        cokriging = cls.__new__(cls)
        cokriging._set(bases, both, 0.0)
        cokriging.method = method
        return cokriging

    def _set(self, bases: KarhunenLoeveBases, both: Tensor, noise_std: float) -> None:
        """Set the bases, the linear operator, and the root of what it leaves unexplained."""
        self.fields, self.bases, self._noise_std = bases.fields, bases, noise_std
        # Coefficients of u by (a, z): of the input, and of what is unexplained.
        self._both = both.double()

    def condition_on(
        self, seen: Sensors, read: Sensors | None = None, noise: object = None, size: int = SAMPLES
    ) -> Joint:
        """Return the Gaussian law of both sides given checked sensors of both.

        What the linear operator leaves unexplained is conditioned on sensors of u, too.
        """
        self.require_gaussian(noise)
        law = self._law(seen, read)
        output, input = (self._side(side, law, seen.single) for side in ("output", "input"))
        return Joint.exact(output, input, len(seen))

    def _law(self, seen: Sensors, read: Sensors | None) -> GaussianLaw:
        """Return the law of the coefficients (a, z)."""
        bases = self.bases
        if self.method == "mean":
            seen, read = replace(seen, mask=torch.zeros_like(seen.mask)), None
        rows, residual = bases.at_sensors(seen)
        rows = torch.nn.functional.pad(rows, [0, len(self._both)])
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
        return Posterior(grid, basis, single, ClosedForm(law, weight))


PLAIN = "regression", "cokriging", "mean"
"""Names of what may answer in place of a model."""


def plain(name: str, model: Any, linear: Tensor, pairs: Mapping[str, Tensor]) -> Conditioned:
    """Return what answers in place of a model, in its bases.

    Parameters
    ----------
    name : str
        One of `PLAIN`; another one is a `DataError`.
    model : KarhunenLoeveModel
    linear : Tensor, shape (p, r + p)
        The best linear operator, and the root of what it leaves (`with_left_over`).
    pairs : mapping of str to Tensor
        Coefficients ``a`` and ``c`` of training pairs; regression needs them.
    """
    if name not in PLAIN:
        raise DataError(f"no answer by {name!r}; there are {', '.join(PLAIN)}")
    if name == "regression":
        return Regression(model.bases, pairs["a"], pairs["c"], model.output_error())
    return Cokriging.on(model.bases, linear, name)

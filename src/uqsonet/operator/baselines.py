"""Predictors without networks, and what answers: a model, or what it must not be worse than.

Cokriging is the best linear predictor. Held-out runs say what is best for some numbers of sensors
(`uqsonet.fitting.choose_answer`). Others are answered by what is best for the nearest of these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from uqsonet.errors import DataError
from uqsonet.gauss.gaussian import GaussianLaw, condition, sensor_noise
from uqsonet.gauss.given import ClosedForm
from uqsonet.gauss.posterior import Joint, Posterior
from uqsonet.laws.bases import KarhunenLoeveBases
from uqsonet.operator.base import SAMPLES, Conditioned
from uqsonet.operator.closed_form import fit_bases, sized_bases, targets, unexplained_root
from uqsonet.operator.local_regression import (
    MAX_LOCAL_PAIRS,
    MIN_LOCAL_PAIRS,
    LocalRegression,
)
from uqsonet.operator.regression import KernelRegression, first_pairs
from uqsonet.runs.functions import Functions
from uqsonet.sensors.sensors import Sensors

if TYPE_CHECKING:
    from uqsonet.fields.operator_fields import OperatorFields


SIDES = ("inputs", "outputs")
"""What sensors read: inputs alone, or outputs, too."""

Choice = Mapping[str, Mapping[int, str]]
"""For each of `SIDES` and each number of sensors that was tried the name of what answers."""


class Cokriging(Conditioned):
    """Joint Gaussian of the transformed input and u, conditioned on the sensors in closed form."""

    method, reads_functionals = "cokriging", True

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

    def condition_on(
        self, seen: Sensors, read: Sensors | None = None, noise: object = None, size: int = SAMPLES
    ) -> Joint:
        """Return the Gaussian law of both sides given checked sensors of both.

        What the linear operator leaves unexplained is conditioned on sensors of u, too.
        """
        law = self._law(seen, read)
        output, input = (self._side(side, law, seen.single) for side in ("output", "input"))
        return Joint.exact(output, input, len(seen))

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
        return Posterior(grid, basis, single, ClosedForm(law, weight))


class Unread(Cokriging):
    """The Gaussian law of the training pairs, whatever sensors read."""

    def _law(self, seen: Sensors, read: Sensors | None) -> GaussianLaw:
        """Return the law of the coefficients without any sensor, once for each set."""
        return super()._law(replace(seen, mask=torch.zeros_like(seen.mask)), None)


def kept_pairs(bases: KarhunenLoeveBases, functions: Functions) -> dict[str, Tensor]:
    """Return what `candidates` regresses on: pairs, and coefficients where there are many."""
    inputs, outputs = first_pairs(functions)
    kept = {"inputs": inputs, "outputs": outputs}
    if functions.size >= MIN_LOCAL_PAIRS:
        kept |= {name: one[:MAX_LOCAL_PAIRS] for name, one in targets(bases, functions).items()}
    return kept


def candidates(model: Any, unexplained: Tensor, pairs: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return what may answer in the bases of a model, by name, the model first.

    Parameters
    ----------
    model : KarhunenLoeveModel
    unexplained : Tensor, shape (p, p)
        Root of the covariance that its best linear operator leaves (`unexplained_root`).
    pairs : mapping of str to Tensor
        Training pairs (`kept_pairs`); without them there is no regression.
    """
    named: dict[str, Any] = {"uqsonet": model}
    if "inputs" in pairs:
        named["kernel_regression"] = KernelRegression(
            model.bases, pairs["inputs"], pairs["outputs"]
        )
    if "a" in pairs:
        named["local_regression"] = LocalRegression(model.bases, pairs["a"], pairs["c"])
    named["cokriging"] = Cokriging.on(model.bases, unexplained)
    named["mean"] = Unread.on(model.bases, unexplained)
    return named


@dataclass(frozen=True)
class Floor:
    """An operator that answers by one of several, as the number of sensors asks for.

    Attributes
    ----------
    operators : dict of str to operator
        The model (``uqsonet``) and those of its `candidates` that answer some number of sensors.
    choice : dict
        See `Choice`.
    """

    operators: dict[str, Any]
    choice: Choice

    @classmethod
    def of(
        cls, model: Any, unexplained: Tensor, pairs: Mapping[str, Tensor], choice: Choice
    ) -> Floor:
        """Return the model and what answers in its place (parameters as of `candidates`).

        Raises
        ------
        DataError
            If there is no such answer.
        """
        named = candidates(model, unexplained, pairs)
        taken = {name for of_side in choice.values() for name in of_side.values()}
        if wrong := taken - named.keys():
            raise DataError(f"no answer by {', '.join(sorted(wrong))}")
        if not all(count > 0 for of_side in choice.values() for count in of_side):
            raise DataError("answers are for one sensor or more")
        kept = {k: one for k, one in named.items() if k in taken or k == "uqsonet"}
        return cls(kept, choice)

    @property
    def fields(self) -> OperatorFields:
        """Fields of the model."""
        return self.operators["uqsonet"].fields

    def answers(self, side: str, count: int) -> Any:
        """Return the operator that answers so many sensors of a side."""
        known = self.choice.get(side)
        if not count or not known:
            return self.operators["uqsonet"]
        nearest = min(known, key=lambda tried: (abs(math.log(tried / count)), tried))
        return self.operators[known[nearest]]

    def condition_on(
        self, seen: Sensors, read: Sensors | None = None, noise: object = None, size: int = SAMPLES
    ) -> Joint:
        """Return the law of both sides given checked sensors of both."""
        reads = torch.zeros_like(seen.counts) if read is None else read.counts
        counts = zip(seen.counts.tolist(), reads.tolist(), strict=True)
        by_set = [self.answers(SIDES[reads > 0], sees + reads) for sees, reads in counts]
        if all(one is by_set[0] for one in by_set):
            return by_set[0].condition_on(seen, read)
        alone = [
            one.condition_on(seen.alone(b), None if read is None else read.alone(b))
            for b, one in enumerate(by_set)
        ]
        return Joint.together(alone)

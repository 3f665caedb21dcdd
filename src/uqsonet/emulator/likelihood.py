"""Noise that is not Gaussian, between readings as users state them and as a model has them.

The scale of `Student` is each sensor's `noise_std`, in the transformed field. A function
``f(predicted (S, m), readings (m,)) -> (S,)`` has all readings together, in the fields' own units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import ObservationError
from uqsonet.sensors.sensors import Sensors, field_number

Emulator = Any  # `uqsonet.emulator.emulator.Emulator`, whose methods call this file


@dataclass(frozen=True)
class Student:
    """Student's t: a few readings may be far off. `noise_std` is the scale, not the std.

    Attributes
    ----------
    df : float
        Degrees of freedom, positive; the fewer, the more outliers.
    """

    df: float = 4.0

    def __post_init__(self) -> None:
        if not isinstance(self.df, int | float) or not self.df > 0:
            raise ObservationError(f"df must be positive, found {self.df!r}")

    def log_density(self, off: Tensor) -> Tensor:
        """Return logarithms (S, m) of the density of distances (S, m), up to a constant."""
        return -(self.df + 1) / 2 * (off.square() / self.df).log1p()


Likelihood = Student | Callable[[Any, Any], Any]
"""A law of single readings, or a function of all of them."""

Likelihoods = Likelihood | Mapping[int, Likelihood | None]
"""One law of all readings, or one for fields by number; the noise of others is Gaussian."""


def _likelihood_of(stated: object) -> Likelihood | None:
    """Return the likelihood that a user stated by name, as an object or a function."""
    if stated is None or stated == "gaussian":
        return None
    if stated == "student":
        return Student()
    if isinstance(stated, str) and stated in ("laplace", "uniform"):
        raise ObservationError(
            f"there is no likelihood {stated!r} any more: a function is one line (docs/inverse.md)"
        )
    if isinstance(stated, type) or not (isinstance(stated, Student) or callable(stated)):
        raise ObservationError(
            "likelihood must be 'student', Student(df=4) or a function f(predicted, readings); "
            f"found {stated!r:.60}"
        )
    return stated


def likelihoods_of(operator: Emulator, sets: Sensors, stated: object) -> Likelihoods | None:
    """Return the laws of noise that a user stated, None where all are Gaussian.

    It raises `ObservationError` if a law or field is unknown, or a sensor has no noise.
    """
    fields = operator.named_fields
    laws: Likelihoods | None
    if isinstance(stated, Mapping):
        numbers = {field_number(fields, k, "likelihood: field"): one for k, one in stated.items()}
        laws = {number: _likelihood_of(one) for number, one in numbers.items()}
        laws = laws if any(laws.values()) else None
    else:
        laws = _likelihood_of(stated)
    if laws is None:
        return None
    for number, one in enumerate(fields):
        level = sets.noise_std[sets.mask & (sets.field == number)]
        if bool((level.nan_to_num(nan=operator.default_noise(number)) <= 0).any()):
            raise ObservationError(
                f"a likelihood needs sensors with noise: give a positive noise_std for {one.name}"
            )
    return laws


@dataclass(frozen=True)
class NamedNoise:
    """The noise of one set of sensors (`uqsonet.operator.joint.ReadingNoise`)."""

    operator: Emulator
    sensors: Sensors  # one set as users have it
    laws: Likelihoods
    place: Tensor  # (m,), place of each sensor among those of inputs, then those of outputs
    levels: Tensor  # (m,), stated noise as the model has it

    @classmethod
    def of(cls, operator: Emulator, one: Sensors, laws: Likelihoods) -> NamedNoise:
        """Return the noise of one set without padding."""
        of_output = one.field[0] >= len(operator.inputs)
        place = of_output.long().argsort(stable=True).argsort()
        levels = one.noise_std[0].clone()
        for number, field in enumerate(operator.named_fields):
            here = one.field[0] == number
            level = levels[here].nan_to_num(nan=operator.default_noise(number))
            levels[here] = level / (field.scale if operator.encoded else 1.0)
        return cls(operator, one, laws, place, levels)

    def _groups(self) -> list[tuple[Likelihood | None, Tensor]]:
        """Return each law with the numbers of its sensors."""
        number = self.sensors.field[0]
        if not isinstance(self.laws, Mapping):
            return [(self.laws, torch.arange(len(number)))]
        return [(self.laws.get(k), (number == k).nonzero()[:, 0]) for k in number.unique().tolist()]

    def log_likelihood(self, off: Tensor) -> Tensor:
        """Return log-likelihoods (S,) of readings that are off (S, m) from what is predicted."""
        off = off[:, self.place]
        total = torch.zeros(len(off), dtype=torch.float64)
        for law, here in self._groups():
            white = off[:, here] / self.levels[here]
            if law is None:
                total -= white.square().sum(1) / 2
            elif isinstance(law, Student):
                total += law.log_density(white).sum(1)
            else:
                total += self._asked(law, off[:, here], here)
        return total

    def _predicted(self, off: Tensor, here: Tensor) -> Tensor:
        """Return what some sensors are predicted to read (S, m), in the units of their fields."""
        readings, number = self.sensors.values[0, here], self.sensors.field[0, here]
        predicted = torch.zeros_like(off)
        for k in number.unique().tolist():
            one = self.operator.named_fields[k]
            predicted = torch.where(number == k, one.decode(one.encode(readings) - off), predicted)
        return predicted

    def _asked(self, law: Any, off: Tensor, here: Tensor) -> Tensor:
        """Return what a function of predicted and real readings, in the fields' units, gives."""
        readings, predicted = self.sensors.values[0, here], self._predicted(off, here)
        plain = self.sensors.kind == "numpy"
        found = law(*((t.numpy() if plain else t) for t in (predicted, readings)))
        found = torch.as_tensor(np.asarray(found) if plain else found, dtype=torch.float64)
        if found.shape != (len(off),) or bool((found.isnan() | (found == torch.inf)).any()):
            raise ObservationError(
                f"the likelihood must return {len(off)} logarithms, finite or -inf, for predicted "
                f"readings of shape {tuple(off.shape)}; found shape {tuple(found.shape)}"
                + ("" if found.shape != (len(off),) else " with NaN or inf")
            )
        return found

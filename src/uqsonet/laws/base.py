"""The law of the input: one interface, so that the learned operator serves every law.

A law knows the input field through the bases of a model: at the points of the grid it is
``mean + factor a``, with standardised coefficients a. Given sensors it returns the law `Given`
these, whose samples the branch maps to the output.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from uqsonet.gauss.gaussian import condition, sensor_noise
from uqsonet.gauss.given import ClosedForm, Given
from uqsonet.laws.bases import InputSample, KarhunenLoeveBases
from uqsonet.sensors.sensors import Sensors

MIN_TAIL_NOISE = 0.01
"""Minimum noise that is assumed for the probability of values that a law cannot have, as a fraction
of the law's range or of the gap between its classes."""

MIN_LEVEL = 0.02  # least noise in the probability of sensors, as a share of the field's std

MAX_CLASSES = 6  # values that inputs take to count as classes


def classes_of(fields: Tensor) -> Tensor | None:
    """Return the values (K,) that inputs take, ascending; None where there are too many."""
    few = fields[:20].unique()
    if len(few) > MAX_CLASSES:
        return None
    values = fields.unique()
    return values.double() if 2 <= len(values) <= MAX_CLASSES else None


def farthest_tail(off: Tensor) -> Tensor:
    """Return the probability (1,) that noise moves one of m values as far as the farthest one.

    `off` (m,) is how far each is from what a law allows, in standard deviations of its noise.
    """
    if not len(off):
        return torch.ones(1, dtype=torch.float64)
    least = torch.special.erfc(off / math.sqrt(2)).amin()
    # The smallest of m probabilities is below p with probability 1 - (1 - p)^m.
    return -torch.expm1(len(off) * torch.log1p(-least.clamp_max(1 - 1e-15)))[None]


Layout = Mapping[str, tuple[str, torch.dtype]]
"""Axes and type of each of a law's tensors. Axes of the same letter have the same length, but for
``?``; those of a model's bases are n (points of the grid) and r (input modes). A name with a star
stands for all that begin so, of which there may be none."""


def require(tensors: Mapping[str, Tensor], layout: Layout, bases: KarhunenLoeveBases) -> None:
    """Refuse tensors that are not laid out so (`ValueError`, with what was found and is needed)."""
    expected = {}
    for name, kind in layout.items():
        start = name.removesuffix("*")
        same = [one for one in tensors if one.startswith(start)] if start != name else [name]
        expected |= dict.fromkeys(same, kind)
    if tensors.keys() != expected.keys():
        raise ValueError(f"it needs {', '.join(expected)}; found {', '.join(tensors) or 'none'}")
    sizes = dict(zip("nr", bases.input_factor.shape, strict=True))
    for name, (axes, dtype) in expected.items():
        shape, kind = tuple(tensors[name].shape), tensors[name].dtype
        fits = len(axes) == len(shape) and 0 not in shape and kind == dtype
        for axis, length in zip(axes, shape, strict=False):
            fits = fits and (axis == "?" or sizes.setdefault(axis, length) == length)
        if not fits:
            needed = ", ".join(f"{axis} = {sizes.get(axis, 'any')}" for axis in axes)
            raise ValueError(f"{name} is {kind} {shape}; allowed is {dtype} ({needed})")


class Linear(NamedTuple):
    """Linear functionals of the coefficients, ``residual = rows a + noise``, of noise one."""

    rows: Tensor  # (B, k, r), float64
    residual: Tensor  # (B, k), float64


class InputLaw(ABC):
    """A law of the transformed input, fitted to training inputs.

    Laws are worked out on the CPU in double precision, wherever the networks of the model are.
    """

    name: ClassVar[str]

    misfit: ClassVar[str] = "it has no answer to a held-out pair"
    """Why inputs may have no such law."""

    reads_functionals: ClassVar[bool] = True
    """Sensors may read weighted sums of values."""

    separate: ClassVar[bool] = False
    """With sensors of the output an answer takes so long that `fit` compares nothing."""

    ends: Tensor | None = None
    """Ends (n, 2) that the transformed field does not leave at each point, where a law has some."""

    @classmethod
    def fit(cls, sample: InputSample, seed: int) -> Self | None:
        """Return the law of training inputs; None where it does not fit them."""
        raise NotImplementedError

    @abstractmethod
    def condition(
        self, bases: KarhunenLoeveBases, sensors: Sensors, also: Linear | None = None
    ) -> Given | None:
        """Return the law of the coefficients given sensors.

        Parameters
        ----------
        bases : KarhunenLoeveBases
            Bases of the model that the law belongs to.
        sensors : Sensors
            Their noise is stated for each of them. What the law leaves out is added to it.
        also : Linear, optional
            Further readings. A law that has no closed form for them returns None.
        """

    def tail(self, bases: KarhunenLoeveBases, sensors: Sensors) -> Tensor | None:
        """Return the probability (B,) of values as far from the law as these; None if unknown."""
        given = self.condition(bases, sensors)
        return None if given is None else given.tail

    def tensors(self) -> dict[str, Tensor]:
        """Return what the law is made of, to be stored."""
        raise NotImplementedError

    @classmethod
    def of(cls, tensors: dict[str, Tensor], bases: KarhunenLoeveBases) -> Self:
        """Return the law that `tensors` were taken of; ValueError if there is no such law."""
        raise NotImplementedError


class NormalLaw(InputLaw):
    """The Gaussian law: standard normal coefficients, in closed form."""

    name = "gaussian"

    @classmethod
    def fit(cls, sample: InputSample, seed: int) -> Self:
        """Return the law: the modes hold all that it knows of the inputs."""
        return cls()

    def condition(
        self, bases: KarhunenLoeveBases, sensors: Sensors, also: Linear | None = None
    ) -> Given:
        """Return the Gaussian law of the coefficients."""
        if also is None:
            return ClosedForm(bases.input_law(sensors))
        rows, residual = (found.cpu() for found in bases.at_sensors(sensors))
        level = sensor_noise(sensors.noise(), float(bases.input_remainder), norm=sensors.norm(2))
        return ClosedForm(condition(*with_also(rows, residual, level, sensors.mask, also)))

    def tail(self, bases: KarhunenLoeveBases, sensors: Sensors) -> Tensor:
        """Return the probability (B,) of a squared distance from the mean as large as theirs."""
        rows, residual = (found.cpu() for found in bases.at_sensors(sensors))
        used, least = sensors.mask, MIN_LEVEL * bases.input_std()
        level = sensor_noise(sensors.noise(), float(bases.input_remainder), least)
        # Directions without sensors have a residual of zero: they add nothing.
        rows, residual = rows * used[..., None], torch.where(used, residual, 0.0)
        count = used.sum(1)
        p = torch.special.gammaincc(count / 2, _squared_distance(rows, residual, level) / 2)
        return torch.where(count > 0, p, 1.0)

    def tensors(self) -> dict[str, Tensor]:
        """Return nothing."""
        return {}


def _squared_distance(rows: Tensor, residual: Tensor, level: Tensor) -> Tensor:
    """Return ``y^T (H H^T + D)^-1 y`` (B,) of residuals y (B, m) with rows H (B, m, r).

    It is the least value of ``|y - H z|^2 / D + |z|^2`` over z, D being the square of the level.
    """
    rows, residual = rows / level[..., None], (residual / level)[..., None]
    few = rows.shape[1] <= rows.shape[2]
    square = rows @ rows.mT if few else rows.mT @ rows
    square.diagonal(0, 1, 2).add_(1.0)
    root = torch.linalg.cholesky(square)
    if few:
        white = torch.linalg.solve_triangular(root, residual, upper=False)
        return white.square().sum((1, 2))
    z = torch.cholesky_solve(rows.mT @ residual, root)
    return (residual - rows @ z).square().sum((1, 2)) + z.square().sum((1, 2))


def with_also(
    rows: Tensor, residual: Tensor, level: Tensor, mask: Tensor, also: Linear | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return rows (B, m, r), readings, noise and mask (B, m) of sensors with those of `also`."""
    if also is None:
        return rows, residual, level, mask
    one = torch.ones_like(also.residual)
    rows, residual = torch.cat([rows, also.rows], 1), torch.cat([residual, also.residual], 1)
    return rows, residual, torch.cat([level, one], 1), torch.cat([mask, one.bool()], 1)

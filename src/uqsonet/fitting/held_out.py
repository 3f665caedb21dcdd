"""Held-out pairs as sensors read them: what sizes, laws and whole models are scored on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import ConfigError
from uqsonet.fields.numbers import without_mask
from uqsonet.gauss.metrics import ascending, coverage, crps, gaussian_crps
from uqsonet.gauss.posterior import Posterior, spread
from uqsonet.gauss.seeds import numpy_generator
from uqsonet.sensors.sensors import Sensors

if TYPE_CHECKING:
    from uqsonet.emulator.named_operator import Operator
    from uqsonet.fields.field import Field
    from uqsonet.runs.functions import Functions

QUANTILES = 64
"""Number of quantiles behind the CRPS of an output under a transform."""

LEVELS = (0.5, 0.9)
"""Levels of the bands that choices look at."""

MOMENT_DRAWS = 512
"""Latent samples behind mean and spread of an answer that has no closed form."""


@dataclass(frozen=True)
class SensorPlan:
    """The sensors that models are scored with.

    Attributes
    ----------
    counts : tuple of int
        Numbers of sensors at random points, or (m,) for fixed places.
    fixed : Tensor of int, shape (m,), or None
        The points of the input at which all sensors stand.
    """

    counts: tuple[int, ...]
    fixed: Tensor | None = None

    @classmethod
    def of(cls, sensors: object, fields: Sequence[Field], points: Tensor) -> SensorPlan:
        """Return the plan for the argument `sensors` of `fit` and of `Emulator.validate`.

        Parameters
        ----------
        sensors : int, sequence of int, or array (m, d)
            Numbers of sensors, or places, each of which stands for the nearest point.
        fields : sequence of Field
            The inputs.
        points : Tensor, shape (n, d)
            Where sensors may stand.

        Raises
        ------
        ConfigError
            If it is neither, or a number is out of range.
        ObservationError
            If a place is outside the domain.
        """
        sensors = without_mask(sensors, "sensors", error=ConfigError)
        try:
            array = np.atleast_1d(np.asarray(sensors))
            array = array if array.dtype.kind in "iu" else array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"sensors: counts or places expected ({error})") from None
        if array.ndim == 1 and array.dtype.kind in "iu":
            counts = sorted({int(m) for m in array})
            if wrong := [m for m in counts if not 1 <= m <= len(points)]:
                raise ConfigError(
                    f"sensors: counts must be from 1 to {len(points)}, found {wrong[0]}"
                )
            return cls(tuple(counts))
        if len(fields) > 1:
            raise ConfigError("sensors: places need a single input field; give counts instead")
        domain, places = fields[0].domain, torch.from_numpy(array).double()
        places = places[:, None] if places.ndim == 1 else places
        if places.ndim != 2 or places.shape[1] != domain.dim or not len(places):
            raise ConfigError(
                f"sensors: counts, or places of shape (m, {domain.dim}), expected; "
                f"found {tuple(array.shape)}"
            )
        domain.require_inside(places)
        nearest = torch.cdist(places, points).argmin(1).unique()
        return cls((len(nearest),), nearest)

    def layouts(self, size: int, points: int, seed: int, *path: str) -> dict[int, Tensor]:
        """Return layouts (size, m) for each number m of sensors: numbers of `points` points.

        Random ones are drawn at this path of the seed tree (`uqsonet.gauss.seeds`).
        """
        if self.fixed is not None:
            return {self.counts[0]: self.fixed.expand(size, -1)}
        layouts = {}
        for count in self.counts:
            generator = numpy_generator(seed, *path, count)
            drawn = [generator.choice(points, count, replace=False) for _ in range(size)]
            layouts[count] = torch.from_numpy(np.stack(drawn))
        return layouts


def at_places(
    field: Field, functions: Tensor, places: Tensor, levels: Tensor, noise: np.random.Generator
) -> Sensors:
    """Return functions (N, n) of a field as sensors at its points (N, m) read them.

    `levels` (n,) is the noise of a sensor at each point, in the transformed field.
    """
    level = levels[places]
    error = level * torch.from_numpy(noise.standard_normal(places.shape))
    noisy = error if bool(level.any()) else None
    x, y = field.read(functions, places, noisy, field.domain.points())
    return Sensors(x, y.double(), torch.ones_like(y, dtype=torch.bool), noise_std=level)


def some_points(size: int, most: int, generator: np.random.Generator) -> Tensor:
    """Return the numbers of some of a field's points, at most so many, ascending."""
    return torch.from_numpy(np.sort(generator.permutation(size)[:most]))


def scores_of_samples(
    answer: Posterior, basis: tuple[Tensor, Tensor], truth: Tensor, size: int,
    generator: torch.Generator, levels: Sequence[float] = (),
) -> Tensor:  # fmt: skip
    """Return the CRPS of samples, and the shares of truths (B, k) in their bands, (1 + Q, B)."""
    rows = []
    for c, true in zip(answer.coefficient_samples(size, generator), truth, strict=True):
        ordered = ascending(basis[0] + c.double() @ basis[1].T)
        rows.append([crps(ordered, true), *coverage(ordered, true, levels)])
    return torch.tensor(rows, dtype=torch.float64).T


@dataclass(frozen=True)
class HeldOut:
    """Pairs that nothing was fitted to, as sensors read them, and the outputs to be answered.

    Attributes
    ----------
    sensors : dict of int to list of (Tensor, Sensors)
        For each number of sensors, the pairs in parts: their numbers, and their sensors.
    truths : list of (Tensor, Tensor)
        Points (k, d) of each output field, and its values (N, k) there.
    fields : list of (Field, Tensor of int, float)
        Outputs that are encoded by no linear map, which of the points are theirs, and the standard
        deviation of their values.
    """

    sensors: dict[int, list[tuple[Tensor, Sensors]]]
    truths: list[tuple[Tensor, Tensor]]
    fields: list[tuple[Field, Tensor, float]] = field(default_factory=list)

    @classmethod
    def read(
        cls, pairs: Functions, layouts: Mapping[int, Tensor], noise_std: float | Tensor,
        noise: Callable[[int], np.random.Generator], columns: np.random.Generator,
        max_points: int, part: int, outputs: Sequence[tuple[Field, Tensor, float]] = (),
    ) -> HeldOut:  # fmt: skip
        """Return pairs on a model's grids as sensors at grid points read them.

        Parameters
        ----------
        pairs : Functions
            Outputs on the training grid or on the full one.
        layouts : mapping of int to Tensor (N, m)
            Points of the input at which each pair's sensors stand, by their number.
        noise_std : float or Tensor, shape (n,)
            Noise of all sensors, or of those at each point of the input (transformed).
        noise : callable
            The generator of the noise of so many sensors.
        columns : numpy Generator
            Draws the output points that are scored.
        max_points, part : int
            Maximum number of these points; pairs that are conditioned together.
        outputs : sequence of (Field, Tensor, float)
            Outputs whose scores are to be of their own values, their columns, and the standard
            deviation of these values.
        """
        size = min(pairs.size, *(len(places) for places in layouts.values()))
        kappa, u = (rows.take(np.arange(size)) for rows in (pairs.kappa_rows, pairs.u_rows))
        inputs = kappa.whole()
        grid, kept = pairs.fields.training_grid()
        scored = some_points(grid.size, max_points, columns)
        truth = u.columns(scored if u.shape[1] == grid.size else kept[scored]).double()
        levels = torch.as_tensor(noise_std, dtype=torch.float64).expand(kappa.shape[1])
        sensors: dict[int, list[tuple[Tensor, Sensors]]] = {}
        for count, layout in layouts.items():
            places = layout[:size].long()
            every = at_places(pairs.fields.input, inputs, places, levels, noise(count))
            sensors[count] = [(rows, every[rows]) for rows in torch.arange(size).split(part)]
        fields = []
        for one, here, std in outputs:
            fields.append((one, torch.isin(scored, here).nonzero()[:, 0], std))
        return HeldOut(sensors, [(grid.points()[scored], truth)], fields)

    def __len__(self) -> int:
        return len(self.truths[0][1])

    def answers(
        self, model: Operator, count: int, size: int | None = None
    ) -> Iterator[tuple[Tensor, Posterior, tuple[Tensor, Tensor]]]:
        """Yield a model's answers to the first `size` pairs (to all of them by default), in parts.

        Yields
        ------
        truth : Tensor, shape (b, k)
        answer : Posterior
        basis : tuple of Tensor, shapes (k,) and (k, p)
            Values at the scored points are ``basis[0] + basis[1] @ coefficients``.
        """
        (points, truth), basis = self.truths[0], None
        for rows, sensors in self.sensors[count]:
            if size is not None and int(rows[-1]) >= size:
                return
            answer = model.condition_on(sensors)
            basis = basis or answer.basis(points)
            yield truth[rows], answer, basis

    def moments(
        self, model: Operator, count: int, draws: int = MOMENT_DRAWS
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield truth, mean and standard deviation (b, k) at the scored points, in parts."""
        for truth, answer, (offset, modes) in self.answers(model, count):
            mean, covariance = answer.coefficient_moments(draws)
            yield truth, offset + mean @ modes.T, spread(modes, covariance)

    def scores(self, model: Operator) -> Tensor:
        """Return the CRPS (counts, N) of Gaussian bands, averaged over the scored points."""
        rows = [
            [self._crps(*one).mean(1) for one in parts]
            for parts in (self.moments(model, count) for count in self.sensors)
        ]
        return torch.stack([torch.cat(row) for row in rows])

    def _crps(self, truth: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        """Return the CRPS (b, k) of Gaussian bands of encoded outputs, in standard deviations."""
        found = gaussian_crps(mean, std, truth)
        levels = (torch.arange(QUANTILES, dtype=torch.float64) + 0.5) / QUANTILES
        z = torch.special.ndtri(levels)[:, None, None]
        for one, here, size in self.fields:
            y, x = one.decode(truth[:, here]), one.decode(mean[:, here] + z * std[:, here])
            apart = ((2 * levels - 1)[:, None, None] * x).mean(0)
            found[:, here] = ((x - y).abs().mean(0) - apart) / size
        return found

    def errors(self, model: Operator) -> dict[int, float]:
        """Return the root mean square error of the mean by number of sensors."""
        errors = {}
        for count in self.sensors:
            parts = self.moments(model, count, MOMENT_DRAWS // 4)
            off = torch.cat([mean - truth for truth, mean, _ in parts])
            errors[count] = float(off.square().mean().sqrt())
        return errors

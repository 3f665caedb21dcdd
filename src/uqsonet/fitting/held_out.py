"""Held-out pairs as sensors read them, and how answers to them are scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import ConfigError
from uqsonet.fields.numbers import without_mask
from uqsonet.gauss.given import spread
from uqsonet.gauss.metrics import ascending, coverage, crps, gaussian_crps
from uqsonet.gauss.posterior import Posterior
from uqsonet.gauss.seeds import numpy_generator, restarted
from uqsonet.sensors.sensors import Sensors

if TYPE_CHECKING:
    from uqsonet.fields.field import Field
    from uqsonet.operator.base import Conditioned as Operator
    from uqsonet.runs.functions import Functions

QUANTILES = 64  # number of quantiles behind the CRPS of an output under a transform
LAYOUTS = 6  # number of layouts for each number of sensors; runs share them
LEVELS = (0.5, 0.9)  # levels of the bands that choices look at
MOMENT_DRAWS = 512  # latent samples behind mean and spread of an answer that has no closed form

MIN_SPAN = 0.01
"""Bands do not count at points where samples span a smaller share of their largest span: they hold
the value at a sensor without noise, whatever their level."""


@dataclass(frozen=True)
class SensorPlan:
    """The sensors that models are scored with."""

    counts: tuple[int, ...]  # numbers of sensors at random points, or (m,) for fixed places
    fixed: Tensor | None = None  # (m,), the points of the input at which all sensors stand

    @classmethod
    def of(cls, sensors: object, fields: Sequence[Field], points: Tensor) -> SensorPlan:
        """Return the plan for the argument `sensors` of `fit` and of `Emulator.validate`.

        That is one or several numbers of sensors, or places (m, d), each of which stands for the
        nearest of the points (n, d) of the inputs. What is neither, and a number out of range, is a
        `ConfigError`, a place outside the domain an `ObservationError`.
        """
        sensors = without_mask(sensors, "sensors", error=ConfigError)
        try:
            array = np.atleast_1d(np.asarray(sensors))
            if array.dtype.kind == "b":
                raise ValueError(f"found {sensors!r}")
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

    def layouts(self, size: int, points: int, seed: int, *path: str | int) -> dict[int, Tensor]:
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

    def shared(
        self, size: int, number: int, points: int, seed: int, *path: str | int
    ) -> tuple[dict[int, Tensor], Tensor]:
        """Return the same for runs that share so many of them, and which (size,) each run has.

        Places that are stated are no sample of layouts: there runs are independent.
        """
        if self.fixed is not None:
            return self.layouts(size, points, seed, *path), torch.arange(size)
        number = min(number, size)
        groups = torch.arange(size) * number // size
        drawn = self.layouts(number, points, seed, *path)
        return {count: one[groups] for count, one in drawn.items()}, groups


def some_points(size: int, most: int, generator: np.random.Generator) -> Tensor:
    """Return the numbers of some of a field's points, at most so many, ascending."""
    return torch.from_numpy(np.sort(generator.permutation(size)[:most]))


@dataclass(frozen=True)
class HeldOut:
    """Pairs that nothing was fitted to, as sensors read them, and the values to be answered.

    For each number of sensors there are the pairs in parts: their numbers, and their sensors.
    `truths` are points (k, d) of each field, and its values (N, k) there: outputs, and where
    sensors are of the output the input. `fields` are outputs that are encoded by no linear map,
    which of the points are theirs, and the standard deviation of their values.
    """

    sensors: dict[int, list[tuple[Tensor, Sensors]]]
    truths: list[tuple[Tensor, Tensor]]
    fields: list[tuple[Field, Tensor, float]] = field(default_factory=list)
    of_output: bool = False  # whether sensors read the output
    columns: list[Tensor] = field(default_factory=list)  # numbers of these points on the grids
    groups: Tensor = field(default_factory=lambda: torch.empty(0))  # (N,), equal for one layout

    @classmethod
    def read(
        cls, pairs: Functions, layouts: Mapping[int, Tensor], noise_std: float | Tensor,
        noise: Callable[[int], np.random.Generator], columns: np.random.Generator,
        max_points: int, part: int, outputs: Sequence[tuple[Field, Tensor, float]] = (),
        of_output: bool = False, groups: Tensor | None = None,
    ) -> HeldOut:  # fmt: skip
        """Return pairs on a model's grids as sensors at grid points read them.

        Parameters
        ----------
        pairs : Functions
            Outputs on the training grid or on the full one.
        layouts : mapping of int to Tensor (N, m)
            Points of the field at which each pair's sensors stand, by their number.
        noise_std : float or Tensor, shape (n,)
            Noise of all sensors, or of those at each point of the field (transformed).
        noise, columns : callable and numpy Generator
            `noise` returns the generator of the noise of so many sensors, `columns` draws the
            points that are scored.
        max_points, part : int
            Maximum number of these points; pairs that are conditioned together.
        outputs, of_output, groups
            `HeldOut.fields`, with columns of the output in place of points, and the others; by
            default each pair has a layout of its own.
        """
        size = min(pairs.size, *(len(places) for places in layouts.values()))
        kappa, u = (rows.take(np.arange(size)) for rows in (pairs.kappa_rows, pairs.u_rows))
        grid, kept = pairs.fields.training_grid()
        scored = some_points(grid.size, max_points, columns)
        truth = u.columns(scored if u.shape[1] == grid.size else kept[scored]).double()
        truths, read, functions = [(grid.points()[scored], truth)], pairs.fields.input, kappa
        columns_of = [scored]
        if of_output:
            some = some_points(kappa.shape[1], max_points, columns)
            truths.append((read.domain.points()[some], kappa.columns(some).double()))
            columns_of.append(some)
            read, functions = pairs.fields.output, u
        levels = torch.as_tensor(noise_std, dtype=torch.float64).expand(functions.shape[1])
        whole, points = functions.whole(), read.domain.points()
        sensors: dict[int, list[tuple[Tensor, Sensors]]] = {}
        for count, layout in layouts.items():
            places = layout[:size].long()
            level = levels[places]
            error = level * torch.from_numpy(noise(count).standard_normal(places.shape))
            x, y = read.read(whole, places, error if bool(level.any()) else None, points)
            every = Sensors(x, y.double(), torch.ones_like(y, dtype=torch.bool), noise_std=level)
            sensors[count] = [(rows, every[rows]) for rows in torch.arange(size).split(part)]
        fields = [
            (one, torch.isin(scored, here).nonzero()[:, 0], std) for one, here, std in outputs
        ]
        groups = torch.arange(size) if groups is None else groups[:size]
        return cls(sensors, truths, fields, of_output, columns_of, groups)

    def __len__(self) -> int:
        return len(self.truths[0][1])

    def answers(self, model: Any, count: int) -> Iterator[tuple[Tensor, list[Posterior]]]:
        """Yield a model's answers to the pairs, in parts.

        They are the numbers (b,) of these pairs, and the laws of the fields of `truths`.
        """
        for rows, sensors in self.sensors[count]:
            if self.of_output:
                joint = model.condition_on(sensors.each(lambda t: t[:, :0]), sensors)
                yield rows, [joint.output, joint.input]
            else:
                yield rows, [model.condition_on(sensors).output]

    def usual(self) -> list[float]:
        """Return about the CRPS that the mean of the runs has, for each field."""
        return [0.56 * float(truth.std(0).mean().clamp_min(1e-300)) for _, truth in self.truths]

    def sampled(self, model: Any, count: int, draws: int, generator: torch.Generator) -> Tensor:
        """Return the CRPS of sampled answers, and what their bands of `LEVELS` hold, (3, N).

        The CRPS of several fields is the mean, each relative to that of the mean of the runs, in
        units of the first.
        """
        usual, parts = self.usual(), []
        bases: list[tuple[Tensor, Tensor]] = []
        for rows, laws in self.answers(model, count):
            bases = bases or [law.basis(x) for law, (x, _) in zip(laws, self.truths, strict=True)]
            found = torch.empty(len(laws), 1 + len(LEVELS), len(rows), dtype=torch.float64)
            for k, law in enumerate(laws):
                truth = self.truths[k][1][rows]
                drawn = self._functions(k, law, bases[k], draws, generator)
                for row, functions in enumerate(drawn):
                    ordered = ascending(functions)
                    found[k, 0, row] = crps(ordered, truth[row]) * usual[0] / usual[k]
                    spans = ordered[:, -1] - ordered[:, 0]
                    counted = ~(spans < MIN_SPAN * spans.max())
                    held = coverage(ordered[counted], truth[row][counted], LEVELS)
                    found[k, 1:, row] = torch.tensor(held, dtype=torch.float64)
            found[0, 0] = found[:, 0].mean(0)
            parts.append(found[0])
        return torch.cat(parts, 1)

    def _functions(
        self, k: int, law: Posterior, basis: tuple[Tensor, Tensor], size: int,
        generator: torch.Generator,
    ) -> Iterator[Tensor]:  # fmt: skip
        """Yield functions (size, points) of each set at the scored points of a field.

        A law of whole fields is known by these: coefficients of rough ones are of any size.
        """
        for one in restarted(generator, [one for _, one in law.law.parts()]):
            if one.functions is not None:
                yield from (f[:, self.columns[k]].double() for f in one.functions(size, generator))
                continue
            for c in one.sample(size, generator):
                yield basis[0] + c.double() @ basis[1].T

    def scores(self, model: Operator) -> Tensor:
        """Return the CRPS (counts, N) of Gaussian bands, averaged over the scored points."""
        (points, truth), basis, rows = self.truths[0], None, []
        for count in self.sensors:
            parts = []
            for some, (answer,) in self.answers(model, count):
                offset, modes = basis = basis or answer.basis(points)
                mean, covariance = answer.law.moments(MOMENT_DRAWS)
                std = spread(modes, covariance)
                parts.append(self._crps(truth[some], offset + mean @ modes.T, std).mean(1))
            rows.append(torch.cat(parts))
        return torch.stack(rows)

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

"""Held-out pairs as sensors read them, and how answers to them are scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from uqsonet.gauss.given import spread
from uqsonet.gauss.metrics import MIN_SPAN, ascending, coverage, crps, gaussian_crps
from uqsonet.gauss.posterior import Posterior
from uqsonet.gauss.seeds import restarted
from uqsonet.sensors.sensors import Sensors

if TYPE_CHECKING:
    from uqsonet.fields.field import Field
    from uqsonet.operator.base import Conditioned as Operator
    from uqsonet.runs.functions import Functions

QUANTILES = 64  # number of quantiles behind the CRPS of an output under a transform
LAYOUTS = 6  # number of layouts for each number of sensors; runs share them
LEVELS = (0.5, 0.9)  # levels of the bands that choices look at
MOMENT_DRAWS = 512  # latent samples behind mean and spread of an answer that has no closed form


def some_points(size: int, most: int, generator: np.random.Generator) -> Tensor:
    """Return the numbers of some of a field's points, at most so many, ascending."""
    return torch.from_numpy(np.sort(generator.permutation(size)[:most]))


class Read(NamedTuple):
    """Held-out runs as sensors read them.

    For each number of sensors there are the numbers of some runs, and their sensors; and for each
    output points (k, d), and values (N, k) there, NaN where nothing was read.
    """

    sensors: dict[int, list[tuple[Tensor, Sensors]]]
    truths: dict[int, list[tuple[Tensor, Tensor]]]


@dataclass(frozen=True)
class HeldOut:
    """Pairs that nothing was fitted to, as sensors read them, and the values to be answered.

    For each number of sensors there are the pairs in parts: their numbers, their sensors of inputs,
    and those of outputs where there are any. `truths` are points (k, d) of each field, and its
    values (N, k) there: outputs, and where sensors are of the output the input. `fields` are
    outputs that are encoded by no linear map, which of the points are theirs, and the standard
    deviation of their values.
    """

    sensors: dict[int, list[tuple[Tensor, Sensors, Sensors | None]]]
    truths: list[tuple[Tensor, Tensor]]
    fields: list[tuple[Field, Tensor, float]] = field(default_factory=list)
    columns: list[Tensor] = field(default_factory=list)  # numbers of these points on the grids
    groups: Tensor = field(default_factory=lambda: torch.empty(0))  # (N,), equal for one layout

    @classmethod
    def read(
        cls, pairs: Functions, layouts: Mapping[int, Tensor], noise_std: float | Tensor,
        noise: Callable[[int], np.random.Generator], columns: np.random.Generator,
        max_points: int, part: int, outputs: Sequence[tuple[Field, Tensor, float]] = (),
        groups: Tensor | None = None,
    ) -> HeldOut:  # fmt: skip
        """Return pairs on a model's grids as sensors at grid points read them.

        Parameters
        ----------
        pairs : Functions
            Outputs on the training grid or on the full one.
        layouts : mapping of int to Tensor (N, m)
            Points at which each pair's sensors stand, by their number: those of the output come
            after those of the input. Pairs have equally many of each.
        noise_std : float or Tensor, shape (n + M,)
            Noise of all sensors, or of those at each point (transformed).
        noise, columns : callable and numpy Generator
            `noise` returns the generator of the noise of so many sensors, `columns` draws the
            points that are scored.
        max_points, part : int
            Maximum number of these points; pairs that are conditioned together.
        outputs, groups
            `HeldOut.fields`, with columns of the output in place of points, and the others; by
            default each pair has a layout of its own.
        """
        size = min(pairs.size, *(len(places) for places in layouts.values()))
        kappa, u = (rows.take(np.arange(size)) for rows in (pairs.kappa_rows, pairs.u_rows))
        grid, kept = pairs.fields.training_grid()
        first = kappa.shape[1]
        scored = some_points(grid.size, max_points, columns)
        truth = u.columns(scored if u.shape[1] == grid.size else kept[scored]).double()
        truths, columns_of = [(grid.points()[scored], truth)], [scored]
        if any(int(layout.max()) >= first for layout in layouts.values()):
            some = some_points(first, max_points, columns)
            truths.append((pairs.fields.input.domain.points()[some], kappa.columns(some).double()))
            columns_of.append(some)
        levels = torch.as_tensor(noise_std, dtype=torch.float64).expand(first + u.shape[1])
        sides = [(pairs.fields.input, kappa, 0), (pairs.fields.output, u, first)]
        sensors: dict[int, list[tuple[Tensor, Sensors, Sensors | None]]] = {}
        for count, layout in layouts.items():
            places = layout[:size].long()
            level = levels[places]
            error = level * torch.from_numpy(noise(count).standard_normal(places.shape))
            found = []
            for (read, functions, start), here in zip(
                sides, (places[0] < first, places[0] >= first), strict=True
            ):
                at, noisy = places[:, here] - start, error[:, here]
                if not at.shape[1] and start:
                    continue
                x, y = read.read(
                    functions.whole(), at, noisy if bool(level.any()) else None,
                    read.domain.points(),
                )  # fmt: skip
                mask = torch.ones_like(y, dtype=torch.bool)
                found.append(Sensors(x, y.double(), mask, noise_std=level[:, here]))
            seen, other = found[0], found[1] if len(found) > 1 else None
            sensors[count] = [
                (rows, seen[rows], None if other is None else other[rows])
                for rows in torch.arange(size).split(part)
            ]
        fields = [
            (one, torch.isin(scored, here).nonzero()[:, 0], std) for one, here, std in outputs
        ]
        groups = torch.arange(size) if groups is None else groups[:size]
        return cls(sensors, truths, fields, columns_of, groups)

    def __len__(self) -> int:
        return len(self.truths[0][1])

    def answers(self, model: Any, count: int) -> Iterator[tuple[Tensor, list[Posterior]]]:
        """Yield a model's answers to the pairs, in parts.

        They are the numbers (b,) of these pairs, and the laws of the fields of `truths`.
        """
        for rows, seen, read in self.sensors[count]:
            joint = model.condition_on(seen, read)
            yield rows, [joint.output] if read is None else [joint.output, joint.input]

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
            for some, (answer, *_) in self.answers(model, count):
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

"""How a joint Gaussian law of fields is learned from readings: recipes, and which of them is taken.

Recipes are compared on held-out runs: some of a run's readings are sensors, others the truth. Where
gaps are blocks, the truth is a block, too. In the order in which they are taken if as good:

- ``factors``: a factor model that starts at pairs, after steps of expectation maximisation;
- ``pairs``: sums of products over pairs, shrunk to a covariance by distance;
- ``kriging``: that covariance alone;
- ``complete runs`` and ``interpolated runs``: what is done where readings are not counted in pairs.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import DataError
from uqsonet.fields.field import Field
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.fields.stacked import join
from uqsonet.fitting.comparison import first_not_worse
from uqsonet.fitting.gap_readings import hidden_readings
from uqsonet.fitting.held_out import LEVELS
from uqsonet.fitting.plan import SensorPlan
from uqsonet.gauss.incomplete import (
    Factors,
    PairMoments,
    Readings,
    blocks,
    shrunk,
    smoothing,
    stationary,
)
from uqsonet.gauss.metrics import gaussian_crps
from uqsonet.gauss.seeds import numpy_generator
from uqsonet.runs.field_runs import FieldRuns
from uqsonet.runs.gaps import gaps_of, unit_points
from uqsonet.runs.runs import Runs, named_fields, proposed_transform

LOG = logging.getLogger("uqsonet")

MAX_POINTS = 5000  # points of all fields together: covariances of all pairs are worked out
MAX_MODES = 192  # modes of a covariance of pairs
KINDS = ("factors", "pairs", "kriging", "complete runs", "interpolated runs")
"""Kinds of recipes, first what the readings themselves say: fewer factors, or all pairs."""

MIN_READ = 8  # fewer runs that read a field are too few to learn from
MIN_COMPLETE = 30  # fewer complete runs are no data to learn from
SENSOR_COUNTS = (3, 10, 30)  # numbers of sensors that recipes are compared with by default

WEIGHTS = (100.0, 20.0, 400.0)  # pairs that the covariance by distance counts for
WIDTHS = (0.0, 1.0, 2.0, 4.0)  # of kernels over neighbouring pairs, in their distances
RANKS = (48, 16)  # factors that are improved
STEPS, MOST_STEPS = 3, 9  # of expectation maximisation between two looks, and in all
START = 20.0  # readings that the loadings of the start count for


class Recipe(NamedTuple):
    """How a law is learned from readings."""

    kind: str
    weight: float = math.inf  # pairs that the covariance by distance counts for
    width: float = 0.0  # of the kernel; zero is none
    rank: int = MAX_MODES
    steps: int = 0

    def row(self) -> dict[str, Any]:
        """Return the recipe as a row of the card."""
        return {k: v for k, v in self._asdict().items() if v != math.inf}


@dataclass(frozen=True)
class Seen:
    """Runs as a law sees them: the different fields of both sides side by side, NaN in gaps."""

    name: str
    inputs: list[Field]
    outputs: list[Field]
    rows: Tensor  # (N, P), encoded
    columns: tuple[Tensor, Tensor]  # (n,) and (M,), of inputs and of outputs in rows
    points: list[Tensor]  # (n_k, d), of each field, in its box
    designs: list[Tensor]  # (n_k, 1 + q), of each field: one, and its covariates
    groups: Tensor  # (P,), 0 for inputs: points whose left-over variance is taken as one
    noise: Tensor  # (P,), standard deviation of readings
    plan: SensorPlan
    blocked: bool  # whether gaps are blocks
    seed: int

    @classmethod
    def of(
        cls, runs: Runs, sensors: object, noise_std: Mapping[str, float], seed: int
    ) -> Seen:  # fmt: skip
        """Return runs encoded by the transforms that were stated, or else proposed."""
        every = {**runs.inputs, **runs.outputs}
        named = {name: _named(name, field) for name, field in every.items()}
        sizes = [field.domain.size for field in every.values()]
        if sum(sizes) > MAX_POINTS:
            raise DataError(
                f"{runs.name}: runs with gaps have {sum(sizes)} points, at most {MAX_POINTS}: "
                "average over coarser cells, or take fewer points"
            )
        for name, field in every.items():
            if (count := int((~np.isnan(field.values)).any(1).sum())) < MIN_READ:
                raise DataError(f"{name}: read in {count} runs, at least {MIN_READ} are needed")
        starts = dict(zip(every, np.cumsum([0, *sizes]), strict=False))
        sides = [[named[name] for name in side] for side in (runs.inputs, runs.outputs)]
        columns = [
            torch.cat([starts[f.name] + torch.arange(f.domain.size) for f in side])
            for side in sides
        ]
        rows = [named[name].encode(torch.from_numpy(one.values)) for name, one in every.items()]
        order = [0 if name in runs.inputs else 1 + k for k, name in enumerate(every)]
        levels = [noise_std.get(name, 0.0) / named[name].scale for name in every]
        fields = [*sides[0], *sides[1]]
        counts = sorted({min(m, len(columns[0])) for m in SENSOR_COUNTS})
        places = [f.domain.points() for f in fields]
        return cls(
            runs.name, sides[0], sides[1], torch.cat(rows, 1), (columns[0], columns[1]),
            [unit_points(one.domain.points()) for one in every.values()],
            [_design(one) for one in every.values()],
            torch.tensor(order).repeat_interleave(torch.tensor(sizes)),
            torch.tensor(levels).double().repeat_interleave(torch.tensor(sizes)),
            SensorPlan.of(counts if sensors is None else sensors, fields, len(sides[0]), places),
            any(gaps_of(one).kind == "blocks" for one in every.values()), seed,
        )  # fmt: skip

    @property
    def fields(self) -> OperatorFields:
        """Input and output as a model has them."""
        sides = (self.inputs, self.outputs)
        input, output = (
            Field(",".join(f.name for f in side), join([f.domain for f in side])) for side in sides
        )
        return OperatorFields(self.name, input, output)

    def held_out(self, runs: np.ndarray, count: int, path: str) -> tuple[Tensor, Tensor]:
        """Return what is read of runs by the `count`-th sensors, and the truth (N, P) besides.

        Both are NaN elsewhere. A run with few readings is read by fewer sensors.
        """
        generator = numpy_generator(self.seed, "gaps", path, count)
        return hidden_readings(
            self.rows[runs], self.columns, self.points, self.plan, count, self.blocked, generator
        )


def _design(field: FieldRuns) -> Tensor:
    """Return one and the covariates of a field's points (n, 1 + q), float64, standardised."""
    one = torch.ones(field.domain.size, 1, dtype=torch.float64)
    if field.covariates is None:
        return one
    known = torch.from_numpy(field.covariates)
    size = known.std(0, correction=0).clamp_min(1e-300)
    return torch.cat([one, (known - known.mean(0)) / size], 1)


def _named(name: str, field: FieldRuns) -> Field:
    """Return a field with its transform, from its readings, scaled by their std at a point."""
    known = field.values[~np.isnan(field.values)][:, None]
    kind = proposed_transform(replace(field, values=known))
    (one,) = named_fields({name: replace(field, values=known)}, {name: kind})
    values = one.transform.forward(torch.from_numpy(field.values)).double().numpy()
    seen = ~np.isnan(values)
    mean = np.where(seen, values, 0).sum(0) / seen.sum(0).clip(1)
    scale = float(np.sqrt(np.square((values - mean)[seen]).mean()))
    return replace(one, scale=scale if scale > 0 else one.scale)


class Learner:
    """Laws that recipes learn from some of the runs; what they share is worked out once."""

    def __init__(self, data: Seen, runs: np.ndarray) -> None:
        self.data, self.rows = data, data.rows[runs]
        self._kernels: dict[float, Tensor | None] = {0.0: None}

    @cached_property
    def moments(self) -> PairMoments:
        """Moments of pairs."""
        return PairMoments.of(self.rows, self.data.designs)

    @cached_property
    def target(self) -> Tensor:
        """Covariance (P, P) by distance."""
        std = self.moments.scaled(self.data.groups, START)
        distances = [torch.cdist(one, one) for one in self.data.points]
        return stationary(self.moments, distances, std)

    def kernel(self, width: float) -> Tensor | None:
        """Return weights (P, P) of neighbours."""
        if width not in self._kernels:
            parts = [smoothing(one, width) for one in self.data.points]
            self._kernels[width] = torch.block_diag(*parts)
        return self._kernels[width]

    def law(self, recipe: Recipe) -> Factors:
        """Return the law that a recipe learns."""
        *_, found = self.laws(recipe)
        return found

    def laws(self, recipe: Recipe) -> Iterator[Factors]:
        """Yield the laws after every few of a recipe's steps, first that before any."""
        groups, kernel = self.data.groups, self.kernel(recipe.width)
        whole = self._whole(recipe.kind)
        if whole is None:
            covariance = shrunk(self.moments, self.target, recipe.weight, kernel)
            found = start = Factors.of(self.moments, covariance, recipe.rank, groups)
        else:
            moments = PairMoments.of(whole, self.data.designs)
            covariance = shrunk(moments, self.target, recipe.weight)
            found = start = Factors.of(moments, covariance, recipe.rank, groups)
        yield found
        for _ in range(0, recipe.steps, STEPS):
            for _ in range(STEPS):
                found = found.improved(self.rows, start, START, kernel)
            yield found

    def _whole(self, kind: str) -> Tensor | None:
        """Return runs without gaps, where a recipe asks for them."""
        if kind == "complete runs":
            return self.rows[~self.rows.isnan().any(1)]
        if kind == "interpolated runs":
            law = self.law(Recipe("kriging"))
            parts = blocks(self.rows, law.factor.shape[1])
            return torch.cat([filled(law, *both) for both in parts])
        return None


def filled(law: Factors, rows: Tensor, seen: Readings) -> Tensor:
    """Return rows (N, P) with their gaps filled by what a law expects given their readings."""
    mean, _ = law.given(seen)
    return torch.where(rows.isnan(), law.mean + mean @ law.factor.T, rows.double())


Held = Sequence[tuple[Learner, Sequence[tuple[Tensor, Tensor]]]]
"""For each split what learns, and for each number of sensors readings and truths (V, P)."""


def scores(law: Factors, seen: Tensor, truth: Tensor) -> Tensor:
    """Return the CRPS of hidden readings, and the shares in bands of `LEVELS`, (3, V) by run.

    NaN for runs without a hidden reading.
    """
    found = torch.full((1 + len(LEVELS), len(seen)), torch.nan, dtype=torch.float64)
    ends = torch.special.ndtri((1 + torch.tensor(LEVELS).double()) / 2)
    for rows in torch.arange(len(seen)).split(64):
        mean, variance = law.values_given(Readings.of(seen[rows]))
        std, known = variance.sqrt(), truth[rows].double()
        counted = ~known.isnan()
        n = counted.sum(1).double()
        each = gaussian_crps(mean, std, known.nan_to_num())
        found[0, rows] = torch.where(counted, each, 0.0).sum(1) / n
        away = (known - mean).abs() / std
        for k, end in enumerate(ends, 1):
            found[k, rows] = (counted & (away <= end)).sum(1) / n
    return found


def _judged(law_of: Sequence[Factors], held: Held) -> Tensor:
    """Return scores (3, V), averaged over numbers of sensors, of all splits' laws."""
    parts = []
    for law, (_, read) in zip(law_of, held, strict=True):
        parts.append(torch.stack([scores(law, *one) for one in read]).nanmean(0))
    found = torch.cat(parts, 1)
    return found[:, ~found[0].isnan()] if bool(found.isfinite().any()) else found


def choose_recipe(held: Held) -> tuple[Recipe, list[dict[str, Any]]]:
    """Return the recipe to take, by scores on held-out readings, and all scores."""
    tried: list[dict[str, Any]] = []
    best: dict[str, tuple[Tensor, Recipe]] = {}

    def look(recipe: Recipe) -> None:
        each = [learner.laws(recipe) for learner, _ in held]
        for number, laws in enumerate(zip(*each, strict=True)):
            if recipe.steps and not number:
                continue
            found = _judged(laws, held)
            one = recipe._replace(steps=number * STEPS)
            crps, *shares = found.mean(1).tolist()
            row = {"crps": round(crps, 6)}
            row |= {f"band_{100 * q:.0f}": round(s, 3) for q, s in zip(LEVELS, shares, strict=True)}
            tried.append(one.row() | row)
            LOG.info("%s: CRPS %.4g", one, crps)
            if math.isfinite(crps) and (
                one.kind not in best or crps < float(best[one.kind][0][0].mean())
            ):
                best[one.kind] = found, one

    look(Recipe("kriging"))
    if not best:
        raise DataError(
            f"{held[0][0].data.name}: no held-out run has a reading of an output that no sensor "
            "reads, so there is nothing to judge a law by; more readings are needed"
        )
    for width in WIDTHS:
        look(Recipe("pairs", WEIGHTS[0], width))
    for weight in WEIGHTS[1:]:
        look(best["pairs"][1]._replace(weight=weight))
    of_pairs = best["pairs"][1]
    points = held[0][0].rows.shape[1]
    for width in sorted({0.0, of_pairs.width / 2, of_pairs.width}):
        look(Recipe("factors", of_pairs.weight, width, min(RANKS[0], points), MOST_STEPS))
    for rank in RANKS[1:]:
        one = best["factors"][1]
        look(one._replace(rank=min(rank, points), steps=MOST_STEPS))
    complete = min(int((~one.rows.isnan().any(1)).sum()) for one, _ in held)
    if complete >= MIN_COMPLETE:
        look(Recipe("complete runs", of_pairs.weight))
    look(Recipe("interpolated runs", of_pairs.weight))
    names = [name for name in KINDS if name in best]
    number, _ = first_not_worse([best[name][0] for name in names])
    return best[names[number]][1], tried

"""A mixture of Gaussian laws from several sources, with weights that held-out readings give.

Sources, from the simplest on: one Gaussian law; clusters, with or without scales
(`uqsonet.laws.clusters`); kernels of many lengths (`uqsonet.laws.kernels`); every run
(`uqsonet.laws.every_run`). All components are conditioned in closed form.

Each source is fitted to most of the runs, and the weight of each of its blocks of components comes
from readings of the others: expectation maximisation on their likelihood at a few points at a time.
So it is in readings that components are compared, with what the modes leave out as noise. A source
takes part if those readings are likelier with it by more than chance: the simplest of equals is
taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from uqsonet.gauss.gaussian import sensor_noise
from uqsonet.gauss.given import Given
from uqsonet.gauss.seeds import numpy_generator
from uqsonet.laws import clusters, every_run, kernels
from uqsonet.laws.base import InputLaw, Layout, Linear, require, with_also
from uqsonet.laws.bases import InputSample, KarhunenLoeveBases, rounding_noise
from uqsonet.laws.components import Components, MixtureGiven, Readings, Seen
from uqsonet.sensors.sensors import Sensors

HELD_RUNS = 120  # runs whose readings give the weights, at most an eighth of all
COUNTS = (2, 4, 10)  # numbers of points that they are read at
LAYOUTS = 3  # layouts of so many points
WEIGHT_STEPS = 300  # steps of expectation maximisation
RANGE_DRAWS = 1000  # fields whose range is compared with that of the inputs
MAX_OUTSIDE = 0.1  # accepted share of fields with scales that leave it
MIN_WEIGHT = 1e-3  # weight of a block of components that counts

OWN: Layout = {  # of each block of components that is kept as it is
    "log_weights": ("??", torch.float64),
    "scales": ("?", torch.float64),
    "means": ("?r", torch.float64),
    "roots": ("?rr", torch.float32),
    "remainder": ("?", torch.float64),
}
AROUND: Layout = {  # of the runs, and the weights of components around them
    "runs": ("Nr", torch.float32),
    "left": ("N", torch.float32),
    "shares": ("?", torch.float64),
}


class MixtureLaw(InputLaw):
    """Blocks of components; those around the runs are made of these again, whatever the file."""

    name = "mixture"

    def __init__(
        self, blocks: Sequence[Components], around: dict[str, Tensor], spread: Tensor
    ) -> None:
        self._own, self._around = list(blocks), around
        made = []
        if around:
            shares, needed = around["shares"], len(every_run.SHARES) + len(every_run.REACHES)
            if len(shares) != needed or not bool((shares >= 0).all() & (shares > 0).any()):
                raise ValueError(f"shares are {needed} weights, found {shares.tolist()}")
            made = every_run.blocks(around["runs"], around["left"], spread, shares.tolist())
        self.blocks = [*blocks, *made]

    @classmethod
    def fit(cls, sample: InputSample, seed: int) -> Self:
        """Fit the sources, and take those under which held-out readings are likelier."""
        generator, size = numpy_generator(seed, "law", cls.name), len(sample.coefficients)
        spread = sample.bases.input_factor.double().norm(dim=0)
        order = torch.from_numpy(generator.permutation(size))
        held, rest = order.tensor_split([min(HELD_RUNS, max(2, size // 8))])
        readings = list(_read(sample, held, generator))
        taken, weights, score = [], torch.ones(1).double(), torch.full((len(held),), -torch.inf)
        density = torch.empty(len(readings) * len(held), 0, dtype=torch.float64)
        for name, blocks in _sources(_some(sample, rest), spread, generator):
            more = torch.stack([_density(block, readings) for block in blocks], 1)
            both = torch.cat([density, more], 1)
            found = _likeliest(both)
            total = (both + found.log()).logsumexp(1).view(-1, len(held)).mean(0)
            if not taken or clusters.better(total, score):
                taken += [(name, block) for block in blocks]
                density, weights, score = both, found, total
        weights = torch.where(weights > MIN_WEIGHT, weights, 0.0)
        weights = weights / weights.sum()
        own, shares = [], []
        for (name, block), weight in zip(taken, weights.tolist(), strict=True):
            if name == "runs":
                shares.append(weight)
            elif weight:
                own.append(block.times(weight).replaced(roots=block.roots.float()))
        if not any(shares):
            return cls(own, {}, spread)
        kept = order[: every_run.MAX_RUNS].sort().values
        around = {
            "runs": sample.coefficients[kept].float(),
            "left": sample.remainder[kept].float(),
            "shares": torch.tensor(shares, dtype=torch.float64),
        }
        return cls(own, around, spread)

    def tensors(self) -> dict[str, Tensor]:
        """Return the components, and the runs that others are made of."""
        named = {
            f"{name}_{number}": tensor
            for number, block in enumerate(self._own)
            for name, tensor in vars(block).items()
        }
        return named | self._around

    @classmethod
    def of(cls, tensors: dict[str, Tensor], bases: KarhunenLoeveBases) -> Self:
        """Return the law that `tensors` were taken of."""
        numbers = sorted({name.rpartition("_")[2] for name in tensors.keys() - AROUND.keys()})
        layout = {f"{name}_{k}": kind for k in numbers for name, kind in OWN.items()}
        layout |= AROUND if tensors.keys() & AROUND.keys() or not numbers else {}
        require(tensors, layout, bases)
        blocks = [Components(*(tensors[f"{name}_{k}"] for name in OWN)) for k in numbers]
        around = {name: tensors[name] for name in AROUND if name in tensors}
        law = cls(blocks, around, bases.input_factor.double().norm(dim=0))
        total = sum(float(block.log_weights.exp().sum()) for block in law.blocks)
        if not abs(total - 1) < 1e-6:
            raise ValueError(f"log_weights and shares add up to {total:g}, not to one")
        return law

    def condition(
        self, bases: KarhunenLoeveBases, sensors: Sensors, also: Linear | None = None
    ) -> Given:
        """Return the mixture given sensors: each component in closed form."""
        level = sensor_noise(sensors.noise(), rounding_noise(bases))
        rows, residual = (seen.cpu() for seen in bases.at_sensors(sensors))
        every = with_also(rows, residual, level, sensors.mask, also)
        direct = level.shape[1]
        sets = [
            Readings(r[kept], left[None, kept], noise[kept], int(kept[:direct].sum()))
            for r, left, noise, kept in zip(*every, strict=True)
        ]
        return MixtureGiven(self.blocks, sets)


def _some(sample: InputSample, rows: Tensor) -> InputSample:
    """Return some of the training inputs."""
    parts = ("fields", "coefficients", "remainder")
    return replace(sample, **{name: getattr(sample, name)[rows] for name in parts})


def _sources(
    sample: InputSample, spread: Tensor, generator: np.random.Generator
) -> Iterator[tuple[str, list[Components]]]:
    """Yield the blocks of each source, from the simplest on."""
    a, left = sample.coefficients, sample.remainder
    r, one = a.shape[1], torch.ones(1, dtype=torch.float64)
    level, eye = left.square().mean().sqrt()[None], torch.eye(r, dtype=torch.float32)
    yield "gaussian", [Components(0 * one[None], one, torch.zeros(1, r).double(), eye[None], level)]
    found = clusters.fitted(a, left, generator, True)
    if len(found.scales) == 1:
        yield "clusters", [found]
    else:
        yield "clusters", [clusters.fitted(a, left, generator, False)]
        # One scale for all modes gives fields that differ in roughness too much variance.
        if _outside(found, sample) <= MAX_OUTSIDE:
            yield "scaled clusters", [found]
    if (members := kernels.fitted(sample, generator)) is not None:
        yield "kernels", [members]
    if len(a) >= every_run.MIN_RUNS:
        some = slice(every_run.MAX_RUNS)
        yield "runs", every_run.each(a[some], left[some], spread)


def _read(sample: InputSample, held: Tensor, generator: np.random.Generator) -> Iterator[Readings]:
    """Yield readings of some inputs at a few points at a time."""
    bases, points = sample.bases, sample.fields.shape[1]
    off = sample.fields[held].double() - bases.input_mean
    for count in sorted({min(count, points) for count in COUNTS}):
        for _ in range(LAYOUTS):
            at = torch.from_numpy(generator.choice(points, count, replace=False))
            noise = (sensor_noise(sample.noise_std) * torch.ones(points))[at].double()
            error = torch.from_numpy(generator.standard_normal((len(held), count))) * noise
            noise = sensor_noise(noise, rounding_noise(bases))
            yield Readings(bases.input_factor[at].double(), off[:, at] + error, noise, count)


def _outside(block: Components, sample: InputSample) -> float:
    """Return the share of a block's fields that leave the range of the inputs."""
    bases, nothing = sample.bases, torch.zeros(0, dtype=torch.float64)
    unread = Readings(torch.zeros(0, len(bases.input_factor.T)).double(), nothing[None], nothing, 0)
    drawn = MixtureGiven([block], [unread]).sample(RANGE_DRAWS, torch.Generator().manual_seed(0))[0]
    fields = bases.input_mean.float() + drawn @ bases.input_factor.T
    low, high = sample.fields.amin(), sample.fields.amax()
    return float(((fields < low) | (fields > high)).any(1).double().mean())


def _density(block: Components, readings: Sequence[Readings]) -> Tensor:
    """Return the log density (L H,) of L times H readings under a block of components."""
    found = []
    for read in readings:
        parts = [
            Seen.of(block.some(part), read).evidence.movedim(1, 0).flatten(1)
            for part in block.parts(len(read.noise_std) * read.rows.shape[1])
        ]
        found.append(torch.cat(parts, 1).logsumexp(1))
    return torch.cat(found)


def _likeliest(density: Tensor) -> Tensor:
    """Return the weights (K,) of highest likelihood for log densities (N, K)."""
    weights = torch.full(density.shape[1:], 1 / density.shape[1], dtype=torch.float64)
    for _ in range(WEIGHT_STEPS):
        weights = (density + weights.log()).softmax(1).mean(0)
    return weights

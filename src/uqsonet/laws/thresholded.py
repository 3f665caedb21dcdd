"""Truncated Gaussian simulation: latent Gaussian fields cut into classes by thresholds.

For inputs that take few values (rock or sand, one phase or another). At each point the class is
given by the thresholds between which a latent Gaussian field of variance one lies (Matheron et al.,
SPE 16753, 1987). Thresholds follow from how often each class occurs. Correlations of the latent
field follow from how often two points are on the same side: tetrachoric correlations (Pearson
1900), for two classes of equal share ``rho = sin(pi/2 tau)``. Given the classes at the sensors the
latent values there are a Gaussian truncated to a box; given those, the rest is kriging.
Where one field does not explain which classes touch, several independent ones do, each of which
decides within a part of the classes (`uqsonet.laws.class_rules`). A class is then a box of all
latent values, and classes at sensors leave the fields independent of each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from uqsonet.laws.base import MIN_TAIL_NOISE, SeparateLaw, WholeFields, classes_of, farthest_tail
from uqsonet.laws.bases import InputSample, KarhunenLoeveBases
from uqsonet.laws.class_rules import chosen_rule, fields_of, tetrachoric
from uqsonet.laws.latent import LATENT_LAYOUT, LatentField, fit_latent, latent_of
from uqsonet.laws.truncated import MIN_LATENT_VARIANCE, Choices, among_choices, between, kriged
from uqsonet.sensors.sensors import Sensors

if TYPE_CHECKING:
    from uqsonet.fields.stacked import Domain

DOUBT = 1e-4  # a sensor's class is uncertain if another class has at least this probability

MIN_WIDTH = 0.01
"""Minimum width of a class between two others, in standard deviations of the latent field: a sensor
may read it where no training input had it."""


@dataclass(frozen=True)
class ClassField:
    """A latent field that decides between some classes, or groups of them."""

    places: Tensor  # (K,), interval of the field, from 0, of each class; -1 where it lies in any
    thresholds: Tensor  # (n, T), of the field at each point, ascending
    latent: LatentField

    @classmethod
    def fit(cls, domain: Domain, labels: Tensor, groups: list[list[int]], count: int) -> ClassField:
        """Estimate thresholds and the latent covariance where inputs have one of these classes.

        `labels` (N, n) are numbers of K classes (`count`), of which `groups` are those in each
        interval.
        """
        places = torch.full((count,), -1)
        for place, group in enumerate(groups):
            places[group] = place
        place = places[labels]
        inside = None if bool((places >= 0).all()) else (place >= 0).float()
        size = torch.tensor(len(labels)) if inside is None else inside.sum(0).double()
        below = torch.stack(
            [
                ((place >= 0) & (place <= cut)).float().sum(0).double() / size.clamp_min(1)
                for cut in range(len(groups) - 1)
            ],
            1,
        )
        mean_size = size.double().mean()
        pooled = (below * size[..., None]).mean(0) / mean_size
        # Shares that differ between points by no more than chance are one share.
        chance = pooled * (1 - pooled)
        if bool((((below - pooled).square() * size[..., None]).mean(0) < 2 * chance).all()):
            below = pooled.expand_as(below)
        least = 0.5 / float(mean_size)
        thresholds = torch.special.ndtri(below.clamp(least, 1 - least)).contiguous()
        for k in range(1, thresholds.shape[1]):
            thresholds[:, k] = thresholds[:, k].maximum(thresholds[:, k - 1] + MIN_WIDTH)
        # The threshold whose share is nearest to one half; fields side by side each have their own.
        middle = (below - 0.5).abs().argmin(1)
        side = ((place >= 0) & (place <= middle)).float()
        cut = thresholds.gather(1, middle[:, None])[:, 0]
        if bool((cut == cut[0]).all()) and abs(float(cut[0])) < 3 / math.sqrt(float(mean_size)):
            cut = torch.zeros_like(cut)
        return cls(places, thresholds, fit_latent(domain, side, cut, tetrachoric, inside))


class ThresholdedPosterior(WholeFields):
    """Latent values at the sensors, and fields through them (`uqsonet.laws.truncated`)."""

    def __init__(self, law: ThresholdedLaw, bases: KarhunenLoeveBases, sensors: Sensors) -> None:
        super().__init__(bases)
        self._law = law
        grid, forward = bases.fields.input.grid, bases.fields.input.transform.forward
        locations, ends = sensors.locations[0].double(), []
        self._rows: list[Tensor] = []
        for part in law.parts:
            self._rows.append(part.latent.rows(grid, locations))
            cuts = torch.nn.functional.pad(
                grid.interpolate(part.thresholds, locations), [1, 1], value=torch.inf
            )
            cuts[..., 0] = -torch.inf
            free = torch.tensor([-torch.inf, torch.inf], dtype=torch.float64)
            place = part.places.clamp_min(0)
            of_class = torch.stack([cuts[:, place], cuts[:, place + 1]])  # (2, m, K)
            ends.append(of_class.where(part.places >= 0, free[:, None, None]))
        self._ends = torch.stack(ends, 1)  # (2, F, m, K)
        if not len(locations):
            self.latent = sum(part.latent.rank for part in law.parts)
        edges = (law.values[1:] + law.values[:-1]) / 2
        values = forward(sensors.values[0].double())
        which = self._which = torch.bucketize(values, edges)
        # A value between the classes is wrong or noisy; without noise the gap is its scale.
        gap = (law.values[1:] - law.values[:-1]).amin()
        level = sensors.noise()[0].clamp_min(MIN_TAIL_NOISE * float(gap))
        self.tail = farthest_tail((values - law.values[which]).abs() / level)
        z = (values[:, None] - law.values) / level[:, None]
        self._likelihood = (-z.square() / 2).log_softmax(-1)  # (m, K)
        second = self._likelihood.exp().topk(2).values[:, 1]
        self._uncertain = bool((second > DOUBT).any())

    def fields(
        self, bases: KarhunenLoeveBases, size: int, generator: torch.Generator
    ) -> Iterator[Tensor]:
        """Yield thresholded fields (size, n), float32."""
        yield self._law.values.float()[self._numbers(size, generator)]

    def made(self, z: Tensor) -> Tensor:
        """Return fields (n, points), float32, of standard normals (n, latent)."""
        parts = self._law.parts
        each = zip(parts, z.split([part.latent.rank for part in parts], 1), strict=True)
        latent = [part.latent.fields(xi) for part, xi in each]
        values = self._law.values.float()
        if len(parts) > 1:
            return values[self._law.numbers(latent)]
        first, *others = values[self._law.table]  # a tenth of the time of numbers
        found = first.expand_as(latent[0])
        for cut, value in zip(parts[0].thresholds.T.float(), others, strict=True):
            found = torch.where(latent[0] > cut, value, found)
        return found

    def _numbers(self, size: int, generator: torch.Generator) -> Tensor:
        """Return numbers (size, n) of classes."""
        rows, which = self._rows, self._which
        nugget = torch.full((len(which),), MIN_LATENT_VARIANCE, dtype=torch.float64)
        covariances = [one @ one.T + nugget.diag() for one in rows]
        low, high = ends = self._ends
        if self._uncertain:
            choices = [
                Choices(low[:, i], high[:, i], lambda mean, std, one=one: (mean, std, one[None]))
                for i, one in enumerate(self._likelihood)
            ]
            values = among_choices(covariances, choices, size, generator)
        else:
            low, high = ends.gather(3, which[:, None].expand(*ends.shape[:3], 1))[..., 0]
            law = zip(covariances, low, high, strict=True)
            values = [between(*one, size, generator, self._law.name) for one in law]
        latent = []
        for part, row, at in zip(self._law.parts, rows, values, strict=True):
            xi = torch.randn(size, row.shape[1], generator=generator, dtype=torch.float64)
            latent.append(part.latent.fields(kriged(xi, row, at, nugget, generator)))
        return self._law.numbers(latent)


class ThresholdedLaw(SeparateLaw):
    """Latent Gaussian fields cut into classes of rising values (K,) (this module's text)."""

    name = "thresholded"
    posterior = ThresholdedPosterior
    misfit = (
        "they take more than a few values, or only one at some point, or have classes that no cut "
        "Gaussian field has"
    )
    whole = made = True
    layout: ClassVar = {
        "values": ("K", torch.float64),
        "thresholds": ("nT", torch.float64),
        "places*": ("FK", torch.int64),
        **LATENT_LAYOUT,
    }

    def __init__(self, values: Tensor, parts: list[ClassField]) -> None:
        self.values, self.parts = values, parts

    @classmethod
    def fit(cls, sample: InputSample, seed: int) -> list[ThresholdedLaw]:
        """Choose a rule, and estimate thresholds and latent covariances from training inputs.

        There is no law where inputs take more than a few values, or some point has but one.
        """
        values = classes_of(sample.fields)
        if values is None:
            return []
        labels = torch.bucketize(sample.fields, ((values[1:] + values[:-1]) / 2).float())
        if bool((labels == labels[0]).all(0).any()):
            return []
        domain, count = sample.bases.fields.input.grid, len(values)
        fields = fields_of(chosen_rule(domain.points(), labels, count))
        return [cls(values, [ClassField.fit(domain, labels, one, count) for one in fields])]

    def tensors(self) -> dict[str, Tensor]:
        """Return values, places, thresholds and the latent fields."""
        found = {"values": self.values}
        found["thresholds"] = torch.cat([part.thresholds for part in self.parts], 1)
        ordered = torch.arange(len(self.values))
        if len(self.parts) > 1 or not torch.equal(self.parts[0].places, ordered):
            found["places"] = torch.stack([part.places for part in self.parts])
        for number, part in enumerate(self.parts):
            found |= part.latent.tensors(f"_{number}" if number else "")
        return found

    @classmethod
    def of(cls, tensors: dict[str, Tensor], bases: KarhunenLoeveBases) -> ThresholdedLaw:
        """Return the law that `tensors` were taken of."""
        values, thresholds = tensors["values"], tensors["thresholds"]
        places = tensors.get("places", torch.arange(len(values))[None])
        counts = places.amax(1).tolist()
        if thresholds.shape[1] != sum(counts) or min(counts) < 1:
            raise ValueError(f"{len(values)} values have {thresholds.shape[1]} thresholds")
        cuts = thresholds.split(counts, 1)
        if not bool((values.diff() > 0).all()) or any(bool((c.diff() <= 0).any()) for c in cuts):
            raise ValueError("values and thresholds must rise")
        parts = []
        for number, (place, cut) in enumerate(zip(places, cuts, strict=True)):
            tail, grid = f"_{number}" if number else "", bases.fields.input.grid
            parts.append(ClassField(place, cut, latent_of(grid, tensors, tail)))
        law = cls(values, parts)
        if bool((law.table < 0).any()):
            raise ValueError("places leave latent values without a class")
        return law

    @cached_property
    def table(self) -> Tensor:
        """Number of the class in each box: of an interval of each latent field."""
        places = torch.stack([part.places for part in self.parts])
        shape = [int(place.amax()) + 1 for place in places]
        table = torch.full(shape, -1)
        for box in itertools.product(*map(range, shape)):
            here = (places == torch.tensor(box)[:, None]) | (places < 0)
            fits = here.all(0).nonzero()[:, 0]
            table[box] = int(fits[0]) if len(fits) == 1 else -1
        return table

    def numbers(self, latent: list[Tensor]) -> Tensor:
        """Return numbers (size, n) of the classes of latent fields (size, n), one for each part."""
        box = []
        for part, field in zip(self.parts, latent, strict=True):
            above = [(field > cut).byte() for cut in part.thresholds.T.float()]
            box.append(torch.stack(above).sum(0))
        return self.table[tuple(box)]

"""A latent Gaussian field, or several, behind a link that maps them to the input point by point.

A link (`uqsonet.laws.margins`, `uqsonet.laws.classes`) says what readings tell of the latent values
at the sensors: that these are known, lie between ends, or come from one of several boxes. Given
those the rest of each field is kriging, and the link maps the fields to inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import torch
from torch import Tensor

from uqsonet.gauss.given import Given, Separate, Whole
from uqsonet.laws.base import InputLaw, Linear, require
from uqsonet.laws.bases import InputSample, KarhunenLoeveBases
from uqsonet.laws.classes import Classes
from uqsonet.laws.margins import Margins
from uqsonet.laws.truncated import MIN_LATENT_VARIANCE, among_choices, between, kriged
from uqsonet.sensors.sensors import Sensors

SAME_POINT = 1e-6  # distance of a sensor that stands at a point, as a share of the domain


class LatentGiven(Given):
    """Latent values at the sensors, and fields through them (`uqsonet.laws.truncated`)."""

    def __init__(self, law: LatentLaw, bases: KarhunenLoeveBases, sensors: Sensors) -> None:
        self._bases = bases
        field, link = bases.fields.input, law.link
        self._link, self._points, self._places = link, field.grid.points(), sensors.locations[0]
        values = field.transform.forward(sensors.values[0].double())
        places = self._places.double()
        self._told = link.told(field.grid, places, values, sensors.noise()[0])
        self._rows = [
            (1 - link.variance) ** 0.5 * one.rows(field.grid, places) for one in link.latent
        ]
        self.tail = self._told.tail
        if not len(places):
            self._sizes = [one.rank for one in link.latent]
            if link.variance > MIN_LATENT_VARIANCE:
                self._sizes.append(len(self._points))
            self.normals, self.whole_made = sum(self._sizes), self._fields_made

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Return the coefficients of sampled fields."""
        (fields,) = self._drawn(size, generator)
        return self._bases.coefficients_of(fields)[None]

    @property
    def functions(self) -> Whole:
        """Sampled fields."""
        return self._drawn

    def _drawn(self, size: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Yield inputs (size, n), float32."""
        told, found = self._told, []
        covariances = [rows @ rows.T + told.level.diag() for rows in self._rows]
        if told.choices is not None:
            values = list(among_choices(covariances, told.choices, size, generator))
        else:
            law = zip(covariances, told.lower, told.upper, strict=True)
            values = [between(*one, size, generator, LatentLaw.name) for one in law]
        for field, rows, at in zip(self._link.latent, self._rows, values, strict=True):
            xi = torch.randn(size, field.rank, generator=generator, dtype=torch.float64)
            xi = kriged(xi, rows, at, told.level, generator)
            found.append(self._completed(field.fields(xi), at - xi @ rows.T, generator))
        yield self._link.fields(found)

    def _completed(self, latent: Tensor, off: Tensor, generator: torch.Generator) -> Tensor:
        """Return fields (S, n) with what the latent field leaves out, off (S, m) at the sensors."""
        variance = self._link.variance
        if variance <= MIN_LATENT_VARIANCE:
            return latent
        left = torch.randn(latent.shape, generator=generator, dtype=torch.float32)
        # At a sensor it is what the reading leaves of the latent field, less noise.
        share = variance / self._told.level
        distance, nearest = torch.cdist(self._places.double(), self._points).min(1)
        extent = (self._points.amax(0) - self._points.amin(0)).max()
        here = distance < SAME_POINT * extent
        off = share * off / variance**0.5 + (1 - share).clamp_min(0).sqrt() * left[:, nearest]
        left[:, nearest[here]] = off[:, here].float()
        return (1 - variance) ** 0.5 * latent + variance**0.5 * left

    def made(self, z: Tensor, generator: torch.Generator) -> Tensor:
        """Return coefficients: of normals (n, `normals`) where there are no sensors."""
        if self.whole_made is None:
            return super().made(z, generator)
        return self._bases.coefficients_of(self._fields_made(z))

    def _fields_made(self, z: Tensor) -> Tensor:
        """Map standard normals (n, `normals`) to fields (n, points), float32."""
        parts, variance = z.split(self._sizes, 1), self._link.variance
        found = [one.fields(xi) for one, xi in zip(self._link.latent, parts, strict=False)]
        if len(parts) > len(found):  # what the latent field leaves out
            found = [
                (1 - variance) ** 0.5 * one + variance**0.5 * parts[-1].float() for one in found
            ]
        return self._link.fields(found)


class LatentLaw(InputLaw):
    """Latent Gaussian fields behind a link: classes for inputs of few values, else margins."""

    name = "latent"
    misfit = (
        "they are too few, or have only one value at some point, or have classes that no cut "
        "Gaussian field has"
    )
    separate, reads_functionals = True, False

    def __init__(self, link: Classes | Margins) -> None:
        self.link, self.ends = link, link.ends

    @classmethod
    def fit(cls, sample: InputSample, seed: int) -> Self | None:
        """Return the law with the link that inputs have, if any."""
        domain, fields = sample.bases.fields.input.grid, sample.fields
        link = Classes.fit(domain, fields) or Margins.fit(domain, fields)
        return None if link is None else cls(link)

    def condition(
        self, bases: KarhunenLoeveBases, sensors: Sensors, also: Linear | None = None
    ) -> Given | None:
        """Return the law of the coefficients given each set of sensors (`InputLaw.condition`)."""
        if also is not None:
            return None
        return Separate([LatentGiven(self, bases, sensors.alone(b)) for b in range(len(sensors))])

    def tensors(self) -> dict[str, Tensor]:
        """Return what the link is made of."""
        return self.link.tensors()

    @classmethod
    def of(cls, tensors: dict[str, Tensor], bases: KarhunenLoeveBases) -> Self:
        """Return the law that `tensors` were taken of."""
        names = [len(tensors.keys() & link.layout.keys()) for link in (Classes, Margins)]
        link = Margins if names[1] > names[0] else Classes
        require(tensors, link.layout, bases)
        return cls(link.of(tensors, bases.fields.input.grid))

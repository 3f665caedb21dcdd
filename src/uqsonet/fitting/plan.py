"""Which sensors a model is scored with: numbers of them at random points, or places, of any fields.

Points are those of all fields, one field after another, inputs first: so one layout may have
sensors of several fields, of inputs and of outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import ConfigError
from uqsonet.fields.field import Field
from uqsonet.fields.numbers import without_mask
from uqsonet.gauss.seeds import numpy_generator
from uqsonet.sensors.sensors import field_number


@dataclass(frozen=True)
class Places:
    """Points `first` to ``first + size``, and the numbers of sensors there, or where they stand."""

    first: int
    size: int
    counts: tuple[int, ...]  # one for each number of sensors that is tried
    fixed: Tensor | None = None  # (m,), numbers from 0 of the points at which they stand

    def points(self) -> Tensor:
        """Return the points (n,) at which sensors may stand."""
        own = torch.arange(self.size) if self.fixed is None else self.fixed
        return self.first + own

    def draw(self, k: int, size: int, seed: int, *path: str | int) -> Tensor:
        """Return points (size, m) of that many layouts with the k-th number of sensors."""
        if self.fixed is not None:
            return self.first + self.fixed.expand(size, -1)
        generator = numpy_generator(seed, *path, self.counts[k])
        drawn = [generator.choice(self.size, self.counts[k], replace=False) for _ in range(size)]
        return self.first + torch.from_numpy(np.stack(drawn))


@dataclass(frozen=True)
class SensorPlan:
    """Sensors to score with: of one field, of all inputs, or of several fields together."""

    parts: tuple[Places, ...]
    stated: object = None  # as `of` reads it again

    @classmethod
    def of(
        cls, sensors: object, fields: Sequence[Field], inputs: int, points: Sequence[Tensor]
    ) -> SensorPlan:
        """Return the plan for the argument `sensors` of `fit` and of `Emulator.validate`.

        Parameters
        ----------
        sensors : int, sequence of int, array (m, d), or mapping of field to one of these
            Numbers of sensors of the inputs at random points, or places of the only input, each of
            which stands for the nearest of the points; or the same by the name of a field, of
            inputs or of outputs. Of several fields there are equally many numbers.
        fields : sequence of Field
            All, inputs first.
        inputs : int
            The number of inputs.
        points : sequence of Tensor (n, d)
            Of each field.

        Raises
        ------
        ConfigError
            If it is none of these, or a number is out of range.
        ObservationError
            If a place is outside the domain, or no field has the name.
        """
        starts = np.cumsum([0, *(len(x) for x in points)])
        if not isinstance(sensors, Mapping):
            places = points[0] if inputs == 1 else None
            part, stated = _places(sensors, 0, int(starts[inputs]), fields[0], places)
            return cls((part,), stated)
        if not sensors:
            raise ConfigError("sensors: an empty mapping; name a field, as in {'head': 8}")
        parts, known = [], {}
        for name, one in sensors.items():
            number = field_number(fields, str(name))
            part, known[name] = _places(
                one, int(starts[number]), len(points[number]), fields[number], points[number]
            )
            parts.append(part)
        if len({len(part.counts) for part in parts}) > 1:
            raise ConfigError(f"sensors: give as many numbers for each field, found {known}")
        return cls(tuple(parts), known)

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of sensors that are tried, of all fields together."""
        return tuple(map(sum, zip(*(part.counts for part in self.parts), strict=True)))

    def reads_from(self, point: int) -> bool:
        """Return whether sensors stand at this point or beyond: at outputs, from their first on."""
        return any(part.first >= point for part in self.parts)

    def layouts(self, size: int, seed: int, *path: str | int) -> dict[int, Tensor]:
        """Return layouts (size, m) for each number m of sensors: numbers of points.

        Random ones are drawn at this path of the seed tree (`uqsonet.gauss.seeds`).
        """
        found = {}
        for k, count in enumerate(self.counts):
            own = [(part, path if not j else (*path, j)) for j, part in enumerate(self.parts)]
            found[count] = torch.cat([part.draw(k, size, seed, *at) for part, at in own], 1)
        return found

    @property
    def fixed(self) -> bool:
        """Whether all layouts are the same."""
        return all(part.fixed is not None for part in self.parts)

    def shared(
        self, size: int, number: int, seed: int, *path: str | int
    ) -> tuple[dict[int, Tensor], Tensor]:
        """Return the same for runs that share so many of them, and which (size,) each run has.

        Places that are stated are no sample of layouts: there runs are independent.
        """
        if self.fixed:
            return self.layouts(size, seed, *path), torch.arange(size)
        number = min(number, size)
        groups = torch.arange(size) * number // size
        drawn = self.layouts(number, seed, *path)
        return {count: one[groups] for count, one in drawn.items()}, groups


def _places(
    sensors: object, first: int, size: int, one: Field, points: Tensor | None
) -> tuple[Places, object]:
    """Return where sensors of a field stand, and the same as a list for a card.

    Without points only numbers of sensors are possible.
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
        if wrong := [m for m in counts if not 1 <= m <= size]:
            raise ConfigError(f"sensors: counts must be from 1 to {size}, found {wrong[0]}")
        return Places(first, size, tuple(counts)), counts
    if points is None:
        raise ConfigError(
            "sensors: places need a single input field; give counts instead, or places by field"
        )
    domain, places = one.domain, torch.from_numpy(array).double()
    places = places[:, None] if places.ndim == 1 else places
    if places.ndim != 2 or places.shape[1] != domain.dim or not len(places):
        raise ConfigError(
            f"sensors: counts, or places of shape (m, {domain.dim}), expected; "
            f"found {tuple(array.shape)}"
        )
    domain.require_inside(places)
    nearest = torch.cdist(places, points[:, : domain.dim]).argmin(1).unique()
    return Places(first, size, (len(nearest),), nearest), points[nearest].tolist()

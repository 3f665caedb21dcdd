"""The answer over time: the law of fields at instants that follow each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uqsonet.dynamics.filters import Path
from uqsonet.emulator.answer import FieldPosterior
from uqsonet.emulator.field_law import FieldLaw
from uqsonet.gauss.posterior import Joint
from uqsonet.sensors.sensors import Sensors

Dynamics = Any  # `uqsonet.dynamics.dynamics.Dynamics`, whose methods call this file


class LawOverTime(FieldLaw):
    """The law of one field at T instants, worked out together: samples are trajectories."""

    def of(self, number: int) -> LawOverTime:
        """Return the law of another field."""
        return LawOverTime(self.emulator, self.sets, number, self.likelihood, self._kept)

    def _parts(self) -> Iterator[slice]:
        yield slice(0, len(self.sets))


class OverTime(FieldPosterior):
    """The law of all fields at T instants: results have T where those of one instant have sets.

    `mean` and `std` are (T, M), `sample` is (T, n, M), `quantile` (T, Q, M). A sample of a smooth
    answer is one trajectory; those of a filter belong to their instants alone.
    """

    def __init__(self, law: FieldLaw, chosen: bool, about: tuple[Any, ...]) -> None:
        super().__init__(law, chosen)
        self._about = about
        self.dynamics, self.first, self.path, self.smooth = about

    @classmethod
    def of(
        cls, dynamics: Dynamics, sets: Sensors, first: int, path: Path, smooth: bool
    ) -> OverTime:
        """Return the answer of a path."""
        emulator = dynamics.emulator
        given, model = path.law(0, smooth), emulator.operator
        both = model.output_posterior(given, False), model.input_posterior(given, False)
        law = LawOverTime(emulator, sets, len(emulator.inputs),
                          kept={0: Joint.exact(*both, len(sets))})  # fmt: skip
        return cls(law, len(emulator.outputs) == 1, (dynamics, first, path, smooth))

    def __getitem__(self, name: str) -> OverTime:
        """Return the law of one field."""
        return OverTime(super().__getitem__(name)._law, True, self._about)

    @property
    def times(self) -> np.ndarray:
        """Times (T,) of the instants."""
        return self.dynamics.clock.times(self.first + np.arange(len(self.path)))

    def to_xarray(self, level: float = 0.9, points: object = None, samples: int = 0) -> Any:
        """Return mean, std, band and samples as an xarray.Dataset with a dimension of time."""
        found = super().to_xarray(level, points, samples)
        return found.rename(set="time").assign_coords(time=self.times)


def joined(one: Sensors, other: Sensors) -> Sensors:
    """Return the sets of both, one after another."""
    width = max(one.mask.shape[1], other.mask.shape[1])

    def wide(t: Tensor) -> Tensor:
        more = torch.zeros(len(t), width - t.shape[1], *t.shape[2:], dtype=t.dtype)
        return torch.cat([t, more], 1)

    names = one.tensors()
    parts = {k: torch.cat([wide(getattr(one, k)), wide(getattr(other, k))]) for k in names}
    return replace(one, **parts, labels=[*one.labels, *other.labels])

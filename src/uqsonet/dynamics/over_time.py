"""The answer over time: the law of fields at instants that follow each other."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from uqsonet.dynamics.filters import Path
from uqsonet.emulator.answer import FieldPosterior
from uqsonet.emulator.calibration import runs_needed
from uqsonet.emulator.field_law import FieldLaw
from uqsonet.errors import ObservationError, ObservationWarning, renamed
from uqsonet.gauss.gaussian import condition
from uqsonet.gauss.posterior import Joint
from uqsonet.gauss.seeds import RNG, root_of
from uqsonet.sensors.sensors import Sensors

Dynamics = Any  # `uqsonet.dynamics.dynamics.Dynamics`, whose methods call this file


class LawOverTime(FieldLaw):
    """The law of one field at T instants, worked out together: samples are trajectories."""

    def __init__(
        self, emulator: Any, sets: Sensors, number: int, path: Path, smooth: bool,
        kept: dict[Any, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(emulator, sets, number, kept=kept)
        self.path, self.smooth = path, smooth

    def of(self, number: int) -> LawOverTime:
        """Return the law of another field."""
        return LawOverTime(self.emulator, self.sets, number, self.path, self.smooth, self._kept)

    def effective_size(self) -> Tensor:
        """Return the number (T,) of members behind the answer; infinite in closed form."""
        return self.joint(slice(0, len(self.sets))).effective_size

    def _parts(self) -> Iterator[slice]:
        yield slice(0, len(self.sets))

    def joint(self, part: slice, stacklevel: int = 6) -> Joint:
        """Return the law of all instants."""
        if 0 not in self._kept:
            given, model = self.path.law(0, self.smooth), self.emulator.operator
            both = model.output_posterior(given, False), model.input_posterior(given, False)
            size = torch.full((len(self.sets),), self.path.effective, dtype=torch.float64)
            self._kept[0] = Joint(*both, size, torch.ones_like(size))
        return self._kept[0]


@renamed(seed="rng")
class OverTime(FieldPosterior):
    """The law of all fields at T instants: results have T where those of one instant have sets.

    `mean` and `std` are (T, M), `sample` is (T, n, M), `quantile` (T, Q, M). A sample of a smooth
    answer is one trajectory; those of a filter belong to their instants alone.
    """

    def __init__(self, law: LawOverTime, chosen: bool, dynamics: Dynamics) -> None:
        super().__init__(law, chosen)
        self.dynamics, self.path, self.smooth = dynamics, law.path, law.smooth

    @classmethod
    def of(cls, dynamics: Dynamics, sets: Sensors, path: Path, smooth: bool) -> OverTime:
        """Return the answer of a path."""
        number = len(dynamics.fields)
        law = LawOverTime(dynamics.emulator, sets, number, path, smooth)
        return cls(law, number == 1, dynamics)

    def __getitem__(self, name: str) -> OverTime:
        """Return the law of one field."""
        law: Any = super().__getitem__(name)._law
        return OverTime(law, True, self.dynamics)

    def __repr__(self) -> str:
        names = self.field.name if self._chosen else ", ".join(f.name for f in self.dynamics.fields)
        times, read = self.times, int(self.sensors.mask.sum())
        return f"OverTime({names} from {times[0]} to {times[-1]}, given {read} readings)"

    @property
    def times(self) -> np.ndarray:
        """Times (T,) of the instants."""
        return self.dynamics.clock.times(self.path.first + np.arange(len(self.path)))

    @property
    def batch(self) -> tuple[str, np.ndarray]:
        """Name and labels (T,) of the dimension of instants."""
        return "time", self.times

    def given(self, sets: Sensors) -> FieldPosterior:
        """Refuse: readings over time are given to `Dynamics.condition`."""
        raise ObservationError("an answer over time: condition the model on other readings")

    @property
    def number(self) -> int:
        """Number of the field among those that sensors read."""
        return self.law.number % len(self.dynamics.fields)

    def band(
        self, level: float = 0.9, points: object = None, kind: Any = None, whole: bool = False,
        rng: RNG = 0,
    ) -> tuple[Any, Any]:  # fmt: skip
        """Return the lower and upper end of a band (`FieldPosterior.band`).

        By default it is plain where too few trajectories calibrate the level, with a warning.
        """
        runs = self.dynamics.factors.runs(self.law)
        if kind is None and not whole and 0 < runs < runs_needed(level):
            warnings.warn(
                f"a plain band: a conformal one of level {level:g} needs {runs_needed(level)} "
                f"calibration runs, this model has {runs} (fit_dynamics keeps 15 % of them)",
                ObservationWarning,
                stacklevel=3,
            )
            kind = "plain"
        return super().band(level, points, kind, whole, rng)

    @property
    def _calibrated(self) -> bool:
        return bool(self.dynamics.factors.runs(self.law))

    def widened(self, plain: Tensor, level: float, whole: bool) -> Tensor:
        """Return lower end, median and upper end (T, 3, M) of a plain band, made conformal.

        Each instant has a factor of its own; `whole` functions are those of one instant.
        """
        return self.dynamics.factors.widened(self.law, plain, level, whole)

    def plot(
        self, path: object = None, level: float = 0.9, title: str | None = None,
        truth: object = None, points: object = None,
    ) -> Any:  # fmt: skip
        """Draw mean and std over time, or of a single number its band; returns the figure.

        Parameters
        ----------
        path : path, optional
            Where to save the picture: PNG, PDF or SVG.
        level : float
        title : str, optional
        truth : array (T, M), optional
        points : None
            The picture is at the field's own points.
        """
        from uqsonet.show.over_time import draw_over_time

        if points is not None:
            raise ObservationError("a picture over time is at the field's own points")
        return draw_over_time(self, path, level, title, truth)

    def film(self, path: object, truth: object = None, rate: int = 8) -> None:
        """Write mean and std, instant after instant, as a film: GIF, or MP4 where ffmpeg is there.

        Parameters
        ----------
        path : path
        truth : array (T, M), optional
            It is shown beside.
        rate : int
            Instants in a second.
        """
        from uqsonet.show.over_time import film

        film(self, path, truth, rate)

    def place(
        self, n: int, candidates: object = None, *, times: object = None, target: object = None,
        noise_std: float = 0.0, size: int = 1000, rng: RNG = 0,
    ) -> list[NextReading]:  # fmt: skip
        """Choose where and when to measure next: each reading takes the most variance.

        Parameters
        ----------
        n : int
            Readings to choose, one after another; later ones know of the earlier.
        candidates : array (m, d), optional
            Places; by default the field's own points.
        times : array, optional
            Instants of the answer at which one may read; by default all.
        target : optional
            The instant at which the field is to be known; by default the last.
        noise_std : float
            Of the new readings, in the transformed field.
        size : int
            Samples behind the covariances.
        rng : int, SeedSequence or Generator

        Notes
        -----
        It is the gain of the best linear prediction from the new readings, averaged over the
        field's points, by covariances between instants that samples of whole trajectories show. So
        the answer must be a smooth one.
        """
        if not self.smooth:
            raise ObservationError(
                "place: instants of a filter do not belong together; smooth=True"
            )
        number = len(self.path) - 1 if target is None else self._number(target, "target")
        asked: Any = self.times if times is None else times
        at = [self._number(one, "times") for one in asked]
        x, law, seed = self._points(candidates), self.law, root_of(rng)
        wanted = law.field.transform.forward(law.sample(size, self._points(None), seed)[number])
        read = law.field.transform.forward(law.sample(size, x, seed)[at])
        wanted, read = ((one - one.mean(-2, keepdim=True)).mT for one in (wanted, read))
        found = _greedy(wanted, read.flatten(0, 1), noise_std, n)
        return [
            NextReading(self.times[at[k // len(x)]], x[k % len(x)].numpy(), before**0.5, after**0.5)
            for k, before, after in found
        ]

    def _number(self, time: object, what: str) -> int:
        """Return which of the answer's instants a time is."""
        number = int(self.dynamics.clock.numbers(time, what)[0]) - self.path.first
        if not 0 <= number < len(self.path):
            raise ObservationError(f"{what}: {time} is none of the answer's instants")
        return number


class NextReading(NamedTuple):
    """A reading that is worth the most: when, where, and the target's std before and after it."""

    time: Any
    place: np.ndarray
    before: float
    after: float


def _greedy(
    wanted: Tensor, read: Tensor, noise_std: float, n: int
) -> Iterator[tuple[int, float, float]]:
    """Yield which of candidates (C, S) take most of the variance of targets (M, S), by samples."""
    size, nothing = wanted.shape[1] - 1, torch.zeros(1, dtype=torch.float64)
    for _ in range(n):
        own = read.square().sum(1) / size
        gain = (read @ wanted.T / size).square().mean(1) / (own + noise_std**2).clamp_min(1e-300)
        best = int(torch.where(own > 1e-12 * own.max(), gain, 0.0).argmax())
        before = float(wanted.square().sum(1).mean() / size)
        known = condition(read[best : best + 1] / size**0.5, nothing, noise_std, None)
        wanted, read = known.spread(wanted), known.spread(read)
        yield best, before, float(wanted.square().sum(1).mean() / size)

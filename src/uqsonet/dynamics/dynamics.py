"""What a user holds of fields over time: a step, the law of an instant, and how bands hold.

`uqsonet.fit_dynamics` returns it; `Dynamics.condition` takes readings over time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from uqsonet.dynamics.conformal import FactorsOverTime
from uqsonet.dynamics.filters import MEMBERS, Library, Model, Readings
from uqsonet.dynamics.over_time import OverTime
from uqsonet.dynamics.trajectories import Clock, Trajectories
from uqsonet.emulator.checks import check
from uqsonet.emulator.emulator import Emulator
from uqsonet.emulator.encode import encode
from uqsonet.errors import ObservationError, renamed
from uqsonet.files import require_memory
from uqsonet.gauss.gaussian import sensor_noise
from uqsonet.gauss.seeds import RNG, root_of
from uqsonet.sensors.reading import is_table, read_sensors
from uqsonet.sensors.sensors import Sensors, one_after_another
from uqsonet.sensors.tables import columns_of

if TYPE_CHECKING:
    from uqsonet.dynamics.validate import LeadReport

MAX_INSTANTS = 100_000  # instants of an answer, at most


@renamed(seed="rng")
@dataclass(frozen=True)
class Dynamics:
    """Fields over time that have been learned, ready for sensors.

    Attributes
    ----------
    emulator : Emulator
        Of one instant: its fields, their modes, what these leave out.
    over_time : int
        Number of the fields that change over time: the first ones.
    clock : Clock
        How instants are counted.
    model : Model
        The step, what it leaves over, and the runs' coefficients.
    calibration : Library
        Runs that calibrate bands.
    card : dict
        What it was made from, what was tried, and how it scored.
    """

    emulator: Emulator
    over_time: int
    clock: Clock
    model: Model
    calibration: Library
    card: dict[str, Any] = field(default_factory=dict)

    @property
    def fields(self) -> list[Any]:
        """All fields, those over time first."""
        return self.emulator.inputs

    @cached_property
    def factors(self) -> FactorsOverTime:
        """Conformal factors of bands."""
        return FactorsOverTime(self)

    def condition(
        self, sensors: object = None, values: object = None, mask: object = None,
        noise_std: object = None, *, times: object = None, until: object = None,
        smooth: bool = True, rng: RNG = 0, **named: object,
    ) -> OverTime:  # fmt: skip
        """Return the law of all fields at all instants, given readings over time.

        Parameters
        ----------
        sensors, values, mask, noise_std, **named
            As `Emulator.condition` takes them, where a set is what is read at one instant: an array
            of locations (m, d) with values (T, m), locations (T, m, d) of sensors that move, a mask
            (T, m) of those that come and go, a list of sets; by the field's name, or a table with
            a column ``time``. NaN are values that were not read.
        times : array (T,), optional
            Instants of the sets; by default they follow each other from the runs' first on. Between
            them there may be some without readings.
        until : optional
            The last instant of the answer, for a forecast; by default that of the last readings,
            before which it may not be.
        smooth : bool
            An instant knows of all readings (the default), or of those until then alone: the
            filter. Beyond the last reading both are the forecast.
        rng : int, SeedSequence or Generator
            Of the ensemble, where the step is not linear.

        Returns
        -------
        OverTime
            A posterior with an axis of time where that of one instant may have one of sets.

        Raises
        ------
        ObservationError
            If readings cannot be used; the message names what it is about.
        DataError
            If an instant lies between two steps.
        """
        sets = self._sets(sensors, values, mask, noise_std, times, until, named)
        read = self.readings(encode(self.emulator, sets))
        path = self.model.followed(read, int(sets.labels[0]), root_of(rng))
        return OverTime.of(self, sets, path, smooth)

    def _sets(
        self, sensors: Any, values: Any, mask: Any, noise_std: Any, times: Any, until: Any,
        named: Any, start: int | None = None,
    ) -> Sensors:  # fmt: skip
        """Return a set for each instant, named by its number, empty where nothing is read.

        They go from number `start` on, by default the first reading's, to that of `until`.
        """
        if sensors is not None and values is None and is_table(sensors):
            sensors, times = self._by_time(sensors, times)
        read = read_sensors(self.fields, sensors, values, mask, noise_std, named or None,
                            range(self.over_time))  # fmt: skip
        if mask is None:  # readings that are missing
            there = read.values.isfinite()
            read = replace(read, mask=read.mask & there, values=read.values.nan_to_num())
        count = len(read)
        instants = (start or 0) + np.arange(count) if times is None else self.clock.numbers(times)
        if len(instants) != count:
            raise ObservationError(f"{count} sets of readings, and {len(instants)} times")
        order = np.argsort(instants, kind="stable")
        instants = instants[order]
        if (np.diff(instants) == 0).any():
            raise ObservationError("times: two sets of readings at one instant; join them")
        first = int(instants[0]) if start is None else start
        if instants[0] < first:
            known = self.clock.times(np.array(first - 1))
            raise ObservationError(
                f"the answer knows instants until {known}, and the new readings begin before"
            )
        last = int(instants[-1] if until is None else self.clock.numbers(until, "until")[0])
        if not instants[-1] <= last < first + MAX_INSTANTS:
            raise ObservationError(f"until: {until} is before the last reading, or too far ahead")
        modes = len(self.model.step.scale)
        require_memory(3 * (last - first + 1) * modes * max(modes, MEMBERS), "the answer")
        wanted = np.arange(first, last + 1)
        place = np.searchsorted(instants, wanted).clip(max=count - 1)
        there = torch.from_numpy(instants[place] == wanted)
        sets = read.each(lambda t: t[torch.from_numpy(order[place])])
        labels = [str(k) for k in wanted]
        sets = replace(sets, mask=sets.mask & there[:, None], labels=labels, single=False)
        check(self.emulator, sets, stacklevel=4, gaussian=False)
        return sets

    def _by_time(self, sensors: Any, times: Any) -> tuple[Any, Any]:
        """Return a table whose sets are its instants, and these."""
        columns, where = columns_of(sensors, self.fields)
        columns = dict(columns)
        if "time" not in columns:
            return sensors, times
        if times is not None or "set" in columns:
            raise ObservationError(f"{where}: has a column 'time'; leave out times and 'set'")
        instants = self.clock.numbers(columns.pop("time"), f"{where}, column 'time'")
        order = np.argsort(instants, kind="stable")
        columns = {name: [cells[k] for k in order] for name, cells in columns.items()}
        columns["set"] = [str(k) for k in instants[order]]
        return columns, self.clock.times(np.unique(instants))

    def readings(self, ready: Sensors) -> Readings:
        """Return what encoded sensors read, as filters take it; values (T, 1, m)."""
        bases = self.emulator.bases
        assert bases is not None
        rows, values = bases.at_sensors(ready)
        level = ready.noise_level(0.0)
        noise = sensor_noise(level, bases.input_remainder, norm=ready.norm(2))
        noise = torch.as_tensor(noise).expand_as(values)
        return Readings(rows[:, None], values[:, None], noise[:, None], ready.mask[:, None])

    def update(
        self, answer: OverTime, sensors: object = None, values: object = None, mask: object = None,
        noise_std: object = None, *, times: object = None, until: object = None, **named: object,
    ) -> OverTime:  # fmt: skip
        """Return an answer with later readings, without working out the former again.

        They are given as to `condition`; by default they follow the answer's last instant.
        """
        known = answer.path
        start = known.first + len(known)
        sets = self._sets(sensors, values, mask, noise_std, times, until, named, start)
        path = known.going_on(self.readings(encode(self.emulator, sets)))
        return OverTime.of(self, one_after_another([answer.sensors, sets]), path, answer.smooth)

    def validate(
        self, held_out: Trajectories, sensors: int = 3, *, read: int, field: str | None = None,
        noise_std: float | None = None, smooth: bool = False, rng: RNG = 0,
    ) -> LeadReport:  # fmt: skip
        """Score the model on runs that it has not seen, instant by instant.

        Parameters
        ----------
        held_out : Trajectories
        sensors : int
            Of the field, at random points, others for each run.
        read : int
            Instants with readings, from each run's first on; the rest is forecast.
        field : str, optional
            What is read and scored; by default the first field.
        noise_std : float, optional
            Of the readings; by default the model's.
        smooth : bool
            Score the smoother; by default the filter.
        rng : int, SeedSequence or Generator

        Returns
        -------
        LeadReport
            RMSE, spread, CRPS, coverage and ranks by lead; prints as a table.
        """
        from uqsonet.dynamics.validate import validate

        return validate(self, held_out, sensors, read, field, noise_std, smooth, root_of(rng))

    def save(self, path: Any) -> None:
        """Write the model to a file that `Dynamics.load` reads."""
        from uqsonet.dynamics.files import save_dynamics

        save_dynamics(self, path)

    @classmethod
    def load(cls, path: Any) -> Dynamics:
        """Return the model that a file holds; `DataError` if it holds none."""
        from uqsonet.dynamics.files import read_dynamics

        return cls(**read_dynamics(path))

    def __repr__(self) -> str:
        names = ", ".join(one.name for one in self.fields)
        return f"Dynamics({names}, a step of {self.clock.length}, {self.card.get('step', '')})"

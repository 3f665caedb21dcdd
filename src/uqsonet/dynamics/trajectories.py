"""Trajectories: runs of fields over time, of any length and with gaps, checked.

>>> runs = uqsonet.Trajectories({"u": U}, times, constants={"nu": nu})  # U (N, T, n), nu (N,)
>>> runs = uqsonet.open_trajectories("runs.nc", "u", constants="nu")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from uqsonet.errors import DataError
from uqsonet.fields.numbers import plain_array
from uqsonet.gauss.seeds import numpy_generator
from uqsonet.runs.field_runs import FieldRuns
from uqsonet.runs.files import listed, paths_of
from uqsonet.runs.formats import as_dataset
from uqsonet.runs.labelled import RUN_NAMES, TIME, axis_number
from uqsonet.runs.runs import Runs, group_numbers

OFF_STEP = 1e-3  # of a step: instants farther from its multiples are refused
MIN_BLOCKS = 20  # fewer trajectories are cut into so many pieces, that some can be held out
MIN_BLOCK = 8  # instants of such a piece, at least


@dataclass(frozen=True)
class Clock:
    """How instants are counted: the time of number zero, and the length of a step.

    Times are numbers, or datetime64; then a step is a timedelta64.
    """

    start: Any
    step: Any

    def numbers(self, times: object, what: str = "times") -> np.ndarray:
        """Return the numbers (T,) of instants; `DataError` for one between two steps."""
        array = np.atleast_1d(np.asarray(times))
        dated = np.asarray(self.start).dtype.kind == "M"
        try:
            array = array.astype("M8[ns]") if dated else array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"{what}: {error}") from None
        steps = (array - self.start) / self.step
        whole = np.round(steps)
        if not np.isfinite(steps).all() or (np.abs(steps - whole) > OFF_STEP).any():
            bad = array[~(np.abs(steps - whole) <= OFF_STEP)][0]
            raise DataError(
                f"{what}: {bad} lies between two steps; they are {self.length} long, from "
                f"{self.start} on"
            )
        return whole.astype(np.int64)

    @property
    def length(self) -> str:
        """Length of a step in words."""
        if np.asarray(self.step).dtype.kind != "m":
            return f"{self.step:g}"
        import pandas as pd

        return str(pd.Timedelta(self.step)).removeprefix("0 days ")

    def times(self, numbers: np.ndarray) -> np.ndarray:
        """Return the times of instants."""
        return self.start + np.asarray(numbers) * self.step

    @classmethod
    def of(cls, times: np.ndarray, step: object = None) -> Clock:
        """Return the clock of rising times (N, T): its step is their smallest difference."""
        if times.dtype.kind == "M":
            times = times.astype("M8[ns]")
        apart = np.diff(times, axis=-1)
        zero = apart.dtype.type(0)
        if apart.size == 0 or not (apart > zero).all():
            raise DataError("times must rise, in two instants or more")
        length = apart.min() if step is None else np.asarray(step).astype(apart.dtype)[()]
        return cls(times.min(), length)

    def as_dict(self) -> dict[str, Any]:
        """Return the clock as a header holds it."""
        kind = np.asarray(self.start).dtype.kind
        return {"dated": kind == "M", "start": _number(self.start), "step": _number(self.step)}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Clock:
        """Return the clock of a header; KeyError, TypeError or ValueError if there is none."""
        if stored["dated"]:
            start, step = np.datetime64(int(stored["start"]), "ns"), int(stored["step"])
            found = cls(start, np.timedelta64(step, "ns"))
        else:
            found = cls(float(stored["start"]), float(stored["step"]))
        if not found.step > type(found.step)(0) or found.step != found.step:
            raise ValueError(f"a step of {found.step}")
        return found


def _number(value: Any) -> float | int:
    array = np.asarray(value)
    return int(array.astype(np.int64)) if array.dtype.kind in "mM" else float(array)


class Trajectories:
    """N runs of fields over time.

    Parameters
    ----------
    fields : mapping of str to array (N, T, ...), or (array, points)
        What changes over time, on a grid or at points (`FieldRuns.of`). Instants that are NaN in
        all fields are gaps: runs may have other lengths, and holes.
    times : array (T,) or (N, T), optional
        Numbers or dates of the instants, rising; by default 0, 1, ... Their smallest difference is
        a step, and all must be multiples of it.
    constants : mapping of str to array (N,) or (N, ...), or (array, points), optional
        What differs from run to run and stays the same in each: parameters, a map of a property.
        Sensors rarely see them, but what happens tells.
    groups : sequence of N labels, optional
        Runs that belong together never stand on both sides of a split.
    step : number or timedelta, optional
        Length of a step, where the smallest difference is not meant.
    periodic : bool, or names of axes
        As in `FieldRuns.of`.
    transform : mapping of field to {"identity", "log", "asinh"}, optional
        In which a field is close to Gaussian; by default it is taken as it is.
    name : str

    Attributes
    ----------
    snapshots : Runs
        Its inputs are the fields, the first `over_time` of them over time, with a row for each of S
        snapshots.
    run, instant : ndarray of int, shape (S,)
        The run of each snapshot, and the number of its instant.
    groups : ndarray of int, shape (N,)
    clock : Clock

    Raises
    ------
    DataError
        If shapes do not fit, an instant has some values and not others, or none has a next one.
    """

    def __init__(
        self, fields: Mapping[str, object], times: object = None,
        constants: Mapping[str, object] | None = None, groups: object = None, step: object = None,
        periodic: bool | str | Sequence[str] = False, transform: Mapping[str, str] | None = None,
        name: str = "trajectories",
    ) -> None:  # fmt: skip
        constants, kinds = constants or {}, transform or {}
        if not isinstance(fields, Mapping) or not fields:
            raise DataError("fields: a mapping of names to arrays (runs, instants, points)")
        if both := set(fields) & set(constants):
            raise DataError(
                f"{both.pop()}: a field over time and a constant; name them differently"
            )
        if unknown := set(kinds) - set(fields) - set(constants):
            raise DataError(f"transform: {unknown.pop()!r} is none of the fields")
        arrays = {key: _of_snapshots(value, key) for key, value in fields.items()}
        if len({one.shape for one in arrays.values()}) > 1:
            found = ", ".join(f"{key} has {one.shape}" for key, one in arrays.items())
            raise DataError(f"fields have different numbers of runs and instants: {found}")
        n, count = next(iter(arrays.values())).shape
        present = np.any([one.present for one in arrays.values()], axis=0)
        for key, one in arrays.items():
            if (odd := present & ~one.present).any():
                run, at = divmod(int(odd.argmax()), count)
                raise DataError(f"{key}: nothing at instant {at} of run {run}, where others are")
        self.name, self.over_time = name, len(fields)
        self.run, column = np.divmod(np.flatnonzero(present), count)
        when = np.arange(count, dtype=np.float64) if times is None else np.asarray(times)
        if when.shape not in ((count,), (n, count)):
            raise DataError(f"times: shape {when.shape}, expected ({count},) or ({n}, {count})")
        self.clock = Clock.of(np.atleast_2d(when), step)
        numbers = self.clock.numbers(when.ravel()).reshape(when.shape)
        self.instant = np.broadcast_to(numbers, (n, count))[self.run, column]

        def made(key: str, values: Any, points: object, repeats: Any) -> FieldRuns:
            kind = kinds.get(key, "identity")
            return FieldRuns.of(values, points, kind, periodic=repeats, name=key)

        found = {k: made(k, one.values[present], one.points, periodic) for k, one in arrays.items()}
        for key, value in constants.items():
            values, points = _with_points(value)
            one = made(key, values, points, periodic if points is not None else False)
            if len(one) != n:
                raise DataError(f"{key}: {len(one)} values, one for each of {n} runs expected")
            found[key] = replace(one, values=one.values[self.run])
        self.snapshots = Runs(found, name=name)
        self.groups = np.arange(n) if groups is None else group_numbers(groups, n)
        if not len(self.pairs()[0]):
            raise DataError(f"{name}: no instant is followed by one a step later")

    def __len__(self) -> int:
        return len(self.groups)

    def __repr__(self) -> str:
        names = ", ".join(self.snapshots.inputs)
        return f"Trajectories({len(self)} runs, {len(self.run)} instants of {names})"

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers (P,) of snapshots that have one a step later, and of these."""
        follows = (np.diff(self.run) == 0) & (np.diff(self.instant) == 1)
        first = np.flatnonzero(follows)
        return first, first + 1

    def __getitem__(self, index: object) -> Trajectories:
        """Return some of the runs, by their numbers."""
        numbers = np.arange(len(self))[np.asarray(index) if not isinstance(index, slice) else index]
        place = np.full(len(self), -1)
        place[numbers] = np.arange(len(numbers))
        order = np.argsort(place[self.run], kind="stable")
        rows = order[place[self.run][order] >= 0]
        return self._with(rows, place[self.run[rows]], self.groups[numbers])

    def _with(self, rows: np.ndarray, run: np.ndarray, groups: np.ndarray) -> Trajectories:
        """Return snapshots of these rows, which are now of these runs."""
        some = copy(self)
        some.snapshots = self.snapshots[rows]
        some.run, some.instant, some.groups = run, self.instant[rows], groups
        return some

    def cut(self) -> Trajectories:
        """Return runs cut into pieces where there are few: some pieces can then be held out."""
        if len(np.unique(self.groups)) >= MIN_BLOCKS:
            return self
        length = max(MIN_BLOCK, -(-len(self.run) // MIN_BLOCKS))
        start = np.searchsorted(self.run, np.arange(len(self)))
        every = np.arange(len(self.run))
        piece = self.run * len(every) + (every - start[self.run]) // length
        labels, run = np.unique(piece, return_inverse=True)
        return self._with(every, run, np.arange(len(labels)))

    def split(self, seed: int, shares: Sequence[float]) -> list[Trajectories]:
        """Split the runs at random into parts of such shares; groups stay together."""
        labels = np.unique(self.groups)
        order = numpy_generator(seed, "trajectories", "split").permutation(labels)
        ends = np.round(np.cumsum(shares) * len(labels)).astype(int)[:-1]
        return [self[np.flatnonzero(np.isin(self.groups, part))] for part in np.split(order, ends)]


def open_trajectories(
    path: Path | str, fields: str | Sequence[str], constants: str | Sequence[str] = (),
    time: str | None = None, run: str | None = None, **options: Any,
) -> Trajectories:  # fmt: skip
    """Return the trajectories that a NetCDF or Zarr file holds.

    Parameters
    ----------
    path : path, or xarray.Dataset
    fields, constants : str or sequence of str
        Names of variables, as ``"u,v"`` or a list. Constants have no dimension of time.
    time, run : str, optional
        Dimensions that count instants and runs; by default those that the CF conventions or usual
        names tell. Without one of runs there is a single run.
    **options
        ``groups``, ``step``, ``periodic``, ``transform`` and ``name`` of `Trajectories`.

    Raises
    ------
    DataError
        If the file cannot be read, or a variable cannot be used.
    """
    if hasattr(path, "data_vars"):
        return _trajectories(path, fields, constants, time, run, options)
    (one,) = paths_of([path])
    with as_dataset(one) as data:
        try:
            return _trajectories(data, fields, constants, time, run, {"name": one.stem, **options})
        except DataError as error:
            raise DataError(f"{one}: {error}") from None


def _trajectories(
    data: Any, fields: Any, constants: Any, time: str | None, run: str | None,
    options: Mapping[str, Any],
) -> Trajectories:  # fmt: skip
    """Return the trajectories of an xarray.Dataset."""
    names, kept = listed(fields, "fields"), listed(constants, "constants") if constants else []
    if lacking := [key for key in [*names, *kept] if key not in data]:
        raise DataError(f"no variable {lacking[0]!r}; there are {', '.join(map(str, data))}")
    first = data[names[0]]
    attributes = {d: data[d].attrs if d in data.coords else {} for d in first.dims}
    named = (d for d, own in attributes.items() if axis_number(str(d), own) == TIME)
    time = time or next(named, None)
    if time is None or time not in first.dims:
        raise DataError(f"{names[0]}: no dimension of time among {first.dims}; name it: time=")
    run = run or next((d for d in RUN_NAMES if d in first.dims), "run")
    there = {key: _lined(data[key], run, time) for key in names}
    times = data[time].values if time in data.coords else None
    return Trajectories(there, times, {key: _lined(data[key], run) for key in kept}, **options)


def _lined(array: Any, *first: str) -> Any:
    """Return a labelled array with these dimensions first, of length one where it has none."""
    return array.expand_dims([name for name in first if name not in array.dims]).transpose(
        *first, ...
    )


def _with_points(value: Any) -> tuple[Any, Any]:
    """Return an array and where its values stand, None where nobody says."""
    return value if isinstance(value, tuple) and len(value) == 2 else (value, None)


class _Snapshots(NamedTuple):
    """Values (N T, ...) of a field over time, labelled or not, and which snapshots have some."""

    values: Any
    points: Any
    shape: tuple[int, int]
    present: np.ndarray


def _of_snapshots(value: Any, what: str) -> _Snapshots:
    """Return the snapshots of a field (N, T, ...)."""
    given, points = _with_points(value)
    named = hasattr(given, "dims")
    array: Any = given if named else plain_array(given, what, True, DataError)
    if array.dtype.kind not in "biuf" or array.ndim < 2:
        raise DataError(f"{what}: numbers (runs, instants, ...), found {array.dtype} {array.shape}")
    shape = array.shape[:2]
    if named:
        first = array.dims[:2]
        array = array.drop_vars(first, errors="ignore").stack(snapshot=first, create_index=False)
        array = array.transpose("snapshot", ...)
    else:
        array = array.reshape(-1, *array.shape[2:])
    missing: Any = np.isnan(np.asarray(array)).reshape(len(array), -1)
    return _Snapshots(array, points, shape, ~missing.all(1))

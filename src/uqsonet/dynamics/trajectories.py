"""Trajectories: runs of fields over time, of any length and with gaps, checked.

>>> runs = uqsonet.Trajectories({"u": U}, times, constants={"nu": nu})  # U (N, T, n), nu (N,)
>>> runs = uqsonet.open_trajectories("runs.nc", "u", constants="nu")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from uqsonet.errors import DataError, library
from uqsonet.fields.numbers import plain_array
from uqsonet.gauss.seeds import numpy_generator
from uqsonet.runs.datasets import as_dataset
from uqsonet.runs.field_runs import FieldRuns
from uqsonet.runs.files import listed, paths_of
from uqsonet.runs.labelled import RUN_NAMES
from uqsonet.runs.runs import group_numbers

TIME_NAMES = ("time", "t", "valid_time", "date", "step")  # dimensions that count instants
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
                f"{what}: {bad} lies between two steps; they are {self.step} long, from "
                f"{self.start} on"
            )
        return whole.astype(np.int64)

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
    fields, constants : dict of FieldRuns
        With a row for each of S snapshots, and for each of N runs.
    run, instant : ndarray of int, shape (S,)
        The run of each snapshot, and the number of its instant.
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
        if not isinstance(fields, Mapping) or not fields:
            raise DataError("fields: a mapping of names to arrays (runs, instants, points)")
        if both := set(fields) & set(constants or {}):
            raise DataError(
                f"{both.pop()}: a field over time and a constant; name them differently"
            )
        kinds = dict(transform or {})
        if unknown := set(kinds) - set(fields) - set(constants or {}):
            raise DataError(f"transform: {unknown.pop()!r} is none of the fields")
        arrays, places = {}, {}
        for key, value in fields.items():
            array, places[key] = _with_points(value)
            arrays[key] = _instants(array, f"{key}: values")
        sizes = {one.shape[:2] for one in arrays.values()}
        if len(sizes) > 1:
            found = ", ".join(f"{k} {v.shape[0]} x {v.shape[1]}" for k, v in arrays.items())
            raise DataError(f"fields have different numbers of runs and instants: {found}")
        (n, count), self.name = sizes.pop(), name
        whole = {k: ~np.isnan(v.reshape(n, count, -1)).all(2) for k, v in arrays.items()}
        present = np.any(list(whole.values()), axis=0)
        for key, one in whole.items():
            if (one != present).any():
                run, at = np.argwhere(one != present)[0]
                raise DataError(f"{key}: nothing at instant {at} of run {run}, where others are")
        self.run, column = np.nonzero(present)
        when = np.arange(count, dtype=np.float64) if times is None else np.asarray(times)
        if when.shape not in ((count,), (n, count)):
            raise DataError(f"times: shape {when.shape}, expected ({count},) or ({n}, {count})")
        self.clock = Clock.of(np.atleast_2d(when), step)
        numbers = self.clock.numbers(when.ravel()).reshape(when.shape)
        self.instant = np.broadcast_to(numbers, (n, count))[self.run, column]
        self.fields = {
            key: _runs_of(array[self.run, column], places[key], periodic, kinds.get(key), key)
            for key, array in arrays.items()
        }
        self.constants = {
            k: _constant(k, v, n, periodic, kinds.get(k)) for k, v in (constants or {}).items()
        }
        self.groups = np.arange(n) if groups is None else group_numbers(groups, n)
        if not len(self.pairs()[0]):
            raise DataError(f"{name}: no instant is followed by one a step later")

    @classmethod
    def of(
        cls, data: Any, fields: str | Sequence[str], constants: str | Sequence[str] = (),
        time: str | None = None, run: str | None = None, **options: Any,
    ) -> Trajectories:  # fmt: skip
        """Return the trajectories of an xarray.Dataset.

        Parameters
        ----------
        data : xarray.Dataset
        fields, constants : str or sequence of str
            Names of variables, as ``"u,v"`` or a list. Constants have no dimension of time.
        time, run : str, optional
            Dimensions that count instants and runs; by default those of usual names. Without one of
            runs there is a single run.
        **options
            ``groups``, ``step``, ``periodic``, ``transform`` and ``name`` of `Trajectories`.
        """
        names = listed(fields, "fields")
        kept = listed(constants, "constants") if len(constants) else []
        for key in [*names, *kept]:
            if key not in data:
                raise DataError(f"no variable {key!r}; there are {', '.join(map(str, data))}")
        first = data[names[0]]
        time = time or next((d for d in first.dims if str(d).lower() in TIME_NAMES), None)
        if time is None or time not in first.dims:
            raise DataError(f"{names[0]}: no dimension of time among {first.dims}; name it: time=")
        run = run or next(
            (d for d in first.dims if str(d).lower() in (*RUN_NAMES, "trajectory")), None
        )
        known = {k: _lined(data[k], (run, time) if k in names else (run,)) for k in [*names, *kept]}
        times = data[time].values if time in data.coords else None
        there = {key: known[key] for key in names}
        return cls(there, times, {k: known[k] for k in kept}, **options)

    def __len__(self) -> int:
        return len(self.groups)

    def __repr__(self) -> str:
        names = ", ".join([*self.fields, *self.constants])
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
        return self._with(rows, place[self.run[rows]], numbers)

    def _with(self, rows: np.ndarray, run: np.ndarray, numbers: np.ndarray) -> Trajectories:
        """Return snapshots of these rows, whose runs are now `run`, before of these numbers."""
        some = object.__new__(Trajectories)
        some.name, some.clock = self.name, self.clock
        some.run, some.instant, some.groups = run, self.instant[rows], self.groups[numbers]
        some.fields = {k: replace(v, values=v.values[rows]) for k, v in self.fields.items()}
        some.constants = {
            k: replace(v, values=v.values[numbers]) for k, v in self.constants.items()
        }
        return some

    def cut(self) -> Trajectories:
        """Return runs cut into pieces where there are few: some pieces can then be held out."""
        groups = np.unique(self.groups)
        if len(groups) >= MIN_BLOCKS:
            return self
        length = max(MIN_BLOCK, -(-len(self.run) // MIN_BLOCKS))
        start = np.searchsorted(self.run, np.arange(len(self)))
        piece = (np.arange(len(self.run)) - start[self.run]) // length
        _, first, run = np.unique(
            self.run * len(self.run) + piece, return_index=True, return_inverse=True
        )
        some = self._with(np.arange(len(self.run)), run, self.run[first])
        some.groups = np.arange(len(first))
        return some

    def split(self, seed: int, shares: Sequence[float]) -> list[Trajectories]:
        """Split the runs at random into parts of such shares; groups stay together."""
        labels, number = np.unique(self.groups, return_inverse=True)
        order = numpy_generator(seed, "trajectories", "split").permutation(len(labels))
        ends = np.round(np.cumsum(shares) * len(labels)).astype(int)[:-1]
        return [self[np.flatnonzero(np.isin(number, part))] for part in np.split(order, ends)]

    def snapshots(self) -> dict[str, FieldRuns]:
        """Return all fields and constants with a row for each snapshot."""
        repeated = {k: replace(v, values=v.values[self.run]) for k, v in self.constants.items()}
        return {**self.fields, **repeated}


def open_trajectories(
    path: Path | str, fields: str | Sequence[str], constants: str | Sequence[str] = (),
    time: str | None = None, run: str | None = None, **options: Any,
) -> Trajectories:  # fmt: skip
    """Return the trajectories that a NetCDF or Zarr file holds (`Trajectories.of`).

    It raises `DataError` if the file cannot be read, or a variable cannot be used.
    """
    (one,) = paths_of([path])
    with as_dataset(one) as data:
        try:
            options = {"name": one.stem, **options}
            return Trajectories.of(data, fields, constants, time, run, **options)
        except DataError as error:
            raise DataError(f"{one}: {error}") from None


def _lined(array: Any, first: Sequence[str | None]) -> Any:
    """Return a labelled array with dimensions of runs and instants first, made where none is."""
    for name in first:
        if name is None or name not in array.dims:
            array = array.expand_dims(name or "run")
    named = [name or "run" for name in first]
    return array.transpose(*named, ...)


def _with_points(value: Any) -> tuple[Any, Any]:
    """Return an array and where its values stand, None where nobody says."""
    return value if isinstance(value, tuple) and len(value) == 2 else (value, None)


def _instants(array: Any, what: str) -> Any:
    """Return values (N, T, ...) of fields as floats; labelled ones stay so."""
    if hasattr(array, "dims"):
        return _Labelled(array, what)
    found = plain_array(array, what, True, DataError)
    if found.dtype.kind not in "biuf" or found.ndim < 2:
        raise DataError(f"{what}: numbers (runs, instants, ...), found {found.dtype} {found.shape}")
    return found.astype(np.float64) if found.dtype.kind != "f" else found


class _Labelled:
    """Values of a DataArray (N, T, ...): some snapshots of it keep its names and coordinates."""

    def __init__(self, array: Any, what: str) -> None:
        if array.dtype.kind not in "biuf":
            raise DataError(f"{what}: numbers expected, found {array.dtype}")
        self._array, self.shape = array, array.shape
        self._values = np.asarray(array.values, dtype=np.float64)

    def reshape(self, *shape: int) -> np.ndarray:
        """Return the values in another shape."""
        return self._values.reshape(shape)

    def __getitem__(self, index: Any) -> Any:
        rest = self._array.dims[2:]
        own = {k: v for k, v in self._array.coords.items() if set(v.dims) <= set(rest)}
        made = library("xarray").DataArray
        return made(self._values[index], own, ("run", *rest), self._array.name, self._array.attrs)


def _runs_of(
    values: Any, points: object, periodic: Any, transform: str | None, name: str
) -> FieldRuns:
    return FieldRuns.of(values, points, transform or "identity", periodic=periodic, name=name)


def _constant(name: str, value: Any, size: int, periodic: Any, transform: str | None) -> FieldRuns:
    array, points = _with_points(value)
    found = _runs_of(array, points, periodic if points is not None else False, transform, name)
    if len(found) != size:
        raise DataError(f"{name}: {len(found)} values, one for each of {size} runs expected")
    return found

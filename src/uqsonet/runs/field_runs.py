"""The values of one field in all runs, from arrays on a grid or at scattered points."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import torch

from uqsonet.errors import DataError, DataWarning
from uqsonet.fields.cloud import MaskedGrid, Point, PointCloud
from uqsonet.fields.field import AXES, TRANSFORMS
from uqsonet.fields.grid import Grid
from uqsonet.fields.layout import LabelledField, Layout
from uqsonet.fields.numbers import is_frame, plain_array, real_numbers
from uqsonet.fields.stacked import Domain
from uqsonet.files import LARGE
from uqsonet.runs.stored import changed, row_blocks

Missing = Literal["error", "drop", "fill", "model"]
MISSING = get_args(Missing)

FILL_VALUES = (
    9.969209968386869e36, 1e20, 1e30, 1e35, -1e30, 1e36, -999.0, -9999.0, -99999.0, -32768.0,
    -32767.0, 32767.0, -999.9, -9999.9, -999999.0, 2147483647.0, -2147483648.0,
)  # fmt: skip
"""Numbers that files write for missing values: NetCDF's defaults and usual ones."""

FILL_GAP = 3.0  # a usual fill value is one if it is so many ranges of the others away from them


MAX_VALUE = 1e100  # largest absolute value: sums of squares of squares still fit in float64
SOME = 1_000_000  # number of values that show whether neighbours are alike


@dataclass(frozen=True)
class FieldRuns:
    """The values of one field in all runs; `of` makes it from arrays.

    Attributes
    ----------
    values : ndarray, shape (N, n)
        Float32, or float64 where it came so or as integers that float32 would round. NaN is what
        was not read.
    domain : Grid, MaskedGrid, PointCloud or Point
        Of n points. Points without a value in any run are not among them.
    transform : {"identity", "log", "asinh"} or None
        None leaves the choice to the data.
    units : str
    kept : ndarray of bool, shape (N,), or None
        Runs without missing values, where those with some are to be left out.
    layout : Layout or None
        How the field stands in its file.
    covariates : ndarray, shape (n, q), or None
        Maps that are known at all points, float64.
    """

    values: np.ndarray
    domain: Domain
    transform: str | None = None
    units: str = ""
    kept: np.ndarray | None = None
    layout: Layout | None = None
    covariates: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        values: object,
        points: object = None,
        transform: str | None = None,
        units: str = "",
        periodic: bool | str | Sequence[str] = False,
        missing: Missing = "error",
        name: str = "the field",
        merge: bool = False,
        covariates: object = None,
    ) -> FieldRuns:
        """Return the runs of a field from arrays.

        Parameters
        ----------
        values : array, shape (N, n), (N, n1[, n2[, n3]]) or (N,), or xarray.DataArray
            A number or a field of a run in each row; axes of length one are dropped. Masked values
            (`numpy.ma`) are NaN.
            A DataArray brings its own points, names and units, in any order of dimensions
            (`uqsonet.open_runs` says which dimension counts the runs).
        points : optional
            Where the values stand: an array (n,) or (n, d) of points, a tuple of one array for
            each axis of a grid, or a `Grid`. By default a uniform grid on the unit interval,
            square or cube.
        transform : {"identity", "log", "asinh"}, optional
            By default `uqsonet.fit` chooses by held-out scores.
        units : str
        periodic : bool, or names of axes
            The field repeats beyond its grid, whose upper end is no grid point; or along these
            axes alone, by the names that its file gives them, else x, y, z.
        missing : {"error", "drop", "fill", "model"}
            What to do about NaN: refuse them, leave out the runs that have some, interpolate from
            the other points of the run, or keep them, as `uqsonet.fit` learns from what was read.
            Points that are NaN in every run leave the domain.
        name : str
            For messages.
        merge : bool
            Points that repeat become one, with the mean of their values; else they are refused.
        covariates : array as a run, (q, ...) of several, or mapping of name to one, optional
            Maps that are known at all points, as elevation: the mean of runs with gaps
            (``missing="model"``) is drawn to a regression on them. Points without a reading stay in
            the domain where all of these are known.

        Raises
        ------
        DataError
            If shapes do not fit, values are not finite, points repeat, or the field is constant.
        """
        layout = None
        if all(hasattr(values, name) for name in ("dims", "coords", "attrs")):  # of xarray
            from uqsonet.runs.labelled import read_labelled, run_dimension

            values = read_labelled(values, run_dimension([values], None, name), name)
        if isinstance(values, LabelledField):
            if points is None:
                points, layout = values.points, values.layout
            values, units = values.values, units or values.units
        if isinstance(points, DataError):
            raise points
        array = _numeric(values, name)
        if missing not in MISSING:
            raise DataError(f"{name}: missing={missing!r}; there are {', '.join(MISSING)}")
        repeats = _repeats(periodic, layout, array.ndim - 1, name)
        array, maps = _with_maps(array, covariates, missing, layout, name)
        if merge:
            points, array, layout = _merged(points, array, layout, name)
        domain, array = _domain(points, array, repeats, name)
        if points is None:
            _notice_runs_last(array, name)
        array = array.reshape(len(array), -1)
        array, known = (
            (array[:-maps], array[-maps:].T.astype(np.float64)) if maps else (array, None)
        )
        if transform is not None and transform not in TRANSFORMS:
            raise DataError(f"{name}: transform {transform!r}; there are identity, log and asinh")
        array, seen = _without_fill_values(array, Scan.of(array), missing, name)
        absent = seen.absent if known is None else _unmapped(seen.absent, known, name)
        if absent.any():
            domain, layout = _without_absent(domain, absent, layout, name)
            present = ~absent
            array = changed(array, lambda rows: rows[:, present], name)
            known = known if known is None else known[present]
            seen = Scan.of(array)
        array, kept = _without_missing(array, seen, domain, missing, name)
        if not kept.any():
            raise DataError(f"{name}: none of {len(kept)} runs is complete")
        low, high = float(seen.lowest[kept].min()), float(seen.highest[kept].max())
        if transform == "log" and not low > 0:
            raise DataError(f"{name}: values must be positive under log, found {low:g}")
        if max(abs(low), abs(high)) > MAX_VALUE:
            raise DataError(f"{name}: values to {max(low, high, key=abs):g}, at most {MAX_VALUE:g}")
        if not high - low > 1e-12 * max(abs(low), abs(high)):  # rounding, in any unit
            raise DataError(
                f"{name}: constant over all runs and points, always {low:g}: nothing to learn"
            )
        return cls(array, domain, transform, units, None if kept.all() else kept, layout, known)

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def gaps(self) -> bool:
        """Whether some values were not read."""
        return any(bool(np.isnan(rows).any()) for rows in row_blocks(self.values))

    @property
    def absent(self) -> int:
        """Number of points that have no value in any run."""
        if isinstance(self.domain, MaskedGrid):
            return self.domain.grid.size - self.domain.size
        return 0 if self.layout is None else int((self.layout.index < 0).sum())


def _with_maps(
    array: np.ndarray, covariates: object, missing: Missing, layout: Layout | None, name: str
) -> tuple[np.ndarray, int]:
    """Return runs (N, ...) with maps as further ones, and how many of these there are."""
    if covariates is None:
        return array, 0
    if missing != "model":
        raise DataError(f"{name}: covariates are for missing='model', found missing={missing!r}")
    if layout is not None:
        raise DataError(
            f"{name}: covariates are for arrays and their points, found a DataArray, whose axes "
            "come in another order: give its values and coordinates"
        )
    maps = list(covariates.values()) if isinstance(covariates, Mapping) else covariates
    found = plain_array(maps, f"{name}: covariates", True, DataError).astype(np.float64)
    if found.ndim == array.ndim - 1:
        found = found[None]
    if found.shape[1:] != array.shape[1:] or not len(found):
        raise DataError(
            f"{name}: covariates have the shape {found.shape[1:]}, a run has {array.shape[1:]}"
        )
    return np.concatenate([array.astype(np.float64), found]), len(found)


def _unmapped(absent: np.ndarray, known: np.ndarray, name: str) -> np.ndarray:
    """Return which points have neither a reading nor all maps; refuse readings without a map."""
    lacking = ~np.isfinite(known).all(1)
    if (lacking & ~absent).any():
        point = int((lacking & ~absent).argmax())
        raise DataError(f"{name}: covariates are missing at point {point}, which some runs read")
    return absent & lacking


def _numeric(values: object, name: str) -> np.ndarray:
    """Return values as an array (N, ...) of native floats, without axes of length one."""
    array = np.atleast_1d(plain_array(values, f"{name}: values", True, DataError))
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name}: values must be real numbers, found {array.dtype}")
    small = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    if array.dtype.kind in "biu":
        small = all(np.array_equal(some.astype(np.float32), some) for some in row_blocks(array))
    kind = np.dtype(np.float32 if small else np.float64)  # native, no half or long doubles
    if array.dtype != kind or (array.nbytes > LARGE and not array.flags.c_contiguous):
        array = changed(array, lambda rows: rows.astype(kind), name)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim > 2 and 1 in array.shape[1:]:
        array = array.reshape(len(array), *([n for n in array.shape[1:] if n > 1] or [1]))
    if array.ndim < 2 or array.ndim > 4:
        raise DataError(
            f"{name}: values must have shape (runs, points) or (runs, points along each of "
            f"up to three axes), found {array.shape}"
        )
    if 0 in array.shape:
        raise DataError(f"{name}: no runs or no points, found shape {array.shape}")
    return array


@dataclass(frozen=True)
class Scan:
    """What one pass over runs (N, n) finds; ends without finite values are infinite."""

    lowest: np.ndarray  # (N,), of finite values
    highest: np.ndarray  # (N,), of finite values
    missing: np.ndarray  # (N,), number of NaN
    infinite: np.ndarray  # (N,), whether a value is
    absent: np.ndarray  # (n,), whether a point is NaN in all runs

    @classmethod
    def of(cls, values: np.ndarray) -> Scan:
        """Read runs (N, n), some at a time."""
        absent, parts = np.ones(values.shape[1], dtype=bool), []
        for rows in row_blocks(values):
            finite, nan = np.isfinite(rows), np.isnan(rows)
            absent &= nan.all(0)
            low = np.min(rows, 1, where=finite, initial=np.inf)
            high = np.max(rows, 1, where=finite, initial=-np.inf)
            parts.append((low, high, nan.sum(1), np.isinf(rows).any(1)))
        lowest, highest, missing, infinite = map(np.concatenate, zip(*parts, strict=True))
        return cls(lowest, highest, missing, infinite, absent)


def _notice_runs_last(values: np.ndarray, name: str) -> None:
    """Warn of arrays that are smooth along the first axis and rough along the last."""
    if min(values.shape) < 8:
        return
    most = round(SOME ** (1 / values.ndim))
    some = values[(slice(0, most),) * values.ndim].astype(np.float64)
    if not np.isfinite(some).all():
        return
    first, last = (roughness(some - some.mean(), axis) for axis in (0, -1))
    if first < 0.5 and last > 0.8:
        shape = " x ".join(map(str, values.shape))
        warnings.warn(
            f"{name}: {shape} values are taken as {len(values)} runs, but they are smooth along "
            "the first axis and not along the last. If the runs are last (MATLAB, Fortran), "
            "transpose the array: numpy.moveaxis(values, -1, 0)",
            DataWarning,
            stacklevel=3,
        )


def roughness(centred: np.ndarray, axis: int) -> float:
    """Return the mean squared step along an axis over twice the variance: 1 for independence.

    Steps from or to NaN do not count.
    """
    unit = centred / (np.nanmax(np.abs(centred)) or 1)
    steps = np.nanmean(np.square(np.diff(unit, axis=axis)))
    return float(steps / (2 * np.nanmean(np.square(unit)) or 1))


def _without_fill_values(
    values: np.ndarray, seen: Scan, missing: Missing, name: str
) -> tuple[np.ndarray, Scan]:
    """Return values with numbers that stand for missing ones replaced by NaN, and their scan."""
    nan = np.asarray(np.nan, values.dtype)
    for number in FILL_VALUES:
        fill = np.asarray(number, values.dtype)
        if fill not in (seen.lowest.min(), seen.highest.max()):  # no number far from all others
            continue
        count = sum(int((rows == fill).sum()) for rows in row_blocks(values))
        cleared = changed(values, lambda rows, fill=fill: np.where(rows == fill, nan, rows), name)
        rest = Scan.of(cleared)
        low, high = float(rest.lowest.min()), float(rest.highest.max())
        gap = max(low - number, number - high)
        if not low <= high or gap <= FILL_GAP * max(high - low, 1e-3 * max(abs(low), abs(high))):
            continue
        text = f"{name}: {count} values are {number:g}, far from all others"
        if missing == "error":
            raise DataError(
                f"{text} ({low:g} to {high:g}): they seem to stand for missing "
                "ones. missing='drop' leaves these runs out, missing='fill' interpolates, "
                "missing='model' learns from the others; if they are data, shift them by their "
                "rounding"
            )
        warnings.warn(f"{text}: taken as missing", DataWarning, stacklevel=3)
        values, seen = cleared, rest
    return values, seen


def _merged(
    points: object, values: np.ndarray, layout: Layout | None, name: str
) -> tuple[object, np.ndarray, Layout | None]:
    """Return points (n, d) without repetitions, and the means of runs (N, ...) at each of them."""
    if points is None or isinstance(points, tuple | list | Grid | MaskedGrid):
        return points, values, layout
    array = _table(points, f"{name}: points")
    _, first, place = np.unique(array, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)  # points stay in the order of the file
    place = np.argsort(order)[place.reshape(-1)]
    if len(first) == len(array) or math.prod(values.shape[1:]) != len(array):
        return points, values, layout
    from scipy.sparse import csr_array

    share = 1 / np.bincount(place)[place]
    average = csr_array((share, (np.arange(len(array)), place)))

    def means(rows: np.ndarray) -> np.ndarray:
        return (rows.reshape(len(rows), -1).astype(np.float64) @ average).astype(rows.dtype)

    layout = layout and layout.renumbered(place)
    return array[first[order]], changed(values, means, name), layout


def _without_absent(
    domain: Domain, absent: np.ndarray, layout: Layout | None, name: str
) -> tuple[Domain, Layout | None]:
    """Return domain and layout without the points (n,) that are NaN in every run."""
    if absent.all():
        raise DataError(f"{name}: every value is missing")
    present = ~absent
    cloud = _cloud(
        domain.points().numpy()[present], f"{name}, points that have a value in some run"
    )
    part = MaskedGrid.of(domain, present) if isinstance(domain, Grid) else cloud
    numbers = np.where(present, np.cumsum(present) - 1, -1)
    return part, layout and layout.renumbered(numbers)


def _table(points: Any, what: str) -> np.ndarray:
    """Return points as an array (n, d), those of a table by the names x, y, z."""
    if is_frame(points) and hasattr(points, "columns"):
        names = list(AXES[: len(points.columns)])
        if sorted(map(str, points.columns)) != names:
            there = ", ".join(map(str, points.columns))
            raise DataError(f"{what}: columns {there}; a table of points has {', '.join(names)}")
        points = points[names].to_numpy()
    array = real_numbers(points, what, error=DataError).numpy()
    return array[:, None] if array.ndim == 1 else array


def _cloud(points: np.ndarray, name: str) -> PointCloud:
    try:
        return PointCloud.of(points)
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


def _points_of(points: object, name: str) -> Domain:
    if isinstance(points, Grid | MaskedGrid | PointCloud):
        return points
    array = _table(points, f"{name}: points")
    if array.shape[1:] == (1,) and _is_uniform(array[:, 0]):
        return Grid((float(array[0, 0]),), (float(array[-1, 0]),), (len(array),))
    return _cloud(array, name)


def _is_uniform(axis: np.ndarray) -> bool:
    """Return whether coordinates rise by equal steps."""
    steps = np.diff(axis)
    return bool(steps.size and steps[0] > 0 and np.allclose(steps, steps[0], rtol=1e-4, atol=0))


def _repeats(
    periodic: bool | str | Sequence[str], layout: Layout | None, axes: int, name: str
) -> tuple[bool, ...]:
    """Return whether a field repeats along each axis."""
    if isinstance(periodic, bool):
        return (periodic,) * 3
    known = AXES[:axes] if layout is None else layout.axes
    named = periodic.split(",") if isinstance(periodic, str) else list(periodic)
    if unknown := [one for one in named if one not in known]:
        raise DataError(f"{name}: periodic: no axis {unknown[0]!r}; there are {', '.join(known)}")
    return tuple(one in named for one in known)


def _domain(
    points: object, values: np.ndarray, repeats: tuple[bool, ...], name: str
) -> tuple[Domain, np.ndarray]:
    """Return the domain, and the values (N, ...) in the order of its points."""
    shape = values.shape[1:]
    if points is None and shape == (1,):
        return Point(), values
    if points is None:
        ends = zip(shape, repeats, strict=False)
        points = tuple(np.linspace(0, 1, n + r)[:n] for n, r in ends)
    if isinstance(points, tuple | list) and len(points) and np.ndim(points[0]) == 1:
        axes = [
            real_numbers(axis, f"{name}: axis {k}", error=DataError).numpy()
            for k, axis in enumerate(points)
        ]
        return _on_axes(axes, values, repeats, name)
    domain = _points_of(points, name)
    flat = len(shape) == 1 or isinstance(domain, PointCloud)
    if domain.shape != shape and not (flat and domain.size == math.prod(shape)):
        raise _misfit(values, (domain.size,), name)
    return _repeating(domain, repeats) if isinstance(domain, Grid) else domain, values


def _misfit(values: np.ndarray, shape: tuple[int, ...], name: str) -> DataError:
    """Return the error for values that do not fit their points, by the shape of these."""
    turned = sorted(values.shape[1:]) == sorted(shape) or len(values) in shape
    return DataError(
        f"{name}: values {values.shape} do not fit {' x '.join(map(str, shape))} points: expected "
        f"(runs, {', '.join(map(str, shape))}){' (is it transposed?)' if turned else ''}"
    )


def _repeating(grid: Grid, repeats: tuple[bool, ...]) -> Grid:
    """Return a grid that repeats beyond its last points along some axes."""
    if not any(repeats):
        return grid
    ends = zip(grid.upper, grid.spacing(), repeats, strict=False)
    upper = tuple(high + step * repeat for high, step, repeat in ends)
    return Grid(grid.lower, upper, grid.shape, repeats[: grid.dim])


def _on_axes(
    axes: list[np.ndarray], values: np.ndarray, repeats: tuple[bool, ...], name: str
) -> tuple[Domain, np.ndarray]:
    shape = tuple(len(axis) for axis in axes)
    if values.shape[1:] not in (shape, (math.prod(shape),)):
        raise _misfit(values, shape, name)
    values = values.reshape(len(values), *shape)
    for k, axis in enumerate(axes):
        if not np.isfinite(axis).all():
            raise DataError(f"{name}: axis {k} has values that are not finite")
        if len(axis) < 2:
            raise DataError(f"{name}: axis {k} has 1 point, at least 2 are needed")
        steps = np.diff(axis)
        turns = np.flatnonzero(steps * np.sign(np.sign(steps).sum() or 1) <= 0)
        if len(turns):
            first, second = axis[turns[0] : turns[0] + 2]
            raise DataError(
                f"{name}: axis {k} must rise or fall from point to point, found {second:g} after "
                f"{first:g} at point {turns[0] + 1}"
            )
        if steps[0] < 0:
            axes[k], values = axis[::-1], np.flip(values, k + 1)
    if not values.flags.c_contiguous:
        values = changed(values, np.ascontiguousarray, name)
    if all(map(_is_uniform, axes)):
        low, high = (tuple(float(axis[k]) for axis in axes) for k in (0, -1))
        return _repeating(Grid(low, high, shape), repeats), values
    if any(repeats):
        raise DataError(f"{name}: a periodic grid must be uniform")
    mesh = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))
    return _cloud(mesh, name), values


def _without_missing(
    values: np.ndarray, seen: Scan, domain: Domain, missing: Missing, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return values with missing ones filled, and which runs to keep."""
    if seen.infinite.any():
        run = int(seen.infinite.argmax())
        point = int(np.isinf(values[run]).argmax())
        raise DataError(f"{name}: run {run} is infinite at point {point}")
    lacking = seen.missing > 0
    every = np.ones(len(values), dtype=bool)
    if not lacking.any():
        return values, every
    if missing == "error":
        run = int(lacking.argmax())
        raise DataError(
            f"{name}: {seen.missing.sum()} values of {lacking.sum()} of {len(values)} runs are "
            f"NaN, the first in run {run} at point {np.isnan(values[run]).argmax()}; "
            "missing='drop' leaves these runs out, missing='fill' interpolates from other points "
            "of the run, missing='model' learns from what was read"
        )
    if missing in ("drop", "model"):
        return values, ~lacking if missing == "drop" else every
    points = domain.points().numpy()
    wrong = seen.missing > 0.5 * len(points)
    if wrong.any():
        raise DataError(
            f"{name}: run {wrong.argmax()} lacks more than half of its values: cannot fill"
        )

    def filled(rows: np.ndarray) -> np.ndarray:
        rows = rows.copy()
        for row in rows:
            there = ~np.isnan(row)
            if there.all():
                continue
            known = torch.from_numpy(row[there].astype(np.float64))[:, None]
            wanted = torch.from_numpy(points[~there])
            row[~there] = PointCloud.of(points[there]).interpolate(known, wanted)[:, 0].numpy()
        return rows

    return changed(values, filled, name), every

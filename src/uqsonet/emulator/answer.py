"""The law of a field given sensors, as users ask it: at any points, in their kind of array.

Sets, samples and points are worked on in parts, so that no call takes more than a small multiple of
its result and some hundreds of megabytes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import ObservationError, ObservationWarning
from uqsonet.fields.named_field import NamedField, part_locations
from uqsonet.fields.numbers import real_numbers
from uqsonet.gauss.posterior import (
    MOMENT_SAMPLES,
    MOMENT_SEED,
    PointPosterior,
    Posterior,
    count_of,
    levels_of,
    spread,
)
from uqsonet.sensors.sensors import AXES, SensorSets, field_number

if TYPE_CHECKING:
    from uqsonet.emulator.emulator import Emulator
    from uqsonet.operator.joint import JointPosterior

SETS = 16
"""Sets that are conditioned at a time."""

SAMPLES = 4096
"""Functions that are drawn at a time."""

VALUES = 1 << 23
"""Sample values that are sorted at a time."""

BAND_SAMPLES = 1000
"""Functions behind a band; the same for a new function and for the calibration runs."""

LEVELS = (0.5, 0.8, 0.9, 0.95)
"""Usual levels, which are calibrated together."""

IMPROBABLE = 1e-4
"""Probability of sensors below which a warning is given; of many sets, divided by their number."""

LEAST_EFFECTIVE = 200
"""Effective samples below which a warning is given."""

KEPT_RATIOS = 64
"""Calibrations that a model keeps."""

Kind = Literal["conformal", "plain"]
Answer = TypeVar("Answer")

TOO_LARGE = (
    "the answer is not finite: values or noise of the sensors, or numbers of the model's file, are "
    "too large"
)


class FieldPosterior:
    """The conditional law of all fields, for one set of sensors or for B of them.

    Results for one set have no batch dimension: `mean` and `std` are (M,) or (B, M), `sample` is
    (n, M) or (B, n, M), `quantile` is (Q, M) or (B, Q, M). They are in the units of the field, and
    in the caller's kind of array: that of the points asked for, else that of the sensors.

    ``posterior["u"]`` is the law of one field, an output or an input; where there is one output, it
    is meant without a name. Samples of several fields with the same seed and size belong together.
    """

    def __init__(self, emulator: Emulator, sets: SensorSets, number: int | None = None) -> None:
        self._emulator, self._sets, self._number = emulator, sets, number
        if number is None and len(emulator.outputs) == 1:
            self._number = 0
        self._jointly = emulator.reads_outputs(sets)
        self._alone: Posterior | None = None
        self._joint: dict[int, JointPosterior] = {}

    def __getitem__(self, name: str) -> FieldPosterior:
        """Return the law of one field."""
        found = FieldPosterior(self._emulator, self._sets, field_number(self._fields, name))
        found._joint = self._joint
        return found

    def __repr__(self) -> str:
        counts = self._sets.mask.sum(1)
        sensors = f"{int(counts[0])} sensors" if self.single else f"{len(counts)} sets of sensors"
        outputs = ", ".join(f.name for f in self._emulator.outputs)
        shown = outputs if self._number is None else self.field.name
        given = ", ".join(f.name for f in self.read.values())
        return f"FieldPosterior({shown} given {sensors} of {given})"

    @property
    def _fields(self) -> list[NamedField]:
        """Outputs, then inputs: what `_number` counts."""
        return self._emulator.outputs + self._emulator.inputs

    @property
    def _is_output(self) -> bool:
        return self._which() < len(self._emulator.outputs)

    @property
    def single(self) -> bool:
        """One set of sensors rather than a batch."""
        return self._sets.single

    @property
    def sensors(self) -> SensorSets:
        """The sensors that this law is conditioned on."""
        return self._sets

    @property
    def field(self) -> NamedField:
        """The field that this is the law of."""
        return self._fields[self._which()]

    @property
    def inputs(self) -> list[NamedField]:
        """The input fields."""
        return self._emulator.inputs

    @property
    def read(self) -> dict[int, NamedField]:
        """The fields that sensors read, by the number that sensors have; else the inputs."""
        fields = dict(enumerate(self._emulator.inputs + self._emulator.outputs))
        found = self._sets.field[self._sets.mask].unique().tolist()
        return {number: fields[number] for number in found or range(len(self.inputs))}

    @property
    def effective_size(self) -> Any:
        """Independent samples (B,) that the answer is worth; infinite where it needs no sampling.

        Only sensors of outputs ask for samples that are corrected (`uqsonet.operator.joint`).
        """
        found = torch.full((len(self._sets),), torch.inf, dtype=torch.float64)
        if self._jointly:
            for part, joint in self._joint_parts():
                found[part] = joint.effective_size
        found = found[0] if self.single else found
        return found if self._sets.kind == "torch" else found.numpy()

    def given(self, sets: SensorSets) -> FieldPosterior:
        """Return the law of the same field given other sensors, unchecked."""
        return FieldPosterior(self._emulator, sets, self._number)

    def _which(self) -> int:
        if self._number is None:
            names = ", ".join(repr(f.name) for f in self._emulator.outputs)
            raise ObservationError(f"name an output field: posterior[...] with one of {names}")
        return self._number

    def _asked(self, answer: Callable[[SensorSets], Answer], part: slice) -> Answer:
        """Return the operator's answer to some sets."""
        try:
            return answer(self._sets[part])
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            raise ObservationError(TOO_LARGE) from None

    def _parts(self) -> Iterator[tuple[slice, Posterior]]:
        """Yield the operator's answers to some sets at a time."""
        if self._jointly or not self._is_output:
            for part, joint in self._joint_parts():
                yield part, joint.output if self._is_output else joint.input
            return
        for first in range(0, len(self._sets), SETS):
            part = slice(first, min(first + SETS, len(self._sets)))
            found = self._alone or self._asked(self._emulator.answer, part)
            if len(self._sets) <= SETS:
                self._alone = found
            yield part, found

    def _joint_parts(self) -> Iterator[tuple[slice, JointPosterior]]:
        """Yield the law of both sides for some sets at a time; it is kept, as it may take long."""
        for first in range(0, len(self._sets), SETS):
            part = slice(first, min(first + SETS, len(self._sets)))
            found = self._joint.get(first)
            if found is None:
                found = self._joint[first] = self._asked(self._emulator.answer_jointly, part)
                for text in self._doubts(found, part):
                    warnings.warn(text, ObservationWarning, stacklevel=4)
            yield part, found

    def _doubts(self, joint: JointPosterior, part: slice) -> Iterator[str]:
        """Yield what is unusual about an answer to sensors of outputs, in words with numbers."""
        labels = self._sets.labels[part]

        def of(row: int) -> str:
            return "" if self.single else f" of set {labels[row]}"

        row = int(joint.tail.argmin())
        if float(joint.tail[row]) < IMPROBABLE / len(self._sets):
            yield (
                f"the sensors of outputs{of(row)} are improbable given those of inputs: values as "
                f"far from their mean have probability {float(joint.tail[row]):.1g}. The operator "
                "may not hold here, nor the band"
            )
        row = int(joint.effective_size.argmin())
        if float(joint.effective_size[row]) < LEAST_EFFECTIVE:
            yield (
                f"the answer to the sensors of outputs{of(row)} is worth "
                f"{float(joint.effective_size[row]):.0f} independent samples: mean and band are "
                "rough. A larger noise_std, or fewer sensors of outputs, would leave more"
            )

    def _points(self, points: object) -> Tensor:
        """Return points (M, d) that a caller asked for; by default those of the field."""
        domain = self.field.domain
        if points is None:
            return domain.points()
        if hasattr(points, "columns") and hasattr(points, "to_numpy"):
            wanted = list(AXES[: domain.dim])
            there = [str(name) for name in points.columns]  # type: ignore[attr-defined]
            if lacking := [axis for axis in wanted if axis not in there]:
                raise ObservationError(
                    f"points: no column {lacking[0]!r}; there are {', '.join(there)}"
                )
            points = points[wanted].to_numpy()  # type: ignore[index]
        found = real_numbers(points, "points")
        found = found[:, None] if found.ndim == 1 and domain.dim == 1 else found
        if found.ndim != 2 or found.shape[1] != domain.dim:
            raise ObservationError(
                f"points must have shape (M, {domain.dim}), found {tuple(found.shape)}"
            )
        if not bool(found.isfinite().all()):
            raise ObservationError("points must be finite (found NaN or inf)")
        domain.require_inside(found, "point")
        return found

    def _basis(self, posterior: Posterior, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return offset (M,) and basis (M, p) of the (transformed) field in its own units."""
        emulator, number = self._emulator, self._which()
        side = emulator.fields.output
        if not self._is_output:
            number, side = number - len(emulator.outputs), emulator.fields.input
        offset, basis = posterior.basis(part_locations(number, x, side.grid))
        return offset * self.field.scale, basis * self.field.scale

    def _remainder(self, x: Tensor) -> Tensor | None:
        """Return the std (M,) of what the modes leave out."""
        if not self._is_output:
            bases: Any = self._emulator.operator.bases  # type: ignore[attr-defined]
            return float(bases.input_remainder) * self.field.scale * torch.ones_like(x[:, 0])
        left = self._emulator.remainder
        if left is None:
            return None
        columns = self._emulator.output_columns(self._which())
        found = self.field.domain.interpolate(left[columns].double()[:, None], x)[:, 0]
        return found.abs() * self.field.scale

    def _back(self, result: Tensor, points: object) -> Any:
        """Return a result (B, ...) in the caller's kind of array, without a batch of one."""
        if not bool(result.sum().isfinite()):
            raise ObservationError(TOO_LARGE)
        found = result[0] if self.single else result
        if isinstance(points, Tensor):
            return found
        if hasattr(points, "columns") and found.ndim == 1:
            import pandas as pd

            return pd.Series(found.numpy(), index=points.index, name=self.field.name)  # type: ignore[attr-defined]
        kind = self._sets.kind if points is None else "numpy"
        return found if kind == "torch" else found.numpy()

    def mean(self, points: object = None) -> Any:
        """Return the mean at points (M, d); by default at the field's own."""
        if self.field.transform.positive:
            return self._back(self._sampled_moments(self._points(points))[0], points)
        x = self._points(points)
        found = torch.empty(len(self._sets), len(x), dtype=torch.float64)
        for part, posterior in self._parts():
            offset, basis = self._basis(posterior, x)
            if isinstance(posterior, PointPosterior):
                coefficients = posterior.coefficients.double()
            else:
                coefficients, _ = posterior.coefficient_moments()
            found[part] = offset + coefficients @ basis.T
        return self._back(found, points)

    def std(self, points: object = None) -> Any:
        """Return the standard deviation at points (M, d)."""
        if self.field.transform.positive:
            return self._back(self._sampled_moments(self._points(points))[1], points)
        x = self._points(points)
        left = self._remainder(x)
        found = torch.empty(len(self._sets), len(x), dtype=torch.float64)
        for part, posterior in self._parts():
            _, covariance = posterior.coefficient_moments()
            _, basis = self._basis(posterior, x)
            found[part] = spread(basis, covariance)
        if left is not None:
            found = (found.square() + left.square()).sqrt()
        return self._back(found, points)

    def covariance(self, points: object = None) -> Any:
        """Return the covariance (M, M) or (B, M, M) between points (M, d)."""
        x = self._points(points)
        if self.field.transform.positive:
            drawn = self._sample(MOMENT_SAMPLES, x, 0)
            centred = drawn - drawn.mean(1, keepdim=True)
            return self._back(centred.transpose(1, 2) @ centred / (MOMENT_SAMPLES - 1), points)
        left = self._remainder(x)
        found = torch.empty(len(self._sets), len(x), len(x), dtype=torch.float64)
        for part, posterior in self._parts():
            _, covariance = posterior.coefficient_moments()
            _, basis = self._basis(posterior, x)
            found[part] = basis @ covariance @ basis.T
        if left is not None:
            found.diagonal(dim1=1, dim2=2).add_(left.square())
        return self._back(found, points)

    def sample(self, size: int, points: object = None, seed: object = 0) -> Any:
        """Draw functions; the same seed gives the same ones.

        Parameters
        ----------
        size : int
        points : array (M, d), optional
        seed : int
            Or a torch.Generator.
        """
        return self._back(self._sample(count_of(size), self._points(points), seed), points)

    def _sample(self, size: int, x: Tensor, seed: object) -> Tensor:
        left, generator = self._remainder(x), _generator(seed)
        found = torch.empty(len(self._sets), size, len(x), dtype=torch.float64)
        for part, posterior in self._parts():
            offset, basis = self._basis(posterior, x)
            for first in range(0, size, SAMPLES):
                some, own = min(SAMPLES, size - first), _fork(generator)
                drawn = posterior.coefficient_samples(some, own).double()
                here = found[part, first : first + some]
                for one, into in zip(drawn, here, strict=True):
                    torch.addmm(offset, one, basis.T, out=into)
                if left is not None:
                    here += torch.randn(here.shape, generator=own, dtype=torch.float32) * left
        return self.field.transform.inverse(found)

    def _sampled_moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and std (B, M) of a transformed field, from samples."""
        parts = []
        for some in x.split(max(1, VALUES // MOMENT_SAMPLES)):
            drawn = self._sample(MOMENT_SAMPLES, some, 0)
            parts.append((drawn.mean(1), drawn.std(1)))
        mean, std = (torch.cat(part, 1) for part in zip(*parts, strict=True))
        return mean, std

    def quantile(
        self, levels: object, points: object = None, size: int = MOMENT_SAMPLES, seed: object = 0
    ) -> Any:
        """Return pointwise quantiles, estimated from `size` functions.

        Parameters
        ----------
        levels : float or sequence of float
            In [0, 1]. A single number gives a result without the dimension of levels.
        points : array (M, d), optional
        size : int
        seed : int
        """
        real_numbers(levels, "levels")
        q = levels_of(levels)
        x = self._points(points)
        found = self._quantiles(np.atleast_1d(q), x, count_of(size), seed)
        found = found[:, 0] if q.ndim == 0 else found
        return self._back(found, points)

    def _quantiles(self, q: np.ndarray, x: Tensor, size: int, seed: object) -> Tensor:
        """Return quantiles (B, Q, M)."""
        left, generator = self._remainder(x), _generator(seed)
        found = torch.empty(len(self._sets), len(q), len(x), dtype=torch.float64)
        place = q * (size - 1)
        low = np.floor(place).astype(int)
        high, share = np.minimum(low + 1, size - 1), place - low
        step = max(1, VALUES // size)
        for part, posterior in self._parts():
            offset, basis = self._basis(posterior, x)
            own = _fork(generator)
            c = posterior.coefficient_samples(size, own).float()
            for k, b in enumerate(range(part.start, part.stop)):
                for first in range(0, len(x), step):
                    here = slice(first, first + step)
                    values = basis[here].float() @ c[k].T
                    if left is not None:
                        noise = torch.randn(values.shape, generator=own, dtype=torch.float32)
                        values += noise * left[here, None].float()
                    ordered = values.numpy()
                    ordered.sort(axis=1)
                    picked = ordered[:, low] * (1 - share) + ordered[:, high] * share
                    found[b, :, here] = torch.from_numpy(picked.T) + offset[here]
        return self.field.transform.inverse(found)

    def band(
        self,
        level: float = 0.9,
        points: object = None,
        kind: Kind | None = None,
        whole: bool = False,
        seed: int = 0,
    ) -> tuple[Any, Any]:
        """Return the lower and upper end of a band that holds u with probability `level`.

        Parameters
        ----------
        level : float
            Between 0 and 1.
        points : array (M, d), optional
        kind : {"conformal", "plain"}, optional
            ``plain`` is the central band of the law. ``conformal`` widens or narrows it about the
            median by a factor that calibration runs, observed with the same sensors, ask for. By
            default conformal where the model has calibration runs.
        whole : bool
            The band holds the whole function, rather than a single point, with that probability.
            It needs calibration runs.
        seed : int

        Returns
        -------
        lower, upper : array (M,) or (B, M)

        Notes
        -----
        The conformal band holds at least `level` whatever the law of the data, for a finite number
        of calibration runs: the expected share of the field's points that it holds, or with `whole`
        the probability that it holds all of them (of those kept for calibration, at most 400). The
        condition is that the new function and the calibration runs are exchangeable, and that
        sensor places were chosen without looking at the function. The probability is over new
        functions and calibration runs, not given the values that the sensors read.
        """
        real_numbers(level, "level")
        q = levels_of(level)
        if q.ndim or not 0 < float(q) < 1:
            raise ObservationError(f"level must be a number between 0 and 1, found {level}")
        level = float(q)
        kind = self._band_kind(kind, whole)
        x = self._points(points)
        ends = np.array([(1 - level) / 2, 0.5, (1 + level) / 2])
        found = self._quantiles(ends, x, BAND_SAMPLES, seed)
        lower, median, upper = found.unbind(1)
        if kind == "conformal":
            factors = self._factors(level, whole)[:, None]
            lower, upper = median - factors * (median - lower), median + factors * (upper - median)
        return self._back(lower, points), self._back(upper, points)

    def _band_kind(self, kind: Kind | None, whole: bool) -> Kind:
        if kind not in (None, "conformal", "plain"):
            raise ObservationError(f"kind {kind!r} is unknown; there are conformal and plain")
        calibrated = self._emulator.calibration is not None
        if self._jointly or not self._is_output:
            if kind == "conformal" or whole:
                raise ObservationError(
                    "calibration runs are for outputs given sensors of inputs: sensors of outputs, "
                    "and bands of inputs, have kind='plain' alone"
                )
            return "plain"
        if (kind == "conformal" or whole) and not calibrated:
            raise ObservationError(
                "this model has no calibration runs, so it has no conformal band and none of "
                "whole functions; kind='plain' gives the band of its law"
            )
        if whole and kind == "plain":
            raise ObservationError("a band of whole functions is conformal; leave out kind='plain'")
        return kind or ("conformal" if calibrated else "plain")

    def _factors(self, level: float, whole: bool) -> Tensor:
        """Return the conformal factor of each set's band, (B,)."""
        from uqsonet.emulator.calibration import function_factor, pointwise_factor

        factor = function_factor if whole else pointwise_factor
        ones = (self._sets[b : b + 1] for b in range(len(self._sets)))
        found = [factor(self._calibration_ratios(one, level), level) for one in ones]
        return torch.tensor(found, dtype=torch.float64)

    def _calibration_ratios(self, one: SensorSets, level: float) -> Tensor:
        """Return by how much plain bands must be widened to hold each calibration run.

        Kept for the sensors asked about last: runs are sorted once for all usual levels.
        """
        from uqsonet.emulator.calibration import ratios

        emulator, number = self._emulator, self._which()
        calibration, kept = emulator.calibration, emulator.kept_ratios
        assert calibration is not None
        used = one.mask[0]
        parts = (one.field, one.locations, one.noise_std, one.weights)
        key = number, b"".join(t[0][used].numpy().tobytes() for t in parts if t is not None)
        if (key, level) in kept:
            return kept[key, level]
        columns = emulator.output_columns(number)
        here = (calibration.columns >= columns.start) & (calibration.columns < columns.stop)
        x = self.field.domain.points()[calibration.columns[here] - columns.start]
        truth = calibration.outputs[:, here].double() * self.field.scale
        levels = sorted({level, *LEVELS})
        ends = np.array([0.5, *((1 + sign * q) / 2 for q in levels for sign in (-1, 1))])
        answers = self.given(emulator.calibration_sets(one))
        median, *bands = answers._quantiles(ends, x, BAND_SAMPLES, 0).unbind(1)
        while len(kept) > KEPT_RATIOS:
            kept.pop(next(iter(kept)))
        for k, q in enumerate(levels):
            kept[key, q] = ratios(median, bands[2 * k], bands[2 * k + 1], truth)
        return kept[key, level]

    def to_xarray(self, level: float = 0.9) -> Any:
        """Return mean, std and band at the field's own points as an xarray.Dataset."""
        from uqsonet.show.export import as_dataset

        return as_dataset(self, level)

    def plot(
        self,
        path: object = None,
        level: float = 0.9,
        title: str | None = None,
        truth: object = None,
    ) -> Any:
        """Draw mean, band or std, and sensors; returns the matplotlib figure.

        Parameters
        ----------
        path : path, optional
            Where to save the picture: PNG, PDF or SVG.
        level : float
            Of the band.
        title : str, optional
        truth : array, optional
            What the output is in truth, at the field's own points; or ``(points, values)``.
        """
        from uqsonet.show.pictures import draw

        return draw(self, path, level, title, truth)


def _generator(seed: object) -> torch.Generator:
    if isinstance(seed, torch.Generator):
        return seed
    if isinstance(seed, np.random.Generator):
        seed = int(seed.integers(2**62))
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**62:
        raise ObservationError(f"seed must be a whole number from 0 to 2^62, found {seed!r}")
    return torch.Generator().manual_seed(int(seed) + MOMENT_SEED)


def _fork(generator: torch.Generator) -> torch.Generator:
    """Return a generator of its own: fields take different numbers from it, and stay in step."""
    seed = torch.randint(2**62, (), generator=generator)
    return torch.Generator().manual_seed(int(seed))

"""The law of fields given sensors, as users ask it: at any points, in their kind of array.

An answer is a value. It holds the sensors and, without its card, the emulator that gave it, and no
file: it can be pickled, copied and sent elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from torch import Tensor

from uqsonet.emulator.checks import points_of
from uqsonet.emulator.field_law import BAND_SAMPLES, TOO_LARGE, FieldLaw
from uqsonet.errors import ObservationError, renamed
from uqsonet.fields.field import Field
from uqsonet.fields.numbers import real_numbers
from uqsonet.gauss.given import MOMENT_SAMPLES, count_of
from uqsonet.gauss.posterior import levels_of
from uqsonet.gauss.seeds import RNG, root_of
from uqsonet.sensors.sensors import Sensors, field_number, no_sensors

if TYPE_CHECKING:
    from uqsonet.emulator.corrected import Solves

Emulator = Any  # `uqsonet.emulator.emulator.Emulator`, whose methods call this file

Kind = Literal["conformal", "plain"]


@renamed(seed="rng")
class FieldPosterior:
    """The conditional law of all fields, for one set of sensors or for B of them.

    Results for one set have no batch dimension: `mean` and `std` are (M,) or (B, M), `sample` is
    (n, M) or (B, n, M), `quantile` is (Q, M) or (B, Q, M). They are in the units of the field, and
    in the caller's kind of array: that of the points asked for, else that of the sensors.

    ``posterior["u"]`` is the law of one field, an output or an input; where there is one output, it
    is meant without a name. Samples of several fields with the same seed and size belong together.

    `solves` says how an answer that a solver has corrected fits it.

    Answers pickle, and so work in a process that does not have the model.
    """

    solves: Solves | None = None

    def __init__(self, law: FieldLaw, chosen: bool = True) -> None:
        self._law, self._chosen = law, chosen

    @property
    def _emulator(self) -> Emulator:
        return self._law.emulator

    def __getitem__(self, name: str) -> FieldPosterior:
        """Return the law of one field."""
        names = [one.name for one in self._emulator.outputs]
        if name in names:  # a field that is answered from sensors of itself is an input, too
            return FieldPosterior(self._law.of(len(self.inputs) + names.index(name)))
        return FieldPosterior(self._law.of(field_number(self._emulator.named_fields, name)))

    def __repr__(self) -> str:
        counts = self.sensors.mask.sum(1)
        sensors = f"{int(counts[0])} sensors" if self.single else f"{len(counts)} sets of sensors"
        outputs = ", ".join(f.name for f in self._emulator.outputs)
        shown = self.field.name if self._chosen else outputs
        given = ", ".join(f.name for f in self.read.values())
        return f"FieldPosterior({shown} given {sensors} of {given})"

    @property
    def single(self) -> bool:
        """One set of sensors rather than a batch."""
        return self.sensors.single

    @property
    def sensors(self) -> Sensors:
        """The sensors that this law is conditioned on."""
        return self._law.sets

    @property
    def batch(self) -> tuple[str, Any]:
        """Name and labels (B,) of the dimension of a batch."""
        return "set", self.sensors.labels

    @property
    def field(self) -> Field:
        """The field that this is the law of."""
        return self.law.field

    @property
    def inputs(self) -> list[Field]:
        """The input fields."""
        return self._emulator.inputs

    @property
    def read(self) -> dict[int, Field]:
        """The fields that sensors read, by the number that sensors have; else the inputs."""
        numbers = self.sensors.field[self.sensors.mask].unique().tolist()
        fields = self._emulator.named_fields
        return {number: fields[number] for number in numbers or range(len(self.inputs))}

    @property
    def effective_size(self) -> Any:
        """Number (B,) of effective samples behind the answer; infinite where it needs none.

        Only sensors of outputs, and noise that is not Gaussian, ask for samples that are corrected
        (`uqsonet.operator.joint`).
        """
        size = self._law.effective_size()
        size = size[0] if self.single else size
        return size if self.sensors.kind == "torch" else size.numpy()

    def given(self, sets: Sensors) -> FieldPosterior:
        """Return the law of the same field given other sensors, unchecked."""
        law = FieldLaw(self._emulator, sets, self._law.number, self._law.likelihood)
        return FieldPosterior(law, self._chosen)

    def corrected(self, solver: Any, solves: int = 200, rng: RNG = 0) -> FieldPosterior:
        """Return the answer of an operator that is fitted again to solves near this answer.

        Parameters
        ----------
        solver : callable
            Maps inputs (S, n_in) at the points of the input fields, side by side, to outputs
            (S, n_out) at those of the outputs, both arrays in the fields' own units.
        solves : int
            At least 40; they are spent in four rounds.
        rng : int, SeedSequence or Generator
            Of the samples that are solved.

        Its `solves` has effective numbers of samples before and after. A warning is given if the
        last samples still fit the solver badly.

        Raises
        ------
        ObservationError
            If there are several sets of sensors, or the solver's outputs do not fit.
        """
        from uqsonet.emulator.corrected import corrected

        law, known = corrected(self._law, solver, solves, root_of(rng))
        found = FieldPosterior(law, self._chosen)
        found.solves = known
        return found

    @property
    def law(self) -> FieldLaw:
        """The law of this field, without checks and kinds of arrays."""
        if not self._chosen:
            names = ", ".join(repr(f.name) for f in self._emulator.outputs)
            raise ObservationError(f"name an output field: posterior[...] with one of {names}")
        return self._law

    def _points(self, points: object) -> Tensor:
        """Return points (M, d) that a caller asked for; by default those of the field."""
        if points is None:
            return self.field.domain.points()
        return points_of(self.field, points, "points", "point")

    def _back(self, result: Tensor, points: object) -> Any:
        """Return a result (B, ...) in the caller's kind of array, without a batch of one."""
        if not bool(result.sum().isfinite()):
            raise ObservationError(TOO_LARGE)
        result = result[0] if self.single else result
        return _as_kind(result, points, self.sensors.kind, self.field.name)

    def mean(self, points: object = None) -> Any:
        """Return the mean at points (M, d); by default at the field's own."""
        return self._back(self.law.mean(self._points(points)), points)

    def std(self, points: object = None) -> Any:
        """Return the standard deviation at points (M, d)."""
        return self._back(self.law.std(self._points(points)), points)

    def covariance(self, points: object = None) -> Any:
        """Return the covariance (M, M) or (B, M, M) between points (M, d)."""
        return self._back(self.law.covariance(self._points(points)), points)

    def sample(self, size: int, points: object = None, rng: RNG = 0) -> Any:
        """Draw functions; the same seed gives the same ones, a generator others each time.

        Parameters
        ----------
        size : int
        points : array (M, d), optional
        rng : int, SeedSequence or Generator
        """
        return self._back(
            self.law.sample(count_of(size), self._points(points), root_of(rng)), points
        )

    def quantile(
        self, levels: object, points: object = None, size: int = BAND_SAMPLES, rng: RNG = 0
    ) -> Any:
        """Return pointwise quantiles, estimated from `size` functions.

        Parameters
        ----------
        levels : float or sequence of float
            In [0, 1]. A single number gives a result without the dimension of levels.
        points : array (M, d), optional
        size : int
        rng : int, SeedSequence or Generator
        """
        q = levels_of(levels)
        x = self._points(points)
        quantiles = self.law.quantiles(np.atleast_1d(q), x, count_of(size), root_of(rng))
        return self._back(quantiles[:, 0] if q.ndim == 0 else quantiles, points)

    def exceedance(
        self, thresholds: object, points: object = None, size: int = MOMENT_SAMPLES, rng: RNG = 0
    ) -> Any:
        """Return the probability that u lies above a threshold, point by point.

        Parameters
        ----------
        thresholds : float or sequence of float
            In the field's units. A single number gives a result without their dimension.
        points : array (M, d), optional
        size : int
        rng : int, SeedSequence or Generator
            The probability is a share of `size` functions, of standard error at most
            ``0.5 / size**0.5``.
        """
        limits = real_numbers(thresholds, "thresholds")
        if limits.ndim > 1 or not bool(limits.isfinite().all()):
            raise ObservationError(f"thresholds must be finite numbers, found {thresholds}")
        x = self._points(points)
        found = self.law.exceedance(limits.reshape(-1), x, count_of(size), root_of(rng))
        return self._back(found[:, 0] if limits.ndim == 0 else found, points)

    def band(
        self, level: float = 0.9, points: object = None, kind: Kind | None = None,
        whole: bool = False, rng: RNG = 0,
    ) -> tuple[Any, Any]:  # fmt: skip
        """Return the lower and upper end of a band that holds u with probability `level`.

        Parameters
        ----------
        level : float
            Between 0 and 1.
        points : array (M, d), optional
        kind : {"conformal", "plain"}, optional
            ``plain`` is the central band of the law. ``conformal`` widens or narrows it about the
            median by a factor that calibration runs, observed with the same sensors, ask for. By
            default conformal where the model has calibration runs; plain with a likelihood, and
            where sensors of outputs are answered by weighted samples, as a conformal band then
            takes as many answers as there are calibration runs.
        whole : bool
            The band holds the whole function, rather than a single point, with that probability.
            It needs calibration runs.
        rng : int, SeedSequence or Generator

        Returns
        -------
        lower, upper : array (M,) or (B, M)

        Notes
        -----
        The conformal band holds at least `level` whatever the law of the data, for a finite number
        of calibration runs: the expected share of the field's points that it holds, or with `whole`
        the probability that it holds all of them (of those kept for calibration, at most 400, and
        without those where it has less than a hundredth of its largest width, as at a sensor). The
        condition is that the new function and the calibration runs are exchangeable, and that
        sensor places were chosen without looking at the function. The probability is over new
        functions and calibration runs, not given the values that the sensors read.
        """
        q = real_numbers(level, "level")
        if q.ndim or not 0 < float(q) < 1:
            raise ObservationError(f"level must be a number between 0 and 1, found {level}")
        level = float(q)
        kind = _band_kind(kind, whole, self.law, self._calibrated)
        ends = np.array([(1 - level) / 2, 0.5, (1 + level) / 2])
        plain = self.law.quantiles(ends, self._points(points), BAND_SAMPLES, root_of(rng))
        if kind == "conformal":
            plain = self.widened(plain, level, whole)
        lower, _, upper = plain.unbind(1)
        return self._back(lower, points), self._back(upper, points)

    @property
    def _calibrated(self) -> bool:
        """Whether there are runs that calibrate bands."""
        return bool(self._emulator.calibration)

    def widened(self, plain: Tensor, level: float, whole: bool) -> Tensor:
        """Return lower end, median and upper end (B, 3, M) of a plain band, made conformal."""
        assert self._emulator.factors is not None
        return self._emulator.factors.widened(self.law, plain, level, whole)

    def to_xarray(self, level: float = 0.9, points: object = None, samples: int = 0) -> Any:
        """Return mean, std, band and samples as an xarray.Dataset, by default at its own points."""
        from uqsonet.show.export import answer_arrays, as_dataset

        return as_dataset(self, answer_arrays(self, level, points, samples), level, points)

    def to_inference_data(self, draws: int = 1000, rng: RNG = 0) -> Any:
        """Return draws of all fields, before and after the measurement, for ArviZ.

        Groups ``posterior`` and ``prior`` have a variable for each field, with dimensions ``chain,
        draw[, set]`` and its own. It is an `arviz.InferenceData`, or from version 1 of ArviZ on an
        `xarray.DataTree`.
        """
        from uqsonet.show.inference_data import inference_data

        both = self._law.knows_inputs()
        fields = self._emulator.named_fields if both else self._emulator.outputs
        laws: dict[str, FieldPosterior] = {"posterior": self}
        if both:  # others may have no answer without sensors
            laws["prior"] = self.given(no_sensors(fields))
        return inference_data(laws, fields, draws, root_of(rng))

    def plot(
        self, path: object = None, level: float = 0.9, title: str | None = None,
        truth: object = None, points: object = None,
    ) -> Any:  # fmt: skip
        """Draw mean, band or std, and sensors; returns the matplotlib figure.

        Parameters
        ----------
        path : path, optional
            Where to save the picture: PNG, PDF or SVG.
        level : float, of the band
        title : str, optional
        truth : array, optional
            What the output is in truth, at the field's own points; or ``(points, values)``.
        points : array (M, d), optional
        """
        from uqsonet.show.pictures import draw

        return draw(self, path, level, title, truth, self._points(points))


def _band_kind(kind: Kind | None, whole: bool, law: FieldLaw, calibrated: bool) -> Kind:
    """Return the kind of band that is meant; refuse one that there is not."""
    if kind not in (None, "conformal", "plain"):
        raise ObservationError(f"kind {kind!r} is unknown; there are conformal and plain")
    if law.likelihood is not None:
        if kind == "conformal" or whole:
            raise ObservationError(
                "calibration runs are observed with Gaussian noise: given a likelihood there are "
                "bands of kind='plain' alone"
            )
        return "plain"
    if (kind == "conformal" or whole) and not calibrated:
        raise ObservationError(
            "this model has no calibration runs, so it has no conformal band and none of "
            "whole functions; kind='plain' gives the band of its law"
        )
    if whole and kind == "plain":
        raise ObservationError("a band of whole functions is conformal; leave out kind='plain'")
    # Where samples answer sensors of outputs, those of all calibration runs would take minutes.
    quick = kind or whole or not bool(law.effective_size().isfinite().any())
    return kind or ("conformal" if calibrated and quick else "plain")


def _as_kind(result: Tensor, points: object, kind: str, name: str) -> Any:
    """Return a result in the kind of array of the points asked for, else of the sensors."""
    if isinstance(points, Tensor):
        return result
    if hasattr(points, "columns") and result.ndim == 1:
        import pandas as pd

        return pd.Series(result.numpy(), index=points.index, name=name)  # type: ignore[attr-defined]
    return result if points is None and kind == "torch" else result.numpy()

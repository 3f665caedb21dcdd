"""What a user holds: a trained operator with names, units, limits and calibration of its fields.

`uqsonet.fit` and `uqsonet.load` return an `Emulator`; `Emulator.condition` takes sensors as people
have them and returns a `FieldPosterior`.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from uqsonet.emulator.answer import IMPROBABLE, SETS, FieldPosterior
from uqsonet.errors import ObservationError, ObservationWarning
from uqsonet.fields.cloud import PointCloud
from uqsonet.fields.field import WeightedPoints, read_at
from uqsonet.fields.grid import Domain
from uqsonet.fields.named_field import NamedField, part_columns
from uqsonet.fields.numbers import require_noise
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.gauss.posterior import Posterior
from uqsonet.sensors.reading import read_sensors
from uqsonet.sensors.sensors import SensorSets

if TYPE_CHECKING:
    from uqsonet.emulator.calibration import Calibration
    from uqsonet.emulator.place import Placement
    from uqsonet.fitting.scores import Report
    from uqsonet.operator.joint import JointPosterior
    from uqsonet.runs.runs import Runs

LEAST_LEVEL = 0.02
"""Noise, relative to a field's standard deviation, that the test of sensors allows at least."""

MOST_SENSORS, TOGETHER = 20_000, 1 << 24
"""Of a set (their law takes the square of their number in memory), and such squares at a time."""

FAR = 3.0
"""Distance to the nearest point, relative to the typical one, above which a warning is given."""


class Operator(Protocol):
    """A trained operator model, or a baseline."""

    fields: OperatorFields

    def condition(
        self, locations: object, values: object, mask: object = None, noise_std: object = None
    ) -> Posterior:
        """Return the law of the output given sensors."""
        ...


@dataclass(frozen=True)
class Emulator:
    """An operator that has been learned, ready for sensors.

    Attributes
    ----------
    operator : OperatorModel or baseline
        Answers in the coordinates that it was trained in.
    inputs, outputs : list of NamedField
    encoded : bool
        The operator works on fields that `NamedField.encode` has transformed and scaled. False for
        the paper's operators, which transform by themselves.
    noise_std : float or None
        Default of `condition`; None leaves it to the operator.
    card : dict
        What it was made from, how, how good it is, and its limits.
    remainder : Tensor, shape (n,), or None
        Standard deviation of what the operator's output modes leave out, at the output's points.
    calibration : Calibration or None
    cokriging : Operator or None
        The best linear predictor from the same runs, to compare with.
    """

    operator: Operator
    inputs: list[NamedField]
    outputs: list[NamedField]
    encoded: bool = True
    noise_std: float | None = 0.0
    card: dict[str, Any] = field(default_factory=dict)
    remainder: Tensor | None = None
    calibration: Calibration | None = None
    cokriging: Operator | None = None
    kept_ratios: dict[Any, Tensor] = field(default_factory=dict, repr=False, compare=False)
    """What `FieldPosterior.band` remembers of the calibration runs."""

    @classmethod
    def around(cls, operator: Operator, card: Mapping[str, Any] | None = None) -> Emulator:
        """Return an operator of the paper, or any `OperatorModel`, as an emulator."""
        fields = operator.fields
        inputs, outputs = (
            [NamedField(side.symbol, side.grid, side.transform)]
            for side in (fields.input, fields.output)
        )
        return cls(operator, inputs, outputs, encoded=False, noise_std=None, card=dict(card or {}))

    @property
    def fields(self) -> OperatorFields:
        """Input and output as the operator has them."""
        return self.operator.fields

    def condition(
        self,
        sensors: object = None,
        values: object = None,
        mask: object = None,
        noise_std: object = None,
        **named: object,
    ) -> FieldPosterior:
        """Return the law of all fields given sensors of any of them.

        Without sensors it is the law before any measurement. Sensors without a name are of the
        input field.

        Parameters
        ----------
        sensors : optional
            One of: a DataFrame, the path of a CSV file or a mapping of columns
            ``x[,y[,z]],value[,field][,noise_std][,set][,sensor,weight]``; a tuple
            ``(locations, values)`` or ``(locations, values, noise_std)``; a list of any of these,
            one for each set; or, with `values`, an array of locations (m, d) or (B, m, d), anywhere
            in the domain. In place of locations there may be ``WeightedPoints(points, weights)``.
        values : array, shape (m,) or (B, m), optional
            Of the field itself, not transformed.
        mask : array of bool, shape of `values`, optional
            False marks padding.
        noise_std : float or array, optional
            Standard deviation of each sensor's noise in the transformed field: in the field's own
            units, or under ``log`` the relative error (0.05 is 5 %). By default what the model
            was fitted for.
        **named
            Sensors by field, of inputs or of outputs: ``condition(k=(locations, values), u=...)``.

        Raises
        ------
        ObservationError
            If sensors cannot be used; the message names the sensor, column or field.

        Warns
        -----
        ObservationWarning
            If sensors are unlike those that the model has learned from: outside the range of its
            values, far from its points, or improbable under its law.
        """
        fields = self.inputs + self.outputs
        sets = read_sensors(
            fields, sensors, values, mask, noise_std, named or None, len(self.inputs)
        )
        self._require_usable(sets)
        self._warn(sets)
        return FieldPosterior(self, sets)

    def answer(self, sets: SensorSets) -> Posterior:
        """Return the operator's own posterior, in the coordinates that it was trained in."""
        return self.operator.condition(*self._asked(sets))

    def reads_outputs(self, sets: SensorSets) -> bool:
        """Whether some of the sensors are of output fields."""
        return bool((sets.mask & (sets.field >= len(self.inputs))).any())

    def answer_jointly(self, sets: SensorSets) -> JointPosterior:
        """Return the operator's own law of both sides.

        Raises
        ------
        ObservationError
            If the operator knows no law of its input.
        """
        conditioned = getattr(self.operator, "condition_jointly", None)
        if conditioned is None:
            name = getattr(self.operator, "method", type(self.operator).__name__)
            raise ObservationError(
                f"{name} has no law of its input, so it takes no sensors of its output and answers "
                "nothing about its input; the Karhunen-Loeve model does"
            )
        return conditioned(self._asked(sets), self._asked(sets, outputs=True))

    def _asked(
        self, sets: SensorSets, outputs: bool = False
    ) -> tuple[Tensor | WeightedPoints, Tensor, Tensor, object]:
        """Return locations, values, mask and noise of one side as the operator has them."""
        fields, first = (self.outputs, len(self.inputs)) if outputs else (self.inputs, 0)
        number = sets.field - first
        used = sets.mask & (number >= 0) & (number < len(fields))
        if outputs or self.reads_outputs(sets):
            # Sets are no wider than the side with the most sensors of it.
            keep = used.any(0)
            sets, number, used = sets.each(lambda t: t[:, keep]), number[:, keep], used[:, keep]
        default = 0.0 if outputs else self.noise_std
        stated = used & ~sets.noise_std.isnan()
        noise: object = None
        if self.encoded or outputs or bool(stated.any()):
            fallback = getattr(self.operator, "noise_std", 0.0) if default is None else default
            level = sets.noise_std.nan_to_num(nan=float(fallback))
            if self.encoded:
                scale = torch.tensor([f.scale for f in fields], dtype=torch.float64)
                level = level / scale[number.clamp(0, len(fields) - 1)]
            found = level[used]
            same = not found.numel() or bool((found == found[0]).all())
            noise = (float(found[0]) if found.numel() else 0.0) if same else level
        values = sets.values
        if self.encoded:
            values = torch.ones_like(sets.values)
            for k, one in enumerate(fields):
                here = (number == k) & used
                values[here] = one.encode(sets.values[here])
        joint = self.fields.output.grid if outputs else self.fields.input.grid
        x = _locations(fields, number, sets.locations, joint)
        return x if sets.weights is None else WeightedPoints(x, sets.weights), values, used, noise

    def _require_usable(self, sets: SensorSets) -> None:
        """Refuse sensors that no law can be conditioned on."""
        used = sets.mask
        if used.shape[1] > MOST_SENSORS:
            raise ObservationError(f"a set has {used.shape[1]} sensors, at most {MOST_SENSORS}")
        if sets.weights is not None:
            from uqsonet.sensors.functionals import require_readable

            require_readable(self, sets)
        require_noise(sets.noise_std[used & ~sets.noise_std.isnan()])
        if not bool(sets.values[used].isfinite().all() & sets.locations[used].isfinite().all()):
            raise ObservationError("sensor locations and values must be finite (found NaN or inf)")
        fields = self.inputs + self.outputs
        for number, one in enumerate(fields):
            here = used & (sets.field == number)
            values = sets.values[here]
            if one.transform.positive and not bool((values > 0).all()):
                raise ObservationError(
                    f"sensor values of {one.name} must be positive, found {float(values.min()):g}"
                )
            for row in range(len(sets)):
                among = here[row]
                one.domain.require_inside(
                    sets.locations[row][among][..., : one.domain.dim],
                    "sensor" if number < len(self.inputs) == 1 else f"sensor of {one.name}",
                )
                self._require_consistent(sets, row, among & sets.at_points[row], one)

    def _require_consistent(
        self, sets: SensorSets, row: int, among: Tensor, one: NamedField
    ) -> None:
        """Refuse exact sensors at one place that disagree."""
        default = 0.0 if one in self.outputs else self.noise_std or 0.0
        level = sets.noise_std[row].nan_to_num(nan=default)
        exact = (among & (level == 0)).nonzero()[:, 0]
        if len(exact) < 2:
            return
        x = sets.locations[row][exact]
        x = x if sets.weights is None else x[:, 0]
        _, group = x.unique(dim=0, return_inverse=True)
        if int(group.max()) + 1 == len(exact):
            return
        values = sets.values[row][exact]
        for g in range(int(group.max()) + 1):
            same = group == g
            found = values[same]
            if float(found.max() - found.min()) > 1e-6 * float(found.abs().max()):
                first, second = exact[same][:2].tolist()
                raise ObservationError(
                    f"sensors {first} and {second} of {one.name} stand at the same place "
                    f"{x[same][0, : one.domain.dim].tolist()} and read {found[0]:g} and "
                    f"{found[1]:g}: give noise_std, or leave one out"
                )

    def _warn(self, sets: SensorSets) -> None:
        for text in self._doubts(sets):
            warnings.warn(text, ObservationWarning, stacklevel=3)

    def _doubts(self, sets: SensorSets) -> list[str]:
        """Return what is unusual about sensors, in words with numbers."""
        found = []
        for number, one in enumerate(self.inputs + self.outputs):
            here = sets.mask & (sets.field == number)
            margin = 0.1 * (one.highest - one.lowest)
            values = sets.values
            out = (values < one.lowest - margin) | (values > one.highest + margin)
            out = out & here & sets.at_points
            if bool(out.any()):
                row, k = out.nonzero()[0].tolist()
                more = f" (and {int(out.sum()) - 1} more)" if int(out.sum()) > 1 else ""
                found.append(
                    f"sensor {k} of {one.name} reads {float(values[row, k]):g}{more}; training saw "
                    f"{one.lowest:g} to {one.highest:g}"
                )
            if isinstance(one.domain, PointCloud) and bool(here.any()):
                x = sets.locations[here][..., : one.domain.dim].reshape(-1, one.domain.dim)
                nearest = torch.cdist(x, one.domain.points()).amin(1)
                typical = one.domain.typical_distance()
                if float(nearest.max()) > FAR * typical:
                    found.append(
                        f"a sensor of {one.name} at {x[int(nearest.argmax())].tolist()} is "
                        f"{float(nearest.max()):.3g} from the nearest point that training saw; "
                        f"these are {typical:.3g} apart"
                    )
        return found + self._improbable(self._of_inputs(sets))

    def _of_inputs(self, sets: SensorSets) -> SensorSets:
        """Return the sensors of input fields alone."""
        if not self.reads_outputs(sets):
            return sets
        used = sets.mask & (sets.field < len(self.inputs))
        found = replace(sets, mask=used, field=sets.field * used)
        return found.each(lambda t: t[:, used.any(0)])

    def _improbable(self, sets: SensorSets) -> list[str]:
        """Return a doubt where sensors do not fit the law of the input."""
        law: Any = getattr(self.operator, "law", None)
        if law is not None:
            return self._unlikely(sets)
        distance = self._distances(sets)
        if distance is None or not len(distance):
            return []
        count = sets.mask.sum(1)
        p = torch.special.gammaincc(count / 2, distance / 2)
        row = int(p.argmin())
        if float(p[row]) > IMPROBABLE / len(p) or int(count[row]) == 0:
            return []
        label = "" if sets.single else f" of set {sets.labels[row]}"
        text = (
            f"the sensors{label} are improbable under the model: squared distance "
            f"{float(distance[row]):.3g} from its mean where about {int(count[row])} is expected "
            f"(probability {float(p[row]):.1g})"
        )
        if self.calibration is not None:
            among = self._distances(self.calibration_sets(sets[row : row + 1]))
            assert among is not None
            above = int((among >= distance[row]).sum())
            if above:  # a law that is not Gaussian has such sensors among its own runs
                return []
            text += f"; none of {len(among)} calibration runs is as far"
        return [text + ". The band need not hold here"]

    def _unlikely(self, sets: SensorSets) -> list[str]:
        """Return a doubt where sensors do not fit a law that is not Gaussian."""
        operator: Any = self.operator
        tails = []
        for k in range(0, len(sets), SETS):
            tail = operator.input_posterior(*self._asked(sets[k : k + SETS])).tail
            if tail is None:
                return []
            tails.append(tail)
        p = torch.cat(tails)
        row = int(p.argmin())
        if float(p[row]) > IMPROBABLE / len(p):
            return []
        label = "" if sets.single else f" of set {sets.labels[row]}"
        return [
            f"the sensors{label} are improbable under the model's law of the input "
            f"({operator.law.name!r}): values as far from it have probability {float(p[row]):.1g}. "
            "The band need not hold here"
        ]

    def _distances(self, sets: SensorSets) -> Tensor | None:
        """Return squared Mahalanobis distances (B,) of sensors from the law of the input."""
        if getattr(self.operator, "bases", None) is None or sets.values.shape[1] == 0:
            return None
        step = max(1, min(SETS, TOGETHER // sets.values.shape[1] ** 2))
        starts = range(0, len(sets), step)
        return torch.cat([self._distances_of(sets[k : k + step]) for k in starts])

    def _distances_of(self, sets: SensorSets) -> Tensor:
        bases: Any = self.operator.bases  # type: ignore[attr-defined]
        given = self.fields.input
        x = _locations(self.inputs, sets.field, sets.locations, given.grid)
        parts = bases.input_mean[:, None], bases.input_factor
        rows = torch.cat([read_at(given.grid, part, x, sets.weights) for part in parts], dim=-1)
        values = torch.ones_like(sets.values)
        for number, one in enumerate(self.inputs):
            here = (sets.field == number) & sets.mask
            if self.encoded:
                values[here] = one.encode(sets.values[here])
            else:
                values[here] = given.transform.forward(sets.values[here])
        residual = torch.where(sets.mask, values - rows[..., 0], 0.0)
        noise = sets.noise_std.nan_to_num(nan=float(self.noise_std or 0.0))
        scale = torch.tensor([f.scale if self.encoded else 1.0 for f in self.inputs])
        spread = float(bases.input_factor.double().square().sum(1).mean().sqrt())
        level = (noise / scale.double()[sets.field]).square() + float(bases.input_remainder) ** 2
        level = level + (LEAST_LEVEL * spread) ** 2
        seen = rows[..., 1:] * sets.mask[..., None]
        # Directions without sensors have a residual of zero: they add nothing.
        covariance = seen @ seen.transpose(1, 2) + torch.diag_embed(level)
        factor = torch.linalg.cholesky(covariance)
        white = torch.linalg.solve_triangular(factor, residual[..., None], upper=False)[..., 0]
        return white.square().sum(1)

    def calibration_sets(self, one: SensorSets, seed: int = 0) -> SensorSets:
        """Return the calibration runs observed with the sensors of one set, noise included."""
        assert self.calibration is not None and self.encoded
        keep = one.mask[0]
        compact = one.each(lambda t: t[:, keep])
        n, m = len(self.calibration), int(keep.sum())
        joint = self.fields.input.grid
        x = _locations(self.inputs, compact.field, compact.locations, joint)[0]
        rows = self.calibration.inputs.double()
        weights = None if compact.weights is None else compact.weights[0]
        read = read_at(joint, rows.T.contiguous(), x, weights).T
        level = compact.noise_std.nan_to_num(nan=float(self.noise_std or 0.0))[0]
        scale = torch.tensor([f.scale for f in self.inputs], dtype=torch.float64)[compact.field[0]]
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randn(n, m, generator=generator, dtype=torch.float64)
        read = read + drawn * level / scale
        values = torch.empty_like(read)
        for number, one_field in enumerate(self.inputs):
            here = compact.field[0] == number
            values[:, here] = one_field.decode(read[:, here])
        every = compact.each(lambda t: t.expand(n, *t.shape[1:]))
        return replace(every, values=values, labels=[""] * n, single=False, kind="torch")

    def validate(
        self,
        held_out: Runs,
        sensors: object = None,
        *,
        noise_std: float | None = None,
        seed: int = 0,
        pairs: Runs | None = None,
    ) -> Report:
        """Score the model on runs that it has not seen.

        Parameters
        ----------
        held_out : Runs
            With the model's field names. Their points may differ from those of training.
        sensors : int, sequence of int, or array (m, d), optional
            Numbers of sensors at random points of the held-out inputs, or places; by default those
            that the model was fitted for.
        noise_std : float, optional
            Noise that is added to the sensors and stated to the model.
        seed : int
            Of layouts and noise.
        pairs : Runs, optional
            The runs that the model was fitted to: regression on them is scored, too.

        Returns
        -------
        Report
            Prints as a table; `Report.save` writes an HTML page with pictures.
        """
        from uqsonet.fitting.validate import validate

        return validate(self, held_out, sensors, noise_std=noise_std, seed=seed, pairs=pairs)

    def place(
        self, n: int, candidates: object = None, *, field: str | None = None, given: object = None,
        noise_std: object = None, target: object = None, criterion: str = "mean_variance",
    ) -> Placement:  # fmt: skip
        """Choose places for the next sensors: each takes the most variance from the target.

        Arguments, result and errors are those of `uqsonet.emulator.place.place`.
        """
        from uqsonet.emulator.place import place

        return place(
            self, n, candidates, field=field, given=given, noise_std=noise_std, target=target,
            criterion=criterion,
        )  # fmt: skip

    def output_columns(self, number: int) -> slice:
        """Return the columns of an output field in rows of all of them."""
        return part_columns(self.outputs, number)

    def with_operator(self, operator: Operator) -> Emulator:
        """Return the same fields answered by another operator, a baseline for example."""
        return replace(self, operator=operator, remainder=None, cokriging=None, kept_ratios={})

    def save(self, path: Path | str) -> None:
        """Write the model to a file that `uqsonet.load` reads: weights, fields, card, calibration.

        Raises
        ------
        DataError
            If it is no fitted model, or the file cannot be written.
        """
        from uqsonet.emulator.files import save_model

        save_model(self, Path(path))

    @cached_property
    def summary(self) -> str:
        """What `print` shows: fields, data, recipe, scores and limits."""
        from uqsonet.fitting.card import card_text

        return card_text(self)

    def __str__(self) -> str:
        return self.summary

    def __repr__(self) -> str:
        ins, outs = (", ".join(f.name for f in side) for side in (self.inputs, self.outputs))
        return f"Emulator({ins} -> {outs}, {self.fields.name})"


def _locations(
    fields: Sequence[NamedField], number: Tensor, locations: Tensor, joint: Domain
) -> Tensor:
    """Return locations (B, m, d) in fields of these numbers as locations of the fields as one."""
    if len(fields) == 1:
        return locations[..., : fields[0].domain.dim]
    found = locations.new_zeros(*locations.shape[:-1], joint.dim)
    found[..., 0] = number.view(*number.shape, *[1] * (locations.ndim - number.ndim - 1))
    width = min(locations.shape[-1], joint.dim - 1)
    found[..., 1 : 1 + width] = locations[..., :width]
    return found


def load(path: Path | str, trial: int | None = None) -> Emulator:
    """Return a trained model, ready for `condition`.

    Parameters
    ----------
    path : path or str
        A weight file, a folder that holds exactly one, or the name of an operator that comes with
        the package.
    trial : int, optional
        Number of the trial, in a file of several; by default its first.

    Raises
    ------
    DataError
        If the file is missing, damaged, foreign, or does not fit the networks it describes.
    """
    from uqsonet.operator.file import read_model

    operator, meta, others = read_model(path, trial)
    card = meta.get("card")
    with contextlib.suppress(ValueError):
        card = json.loads(card) if isinstance(card, str) else card
    card = card if isinstance(card, dict) else {}
    if "emulator" not in meta:
        return Emulator.around(operator, card)
    from uqsonet.emulator.calibration import Calibration
    from uqsonet.emulator.files import read_fitted
    from uqsonet.fitting.baselines import Cokriging

    inputs, outputs, noise_std, runs = read_fitted(path, operator, meta["emulator"], others)
    best = others.get("emulator/cokriging")
    return Emulator(
        operator, inputs, outputs, calibration=Calibration(*runs) if runs else None, card=card,
        noise_std=noise_std, remainder=others.get("emulator/remainder"),
        cokriging=None if best is None else Cokriging.on(operator.bases, best),  # type: ignore[union-attr]
    )  # fmt: skip

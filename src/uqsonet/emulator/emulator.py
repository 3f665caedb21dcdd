"""What a user holds: a trained operator with names, units, limits and calibration of its fields.

`uqsonet.fit` and `uqsonet.load` return an `Emulator`; `Emulator.condition` takes sensors as people
have them and returns a `FieldPosterior`.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from uqsonet.emulator.answer import FieldPosterior
from uqsonet.emulator.checks import check
from uqsonet.emulator.encode import unnamed
from uqsonet.emulator.field_law import FieldLaw
from uqsonet.errors import ObservationError, removed, renamed
from uqsonet.fields.field import Field, part_columns, part_locations
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.files import path_of
from uqsonet.gauss.seeds import RNG, root_of
from uqsonet.sensors.reading import read_sensors
from uqsonet.sensors.sensors import Sensors

if hasattr(os, "register_at_fork"):
    # Threads of the parent are not there in a child made by fork, which would wait for them.
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))

if TYPE_CHECKING:
    from uqsonet.emulator.calibration import CalibrationRuns, ConformalFactors
    from uqsonet.emulator.place import Placement
    from uqsonet.fitting.validate import Report
    from uqsonet.laws.bases import KarhunenLoeveBases
    from uqsonet.operator.base import Conditioned
    from uqsonet.runs.runs import Runs


@renamed(seed="rng")
@dataclass(frozen=True)
class Emulator:
    """An operator that has been learned, ready for sensors.

    It takes sensors as users state them. Fields are numbered as sensors number them: inputs first,
    then outputs.

    Attributes
    ----------
    operator : OperatorModel or a baseline
        It works in the coordinates that it was trained in.
    inputs, outputs : list of Field
    encoded : bool
        The operator works on fields that `Field.encode` has transformed and scaled. False for the
        paper's operators, which transform by themselves.
    noise_std : mapping of field to float, or None
        Noise of sensors that state none, where it is not zero; None leaves it to the operator.
    remainder : tuple of Tensor, shapes (n, q) and (M, q), or None
        Roots of the covariance of what the modes leave out, at the points of inputs and outputs.
    calibration : CalibrationRuns, or nothing
        Runs that calibrate bands: nothing of what answers them was fitted to them.
    given_inputs, given_outputs : OperatorModel or a baseline, or None
        What answers sensors of inputs alone, and of outputs, too, where that is not the operator.
    card : dict
        What it was made from, how, how good it is, and its limits.
    linear : Tensor, shape (p, r + p), or None
        The best linear operator and a root of what it leaves of the outputs: cokriging, to compare
        with (`uqsonet.operator.baselines.Cokriging.on`).
    """

    operator: Conditioned
    inputs: list[Field]
    outputs: list[Field]
    encoded: bool = True
    noise_std: Mapping[str, float] | None = field(default_factory=dict)
    remainder: tuple[Tensor, Tensor] | None = None
    calibration: CalibrationRuns | tuple[()] = ()
    given_inputs: Conditioned | None = None
    given_outputs: Conditioned | None = None
    card: dict[str, Any] = field(default_factory=dict)
    linear: Tensor | None = None

    @classmethod
    def around(cls, operator: Conditioned, card: Mapping[str, Any] | None = None) -> Emulator:
        """Return an operator of the paper, or any `OperatorModel`, as an emulator."""
        inputs, outputs = [operator.fields.input], [operator.fields.output]
        return cls(operator, inputs, outputs, encoded=False, noise_std=None, card=dict(card or {}))

    def condition(
        self, sensors: object = None, values: object = None, mask: object = None,
        noise_std: object = None, *, likelihood: object = None, **named: object,
    ) -> FieldPosterior:  # fmt: skip
        """Return the law of all fields given sensors of any of them.

        Without sensors it is the law before any measurement. Sensors without a name read the field
        that the model was fitted for (`fit(sensors=...)`), by default the input.

        Parameters
        ----------
        sensors : optional
            One of: a DataFrame, the path of a CSV file or a mapping of columns
            ``x[,y[,z]],value[,field][,noise_std][,set]``; a tuple
            ``(locations, values)`` or ``(locations, values, noise_std)``; a list of any of these,
            one for each set; or, with `values`, an array of locations (m, d) or (B, m, d), anywhere
            in the domain, or a DataFrame of them, by the names of the coordinates. In place of
            locations there may be ``WeightedPoints(points, weights)``.
        values : array, shape (m,) or (B, m), optional
            Of the field itself, not transformed.
        mask : array of bool, shape of `values`, optional
            False marks padding.
        noise_std : float, array, or mapping of field to float, optional
            Standard deviation of each sensor's noise in the transformed field: in the field's own
            units, or under ``log`` the relative error (0.05 is 5 %). By default what the model
            was fitted for.
        likelihood : str, Student, callable or mapping of field to these, optional
            Law of the noise, where it is not Gaussian: ``"student"`` (outliers), or
            `uqsonet.emulator.likelihood.Student` (``Student(df=2)``). Or a function
            ``f(predicted, readings)`` from arrays (S, m), (m,) of one set, in the fields' own
            units and the sensors' order, to log-likelihoods (S,). Every sensor needs a positive
            `noise_std`: the scale of Student's t, or the Gaussian noise that comes nearest to a
            function (samples start there).
        **named
            Sensors by field, of inputs or of outputs: ``condition(k=(locations, values), u=...)``.

        Raises
        ------
        ObservationError
            If sensors or likelihood cannot be used; the message names what it is about.

        Warns
        -----
        ObservationWarning
            If sensors are unlike those that the model has learned from: outside the range of its
            values, far from its points, or improbable under its law. Once the answer is asked, if
            few samples stand behind it (`FieldPosterior.effective_size`).
        """
        sets = read_sensors(
            self.named_fields, sensors, values, mask, noise_std, named or None, unnamed(self)
        )
        if likelihood is not None:
            from uqsonet.emulator.likelihood import likelihoods_of

            likelihood = likelihoods_of(self, sets, likelihood)
        try:
            check(self, sets, stacklevel=2, gaussian=likelihood is None)
        except ObservationError as error:
            if not isinstance(sensors, str | Path):
                raise
            raise ObservationError(f"{sensors}: {error}") from None
        return self.answer(sets, None, likelihood)

    def answer(
        self, sets: Sensors, number: int | None = None, likelihood: object = None
    ) -> FieldPosterior:
        """Return the law given sensors that have been read and checked; of one field by number."""
        known = len(self.inputs) if number is None else number
        chosen = number is not None or len(self.outputs) == 1
        return FieldPosterior(FieldLaw(self._answering, sets, known, likelihood), chosen)

    @cached_property
    def _answering(self) -> Emulator:
        """What answers hold of this emulator: all that works out laws and bands."""
        return replace(self, card={}, linear=None)

    @cached_property
    def factors(self) -> ConformalFactors | None:
        """Conformal factors of bands, where there are calibration runs."""
        if not self.calibration:
            return None
        from uqsonet.emulator.calibration import ConformalFactors

        return ConformalFactors(self)

    def complete(self, runs: Runs, samples: int = 0) -> Any:
        """Return the law of each run given its own readings (`reanalysis.completed`)."""
        from uqsonet.emulator.reanalysis import completed

        return completed(self, runs, samples)

    @removed(pairs="the card has the scores of regression on the runs of `fit`")
    def validate(
        self, held_out: Runs, sensors: object = None, *, noise_std: object = None,
        rng: RNG = 0,
    ) -> Report:  # fmt: skip
        """Score the model on runs that it has not seen.

        Parameters
        ----------
        held_out : Runs
            With the model's field names. Their points may differ from those of training. Of runs
            with gaps some readings are sensors, as they are, and others are truths.
        sensors : int, sequence of int, array (m, d), or mapping of field to one of these, optional
            Numbers of sensors at random points of the held-out inputs, or places; of fields by
            name, inputs or outputs. By default those that the model was fitted for.
        noise_std : float, or mapping of field to float, optional
            Noise added to the sensors and stated to the model, by default that of the fit.
        rng : int, SeedSequence or Generator
            Of layouts and noise.

        Returns
        -------
        Report
            Prints as a table; `Report.save` writes an HTML page with pictures.
        """
        from uqsonet.fitting.validate import validate

        return validate(self, held_out, sensors, noise_std, root_of(rng))

    @removed(avoid="leave places where no sensor may stand out of candidates")
    def place(
        self, n: int, candidates: object = None, *, field: str | None = None, given: object = None,
        noise_std: object = None, target: object = None, distance: float = 0.0,
        cost: object = None, budget: float | None = None,
    ) -> Placement:  # fmt: skip
        """Choose places for the next sensors: each takes the most variance from the target.

        Places are chosen one by one; later ones know of the earlier. The same arguments give the
        same places, whatever the order of the candidates.

        Parameters
        ----------
        n : int
            Sensors to place.
        candidates : array (m, d), or mapping of field to such arrays, optional
            Where sensors may stand, each at most once; by default the points of the inputs.
        field : str, optional
            What sensors read, an input or an output, where candidates do not say; by default the
            only input.
        given : optional
            Sensors that are there already, as `condition` takes them. Their places alone, a tuple
            ``(locations,)`` or ``{"k": (locations,)}``, are enough where the law is gaussian and
            the branch linear: the answer then does not depend on what they read. (Of a random
            operator it is the average over what they might read.)
        noise_std : float, array (m,), or mapping of field to these, optional
            Noise of the new sensors in the transformed field, as in `condition`.
        target : str, array (M,), or mapping of a field to such an array, optional
            What is to be known: a field, an output or an input, by default the only output (its
            variance is averaged over its domain); or the functional that weights on the field's own
            points make of it.
        distance : float
            Least distance between two sensors, those that are there included: Euclidean, in the
            units of the coordinates, around axes that repeat.
        cost : float, array (m,), or mapping of field to these, optional
            Cost of a sensor at each candidate, by default 1. Each choice takes the most variance
            for its cost.
        budget : float, optional
            What the new sensors may cost together. Then `n` is the most that are placed.

        Returns
        -------
        Placement
            Places, and for each step the map of expected reduction. Of a field under ``log`` all
            variances are those of the logarithm.

        Raises
        ------
        ObservationError
            If arguments do not fit; the message names them.
        """
        from uqsonet.emulator.place import Search

        search = Search(self, candidates, field, given, noise_std, target)
        return search.placement(n, search.site(distance, cost, budget))

    @property
    def fields(self) -> OperatorFields:
        """Input and output as the operator has them."""
        return self.operator.fields

    @property
    def named_fields(self) -> list[Field]:
        """The input fields, then the output fields."""
        return self.inputs + self.outputs

    @property
    def method(self) -> str:
        """Name of the operator's method, for messages."""
        return self.operator.method

    @property
    def bases(self) -> KarhunenLoeveBases | None:
        """Bases of both sides, where the operator has them."""
        return getattr(self.operator, "bases", None)

    def default_noise(self, number: int) -> float:
        """Return the noise of sensors of a field that state none."""
        if self.noise_std is None:
            return float(self.operator.noise_std) if number < len(self.inputs) else 0.0
        return self.noise_std.get(self.named_fields[number].name, 0.0)

    def locations(self, number: int, x: Tensor) -> Tensor:
        """Return points (M, d) of a field as the operator has them."""
        if number < len(self.inputs):
            return part_locations(number, x, self.fields.input.grid)
        return part_locations(number - len(self.inputs), x, self.fields.output.grid)

    def remainder_at(self, number: int, x: Tensor) -> Tensor | None:
        """Return a root (M, q) of the covariance of what modes leave out of a field at (M, d)."""
        one, first = self.named_fields[number], len(self.inputs)
        if self.remainder is None:
            if number >= first or self.bases is None:
                return None
            return float(self.bases.input_remainder) * one.scale * torch.ones_like(x[:, :1])
        of_output = number >= first
        fields, place = (self.outputs, number - first) if of_output else (self.inputs, number)
        root = self.remainder[of_output][part_columns(fields, place)].double()
        both = one.domain.interpolate(torch.cat([root, root.norm(dim=1, keepdim=True)], 1), x)
        found, size = both[:, :-1], both[:, -1:].abs()
        return found * (size / found.norm(dim=1, keepdim=True).clamp_min(1e-300)) * one.scale

    def reads_outputs(self, sets: Sensors) -> bool:
        """Whether some of the sensors are of output fields."""
        return bool((sets.mask & (sets.field >= len(self.inputs))).any())

    def with_operator(self, operator: Conditioned) -> Emulator:
        """Return the same fields answered by another operator, a baseline for example."""
        nothing = dict.fromkeys(("remainder", "linear", "given_inputs", "given_outputs"))
        return replace(self, operator=operator, **nothing)

    def save(self, path: Path | str) -> None:
        """Write the model to a file that `uqsonet.load` reads: weights, fields, card, calibration.

        Raises
        ------
        DataError
            If it is no fitted model, or the file cannot be written.
        """
        from uqsonet.emulator.files import save_model

        save_model(self, path_of(path))

    def __str__(self) -> str:
        """Return fields, data, recipe, scores and limits."""
        from uqsonet.fitting.card import card_text

        return card_text(self)

    def __repr__(self) -> str:
        ins, outs = (", ".join(f.name for f in side) for side in (self.inputs, self.outputs))
        return f"Emulator({ins} -> {outs}, {self.fields.name})"


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
    from uqsonet.operator.weight_files import read_model

    operator, meta, tensors = read_model(path, trial)
    card = meta.get("card")
    with contextlib.suppress(ValueError):
        card = json.loads(card) if isinstance(card, str) else card
    card = card if isinstance(card, dict) else {}
    if "emulator" not in meta:
        return Emulator.around(operator, card)
    return replace(_fitted(path, operator, tensors, meta), card=card)


def _fitted(path: Path | str, operator: Any, tensors: Any, meta: Any) -> Emulator:
    """Return what a file has of `fit`, which may hold others of the same kind that calibrate it."""
    from uqsonet.emulator.files import read_fitted

    parts = read_fitted(path, operator, meta["emulator"], tensors, partial(_fitted, path))
    return Emulator(operator, **parts)

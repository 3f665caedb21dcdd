"""Where the next sensors belong: places chosen one by one, by the variance that they take away.

All that is needed is the joint covariance of the coefficients ``(a, c)`` of input and output given
what is known. A reading is ``y = r (a, c) + noise``, and the target is linear in the coefficients,
too. Knowing y reduces the mean variance of the target by ``|Cov(target, y)|^2 / Var y``: exactly
where the joint law is Gaussian, elsewhere if the target is predicted linearly. After a choice the
covariance loses a term of rank one. A step costs a product of the candidates' rows with a vector.

Greedy choice is standard for Gaussian fields (Krause, Singh and Guestrin, J. Mach. Learn. Res. 9,
2008).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import ObservationError
from uqsonet.fields.named_field import part_locations
from uqsonet.fields.numbers import real_numbers, require_noise
from uqsonet.gauss.posterior import MOMENT_SEED, moments_of, spread
from uqsonet.laws.base import SINGLE_PRECISION, rounding_noise, sensor_noise
from uqsonet.operator.bases import KarhunenLoeveBases
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.sensors.reading import read_sensors
from uqsonet.sensors.sensors import SensorSets, field_number

if TYPE_CHECKING:
    from uqsonet.emulator.emulator import Emulator

CRITERIA = ("mean_variance",)

SAMPLES = 4096
"""Joint samples behind a covariance that has no closed form."""

SAME = 1e-9
"""Relative difference of two reductions that counts as none: the first place in order is taken."""


@dataclass(frozen=True)
class Placement:
    """Places for sensors, in the order in which they were chosen.

    Attributes
    ----------
    places : ndarray, shape (n, d)
        NaN for coordinates that a field lacks.
    fields : list of str
        What a sensor reads there.
    chosen : ndarray of int, shape (n,)
        Their numbers among the candidates.
    before, after : ndarray, shape (n,)
        Expected value of the criterion before and after each choice, in squared units of the
        (transformed) target.
    reduction : ndarray, shape (n, m)
        By how much a sensor at each candidate is expected to lower the criterion, at each step.
    candidates : ndarray, shape (m, d)
    candidate_fields : list of str
    target : str
        Name of the target's field.
    given : ndarray, shape (k, d)
        Sensors that were there already: their points.
    given_fields : list of str
    """

    places: np.ndarray
    fields: list[str]
    chosen: np.ndarray
    before: np.ndarray
    after: np.ndarray
    reduction: np.ndarray
    candidates: np.ndarray = field(repr=False)
    candidate_fields: list[str] = field(repr=False)
    target: str
    given: np.ndarray = field(repr=False)
    given_fields: list[str] = field(repr=False)

    def plot(self, path: object = None) -> Any:
        """Draw the map of expected reduction before the first choice, and the chosen places.

        Parameters
        ----------
        path : path, optional
            Where to save the picture: PNG, PDF or SVG.

        Returns
        -------
        matplotlib Figure
            In one dimension with a curve for each step, in two and three with a map for each field.
        """
        from uqsonet.show.pictures import draw_placement

        return draw_placement(self, path)


def place(
    emulator: Emulator,
    n: int,
    candidates: object = None,
    *,
    field: str | None = None,
    given: object = None,
    noise_std: object = None,
    target: object = None,
    criterion: str = "mean_variance",
    worst: bool = False,
) -> Placement:
    """Choose places for the next sensors: each takes the most variance from the target.

    Places are chosen one by one; later ones know of the earlier. The same arguments give the
    same places, whatever the order of the candidates.

    Parameters
    ----------
    emulator : Emulator
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
        What is to be known: a field, an output or an input, by default the only output; or the
        functional that weights on the field's own points make of it.
    criterion : {"mean_variance"}
        Mean of the target's variance over its domain, or the variance of the functional.
    worst : bool
        Take the places that reduce the criterion least, to compare with.

    Returns
    -------
    Placement
        Places, and for each step the map of expected reduction. Of a field under ``log`` all
        variances are those of the logarithm.

    Raises
    ------
    ObservationError
        If arguments do not fit; the message names them.

    Notes
    -----
    Of a linear branch and the gaussian law the reductions are exact. Elsewhere they are those
    of the best linear prediction from the new readings, with covariances from 4,096 joint
    samples given the sensors that are there; what the model knows in closed form is not
    sampled. What a conditional law gains beyond that is left out.
    """
    if criterion not in CRITERIA:
        known = ", ".join(CRITERIA)
        raise ObservationError(f"criterion {criterion!r} is unknown; there is {known}")
    fields, inputs = emulator.inputs + emulator.outputs, len(emulator.inputs)
    groups = _candidates(emulator, candidates, field)
    size = sum(len(x) for _, x in groups)
    whole = isinstance(n, int | np.integer) and not isinstance(n, bool)
    if not whole or not 1 <= n <= size:
        raise ObservationError(
            f"n must be a whole number from 1 to the number of candidates, {size}; found {n!r}"
        )
    levels = _levels(emulator, groups, noise_std)
    wanted = _wanted(emulator, target)
    sets, valued = _known(emulator, given)
    covariance, left = _joint_covariance(emulator, sets, valued)
    r = _bases(emulator).input_factor.shape[1]
    sides = slice(0, r), slice(r, len(covariance))

    def readings(number: int, x: Tensor, level: Tensor, weights: Tensor | None = None) -> _Readings:
        least, rows = _least_noise(emulator, number), _rows(emulator, number, x.flatten(0, -2))
        if weights is not None:
            rows = (rows.view(*weights.shape, rows.shape[1]) * weights[..., None]).sum(1)
            least = least * weights.norm(2 if number < inputs else 1, dim=1)
        return _Readings(sides[number >= inputs], rows, level.square() + least**2)

    greedy = _Greedy(covariance, _Target.of(emulator, *wanted, sides[wanted[0] >= inputs]))
    for k, one in enumerate(fields):
        here = left.mask[0] & (left.field[0] == k)
        level = left.noise_std[0][here].nan_to_num(nan=_usual_noise(emulator, k))
        weights = None if left.weights is None else left.weights[0][here]
        known = readings(k, left.locations[0][here][..., : one.domain.dim], level, weights)
        for row, variance in zip(known.rows, known.variance, strict=True):
            greedy.learn(known.side, row, float(variance))
    greedy.consider([readings(k, x, s) for (k, x), s in zip(groups, levels, strict=True)])
    numbers = np.repeat([k for k, _ in groups], [len(x) for _, x in groups])
    dim = max(x.shape[1] for _, x in groups)
    padded = [
        np.pad(x.numpy(), [(0, 0), (0, dim - x.shape[1])], constant_values=np.nan)
        for _, x in groups
    ]
    places = np.concatenate(padded)
    order = np.lexsort((*places.T[::-1], numbers))  # ties do not depend on the order of candidates
    rank = order.argsort()
    free, found = np.ones(size, dtype=bool), []
    for _ in range(int(n)):
        before, reduction = greedy.value(), greedy.reductions().numpy()
        if worst:
            equal = free & (reduction <= (1 + SAME) * reduction[free].min())
        else:
            equal = free & (reduction >= (1 - SAME) * reduction[free].max())
        chosen = int(np.flatnonzero(equal)[rank[equal].argmin()])
        greedy.choose(chosen)
        free[chosen] = False
        found.append((chosen, before, greedy.value(), reduction))
    chosen, before, after, reduction = (np.array(part) for part in zip(*found, strict=True))
    there = sets.mask[0] if sets.weights is None else sets.weights[0] != 0
    number = sets.field[0] if sets.weights is None else sets.field[0][:, None].expand(there.shape)
    return Placement(
        places=places[chosen],
        fields=[fields[k].name for k in numbers[chosen]],
        chosen=chosen,
        before=before,
        after=after,
        reduction=reduction,
        candidates=places,
        candidate_fields=[fields[k].name for k in numbers],
        target=fields[wanted[0]].name,
        given=sets.locations[0][there].numpy(),
        given_fields=[fields[k].name for k in number[there].tolist()],
    )


@dataclass(frozen=True)
class _Readings:
    """Readings of one field, as rows on the coefficients of its side.

    Attributes
    ----------
    side : slice
        Of the joint coefficients.
    rows : Tensor, shape (m, r) or (m, p)
    variance : Tensor, shape (m,)
        Of noise and of what the modes leave out.
    """

    side: slice
    rows: Tensor
    variance: Tensor


@dataclass(frozen=True)
class _Target:
    """Values whose variances are summed.

    Attributes
    ----------
    side : slice
        Of the joint coefficients.
    basis : Tensor, shape (q, r) or (q, p)
        The values, by coefficients; with the root of the weights of their variances.
    remainder : float
        What the modes leave out of the sum.
    """

    side: slice
    basis: Tensor
    remainder: float

    @classmethod
    def of(cls, emulator: Emulator, number: int, weights: Tensor | None, side: slice) -> _Target:
        """Return the mean over a field, or the functional that weights (M,) on its points are."""
        one = (emulator.inputs + emulator.outputs)[number]
        rows = _rows(emulator, number, one.domain.points())
        left = _remainder(emulator, number)
        if weights is not None:
            return cls(side, (weights @ rows)[None], float((weights * left).square().sum()))
        share = one.domain.quadrature() / one.domain.quadrature().sum()
        # The sum of variances needs no more than a root of the weighted modes' products.
        values, vectors = torch.linalg.eigh(rows.T @ (share[:, None] * rows))
        basis = values.clamp_min(0).sqrt()[:, None] * vectors.T
        return cls(side, basis, float(share @ left.square()))


class _Greedy:
    """The joint covariance, and what each candidate would take from the target's variance.

    Parameters
    ----------
    covariance : Tensor, shape (k, k)
        Of the joint coefficients.
    target : _Target
    """

    def __init__(self, covariance: Tensor, target: _Target) -> None:
        self._covariance, self._target = covariance.clone(), target
        self._readings: list[_Readings] = []

    def value(self) -> float:
        """Return the criterion."""
        inner = self._covariance[self._target.side, self._target.side]
        found = spread(self._target.basis, inner[None]).square().sum()
        return float(found) + self._target.remainder

    def consider(self, readings: list[_Readings]) -> None:
        """Set the candidates."""
        self._readings = readings
        with_target = self._covariance[:, self._target.side] @ self._target.basis.T
        self._through = torch.cat([one.rows @ with_target[one.side] for one in readings])  # (m, q)
        self._variance = torch.cat(
            [
                ((one.rows @ self._covariance[one.side, one.side]) * one.rows).sum(1) + one.variance
                for one in readings
            ]
        )

    def reductions(self) -> Tensor:
        """Return the expected reduction of the criterion (m,) by each candidate."""
        return self._through.square().sum(1) / self._variance

    def choose(self, number: int) -> None:
        """Take a candidate's reading as known."""
        group = 0
        while number >= len(self._readings[group].rows):
            number -= len(self._readings[group].rows)
            group += 1
        one = self._readings[group]
        seen, total = self.learn(one.side, one.rows[number], float(one.variance[number]))
        with_candidates = torch.cat([one.rows @ seen[one.side] for one in self._readings])
        along = self._target.basis @ seen[self._target.side] / total
        self._through -= with_candidates[:, None] * along
        self._variance -= with_candidates.square() / total

    def learn(self, side: slice, row: Tensor, variance: float) -> tuple[Tensor, float]:
        """Take a reading as known; return its covariances (k,) and its variance before."""
        seen = self._covariance[:, side] @ row
        total = float(row @ seen[side]) + variance
        self._covariance -= torch.outer(seen, seen / total)
        return seen, total


def _joint_covariance(
    emulator: Emulator, sets: SensorSets, valued: bool
) -> tuple[Tensor, SensorSets]:
    """Return the covariance (k, k) of ``(a, c)``, and the sensors that it does not know of."""
    operator: Any = emulator.operator
    model = operator if isinstance(operator, KarhunenLoeveModel) else None
    straight = model is not None and model.network is None
    closed = straight and model is not None and model.law is None
    if not valued and not closed:
        raise ObservationError(
            "given: places without values are enough only for a linear branch and the gaussian "
            "law; this model's answer depends on what the sensors read: give (locations, values)"
        )
    known = sets
    if closed:  # readings of the output are then taken in by steps of rank one
        known = replace(sets, mask=sets.mask & (sets.field < len(emulator.inputs)) & valued)
    joint = emulator.answer_jointly(known)
    (_, of_a), (_, of_c) = (side.coefficient_moments() for side in (joint.input, joint.output))
    weight = None
    if model is not None:
        # Readings of the output tell of the rest e, too, which is then no longer independent of a.
        rest = model.fields.random_operator or model.config.held_out_residuals
        weight = None if rest and emulator.reads_outputs(known) else model.straight()[0]
    if straight and weight is not None:
        cross = of_a[0] @ weight.T
    else:
        a, c = (
            side.coefficient_samples(SAMPLES, torch.Generator().manual_seed(MOMENT_SEED))
            for side in (joint.input, joint.output)
        )
        if model is not None and weight is not None:  # the rest e is independent of a
            with torch.no_grad():
                c = model.branch(a.to(model.bases.linear_weight)).cpu()
        r = of_a.shape[-1]
        sampled = moments_of(torch.cat([a.double(), c.double()], -1))[1][0]
        cross = sampled[:r, r:]
        if weight is not None:  # the linear part is known: samples serve for the rest
            cross = cross + (of_a[0] - sampled[:r, :r]) @ weight.T
    whole = torch.cat([torch.cat([of_a[0], cross], 1), torch.cat([cross.T, of_c[0]], 1)])
    return whole, replace(sets, mask=sets.mask & ~known.mask)


def _known(emulator: Emulator, given: object) -> tuple[SensorSets, bool]:
    """Return the sensors that are there already, and whether their values are known."""
    named: dict[Any, Any] = dict(given) if isinstance(given, Mapping) else {None: given}
    alone = [isinstance(one, tuple) and len(one) == 1 for one in named.values()]
    if not any(alone):
        sets = emulator.condition(given).sensors
        if not sets.single:
            raise ObservationError(f"given must be one set of sensors, found {len(sets)}")
        return sets, True
    if not all(alone):
        raise ObservationError("given: values for the sensors of all fields or of none")
    fields = emulator.inputs + emulator.outputs
    groups = _points(emulator, {k: one[0] for k, one in named.items()}, "given")
    ones = {fields[k].name: (x, torch.ones(len(x))) for k, x in groups}
    return read_sensors(fields, named=ones, inputs=len(emulator.inputs)), False


Groups = list[tuple[int, Tensor]]
"""Number of a field, as sensors have it, and points (m, d) there."""


def _candidates(emulator: Emulator, candidates: object, name: str | None) -> Groups:
    """Return candidates by field; by default the points of the inputs."""
    fields = emulator.inputs + emulator.outputs
    if isinstance(candidates, Mapping):
        if name is not None:
            raise ObservationError("candidates by field name have a field: leave out field")
        named = dict(candidates)
    elif candidates is not None:
        named = {name: candidates}
    else:
        asked = emulator.inputs if name is None else [fields[field_number(fields, name)]]
        named = {one.name: one.domain.points() for one in asked}
    return _points(emulator, named, "candidates")


def _points(emulator: Emulator, named: Mapping[Any, object], what: str) -> Groups:
    """Return points by field, checked; without a name they are of the only input."""
    fields, groups = emulator.inputs + emulator.outputs, []
    for name, points in named.items():
        if name is None and len(emulator.inputs) > 1:
            names = ", ".join(one.name for one in emulator.inputs)
            raise ObservationError(f"{what}: there are several input fields, name one of {names}")
        number = 0 if name is None else field_number(fields, name, f"{what}: field")
        dim = fields[number].domain.dim
        found = real_numbers(points, what)
        found = found[:, None] if found.ndim == 1 and dim == 1 else found
        if found.ndim != 2 or found.shape[1] != dim or not len(found):
            raise ObservationError(
                f"{what} of {fields[number].name} must have shape (m, {dim}), found "
                f"{tuple(found.shape)}"
            )
        if not bool(found.isfinite().all()):
            raise ObservationError(f"{what} must be finite (found NaN or inf)")
        fields[number].domain.require_inside(found, f"{what} of {fields[number].name}:")
        groups.append((number, found))
    if not groups:
        raise ObservationError(f"{what}: no field is named")
    return groups


def _wanted(emulator: Emulator, target: object) -> tuple[int, Tensor | None]:
    """Return the target's field, and the weights (M,) on its points if it is a functional."""
    fields = emulator.inputs + emulator.outputs
    name, weights = target if isinstance(target, str) else None, None
    if isinstance(target, Mapping):
        if len(target) != 1:
            raise ObservationError(f"target: weights of one field expected, found {len(target)}")
        ((name, weights),) = target.items()
    elif name is None:
        weights = target
    if name is None and len(emulator.outputs) > 1:
        names = ", ".join(one.name for one in fields)
        raise ObservationError(f"target: there are several output fields, name one of {names}")
    number = len(emulator.inputs)
    number = number if name is None else field_number(fields, name, "target: field")
    if weights is None:
        return number, None
    found, size = real_numbers(weights, "target"), fields[number].domain.size
    if found.shape != (size,) or not bool(found.isfinite().all()) or not bool(found.any()):
        raise ObservationError(
            f"target: weights on the {size} points of {fields[number].name}, finite and not all "
            f"zero, expected; found shape {tuple(found.shape)}"
        )
    return number, found


def _levels(emulator: Emulator, groups: Groups, noise_std: object) -> list[Tensor]:
    """Return the noise of each candidate, in the units of the (transformed) field."""
    fields = emulator.inputs + emulator.outputs
    stated = dict(noise_std) if isinstance(noise_std, Mapping) else None
    for name in stated or ():
        field_number(fields, name, "noise_std: field")
    found = []
    for number, x in groups:
        level = noise_std if stated is None else stated.get(fields[number].name)
        one = real_numbers(_usual_noise(emulator, number) if level is None else level, "noise_std")
        if one.ndim and (one.shape != (len(x),) or (len(groups) > 1 and stated is None)):
            raise ObservationError(
                f"noise_std must be a number, or one for each of the {len(x)} candidates of "
                f"{fields[number].name}; found shape {tuple(one.shape)}"
            )
        require_noise(one)
        found.append(one.expand(len(x)))
    return found


def _usual_noise(emulator: Emulator, number: int) -> float:
    """Return what sensors of a field have by default, as `Emulator.condition` reckons."""
    if number >= len(emulator.inputs):
        return 0.0
    own = emulator.noise_std
    return float(getattr(emulator.operator, "noise_std", 0.0) if own is None else own)


def _rows(emulator: Emulator, number: int, x: Tensor) -> Tensor:
    """Return the values of a (transformed) field at points (m, d) by coefficients of its side."""
    one, bases = (emulator.inputs + emulator.outputs)[number], _bases(emulator)
    if number < len(emulator.inputs):
        _, rows = bases.input_basis(part_locations(number, x, emulator.fields.input.grid))
    else:
        part = number - len(emulator.inputs)
        _, rows = bases.output_basis(part_locations(part, x, emulator.fields.output.grid))
    return rows * one.scale


def _remainder(emulator: Emulator, number: int) -> Tensor:
    """Return the std (M,) of what the modes leave out at the field's points."""
    one, part = (emulator.inputs + emulator.outputs)[number], number - len(emulator.inputs)
    if part < 0:
        found = _bases(emulator).input_remainder.double().expand(one.domain.size)
    elif emulator.remainder is None:
        found = torch.zeros(one.domain.size, dtype=torch.float64)
    else:
        found = emulator.remainder[emulator.output_columns(part)].double()
    return found * one.scale


def _least_noise(emulator: Emulator, number: int) -> float:
    """Return the noise that sensors of a field are reckoned with at least."""
    one, bases = (emulator.inputs + emulator.outputs)[number], _bases(emulator)
    operator = emulator.operator
    if number < len(emulator.inputs):
        return float(sensor_noise(0.0, bases.input_remainder, rounding_noise(bases))) * one.scale
    error = operator.output_error() if isinstance(operator, KarhunenLoeveModel) else 0.0
    least = SINGLE_PRECISION * float(bases.output_scale) / len(bases.output_mean) ** 0.5
    return math.hypot(error, least) * one.scale


def _bases(emulator: Emulator) -> KarhunenLoeveBases:
    operator: Any = emulator.operator
    return operator.bases

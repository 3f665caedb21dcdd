"""Sensor placement: places are chosen one by one, by the variance that they take away.

All that is needed is the joint covariance of the coefficients ``(a, c)`` of input and output given
what is known. A reading is ``y = r (a, c) + noise``, and the target is linear in the coefficients,
too. Knowing y reduces the mean variance of the target by ``|Cov(target, y)|^2 / Var y``: exactly
where the joint law is Gaussian, elsewhere if the target is predicted linearly, with covariances
from 4,096 joint samples given the sensors that are there; what the model knows in closed form is
not sampled. What a conditional law gains beyond that is left out. After a choice the covariance
loses a term of rank one. A step costs a product of the candidates' rows with a vector.

Greedy choice is standard for Gaussian fields (Krause, Singh and Guestrin, J. Mach. Learn. Res. 9,
2008).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from uqsonet.emulator.checks import check, points_of
from uqsonet.emulator.encode import encode, joint_law, unnamed
from uqsonet.emulator.site import Site, periods_of
from uqsonet.errors import ObservationError
from uqsonet.fields.field import Field
from uqsonet.fields.numbers import real_numbers
from uqsonet.gauss.gaussian import sensor_noise
from uqsonet.gauss.given import spread
from uqsonet.laws.bases import SINGLE_PRECISION, rounding_noise
from uqsonet.sensors.reading import read_sensors, the_one
from uqsonet.sensors.sensors import Sensors, field_number, sensors_at

Emulator = Any  # `uqsonet.emulator.emulator.Emulator`, whose methods call this file

SAME_REDUCTION = 1e-9  # reductions that differ by this share are equal: the first place is taken


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
    cost : ndarray, shape (n,)
        What each costs; ones where no costs were stated.
    read : mapping of str to Field
        The model's fields by name, for pictures.
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
    cost: np.ndarray = field(repr=False)
    read: Mapping[str, Field] = field(repr=False)

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


class Search:
    """Candidates, and what each of them would take from the target's variance, step by step.

    Parameters are those of `Emulator.place` without the number of sensors. The candidates' `places`
    are (m, d), NaN for coordinates that a field lacks, and `numbers` (m,) the fields that they
    read.
    """

    def __init__(
        self, emulator: Emulator, candidates: object = None, field: str | None = None,
        given: object = None, noise_std: object = None, target: object = None,
    ) -> None:  # fmt: skip
        self._emulator, self._fields = emulator, emulator.named_fields
        self._groups = groups = _candidates(emulator, candidates, field)
        levels = _of_each(emulator, groups, noise_std, "noise_std", emulator.default_noise)
        self._target_number, weights = _wanted(emulator, target)
        self._known, valued = _known(emulator, given)
        self._covariance, left = _joint_covariance(emulator, self._known, valued)
        for row, variance in zip(*_rows(emulator, left), strict=True):
            self._learn(row, float(variance))
        read = []
        for (k, x), level in zip(groups, levels, strict=True):
            sets = sensors_at(self._fields[k], x, torch.ones(len(x)), None, level, number=k)
            read.append(_rows(emulator, sets))
        self._rows, self._noise = (torch.cat(part) for part in zip(*read, strict=True))
        self._target, self._remainder = self._target_rows(weights)
        self._through = self._rows @ (self._covariance @ self._target.T)  # (m, q)
        self._variance = ((self._rows @ self._covariance) * self._rows).sum(1) + self._noise
        dim = max(x.shape[1] for _, x in groups)
        places = [pad(x, [0, dim - x.shape[1]], value=torch.nan) for _, x in groups]
        self.places = torch.cat(places).numpy()
        self.numbers = np.repeat([k for k, _ in groups], [len(x) for _, x in groups])
        self._rank = np.lexsort((*self.places.T[::-1], self.numbers)).argsort()

    def _target_rows(self, weights: Tensor | None) -> tuple[Tensor, float]:
        """Return rows whose variances sum to the criterion, and what the modes leave out of it.

        It is the mean over a field, or the functional that weights (M,) on its points are.
        """
        number, emulator, bases = self._target_number, self._emulator, self._emulator.bases
        one, is_input = self._fields[number], number < len(emulator.inputs)
        assert bases is not None
        x, r = one.domain.points(), bases.input_factor.shape[1]
        at, left = emulator.locations(number, x), emulator.remainder_at(number, x)
        seen = (bases.input_basis(at) if is_input else bases.output_basis(at))[1] * one.scale
        rows = pad(seen, [0, len(self._covariance) - r] if is_input else [r, 0])
        left = torch.zeros(len(x), 1, dtype=torch.float64) if left is None else left
        if weights is not None:
            return (weights @ rows)[None], float((weights @ left).square().sum())
        share = one.domain.quadrature() / one.domain.quadrature().sum()
        # The sum of variances needs no more than a root of the weighted modes' products.
        values, vectors = torch.linalg.eigh(rows.T @ (share[:, None] * rows))
        root = values.clamp_min(0).sqrt()[:, None] * vectors.T
        return root, float(share @ left.square().sum(1))

    def value(self) -> float:
        """Return the criterion."""
        variances = spread(self._target, self._covariance[None]).square()
        return float(variances.sum()) + self._remainder

    def reductions(self) -> np.ndarray:
        """Return the expected reduction of the criterion (m,) by each candidate."""
        return (self._through.square().sum(1) / self._variance).numpy()

    def first(self, among: np.ndarray) -> int:
        """Return the first of some candidates, by place: not by the order of all."""
        return int(np.flatnonzero(among)[self._rank[among].argmin()])

    def choose(self, number: int) -> None:
        """Take a candidate's reading as known."""
        seen, total = self._learn(self._rows[number], float(self._noise[number]))
        with_candidates = self._rows @ seen
        self._through -= with_candidates[:, None] * (self._target @ seen / total)
        self._variance -= with_candidates.square() / total

    def _learn(self, row: Tensor, noise: float) -> tuple[Tensor, float]:
        """Take a reading as known; return its covariances (k,) and its variance before."""
        seen = self._covariance @ row
        total = float(row @ seen) + noise
        self._covariance -= torch.outer(seen, seen / total)
        return seen, total

    def site(self, distance: object, cost: object, budget: object) -> Site:
        """Return which candidates may be taken; parameters are those of `Emulator.place`."""
        costs = _of_each(self._emulator, self._groups, 1.0 if cost is None else cost, "cost", None)
        least = float(real_numbers(distance, "distance"))
        limit = np.inf if budget is None else float(real_numbers(budget, "budget"))
        each = torch.cat(costs).numpy()
        if not (np.isfinite(each).all() and (each > 0).all() and least >= 0 and limit > 0):
            raise ObservationError(
                "cost must be finite and positive, distance not negative, budget positive; found "
                f"least cost {each.min():g}, distance {least:g}, budget {limit:g}"
            )
        periods = periods_of(
            [self._fields[number] for number, _ in self._groups], self.places.shape[1]
        )
        return Site(self.places, each, limit, least, periods)

    def placement(self, n: int, site: Site) -> Placement:
        """Choose n places, each the one that lowers the criterion most for its cost.

        Fewer are chosen if a site allows no more and says what it may cost.
        """
        size = len(self.places)
        whole = isinstance(n, int | np.integer) and not isinstance(n, bool)
        if not whole or not 1 <= n <= size:
            raise ObservationError(
                f"n must be a whole number from 1 to the number of candidates, {size}; found {n!r}"
            )
        known, chosen, values, reductions = self._known, [], [self.value()], []
        there = known.mask[0] if known.weights is None else known.weights[0] != 0
        given = known.locations[0][there].numpy()
        for _ in range(int(n)):
            free, reduction = site.free(chosen, given), self.reductions()
            if not free.any():
                break
            gain = reduction / site.cost
            best = self.first(free & (gain >= (1 - SAME_REDUCTION) * gain[free].max()))
            self.choose(best)
            chosen.append(best)
            values.append(self.value())
            reductions.append(reduction)
        site.require(len(chosen), int(n))
        number = known.field[0].view(-1, *[1] * (there.ndim - 1)).expand(there.shape)
        return Placement(
            places=self.places[chosen],
            fields=self._names(self.numbers[chosen]),
            chosen=np.array(chosen),
            before=np.array(values[:-1]),
            after=np.array(values[1:]),
            reduction=np.array(reductions),
            candidates=self.places,
            candidate_fields=self._names(self.numbers),
            target=self._fields[self._target_number].name,
            given=given,
            given_fields=self._names(number[there].numpy()),
            cost=site.cost[chosen],
            read={one.name: one for one in self._fields},
        )

    def _names(self, numbers: np.ndarray) -> list[str]:
        return [self._fields[k].name for k in numbers]


def _rows(emulator: Emulator, sets: Sensors) -> tuple[Tensor, Tensor]:
    """Return rows (m, k) of one set's sensors on ``(a, c)``, and the variance (m,) of their noise.

    Sensors of inputs come first; units are the operator's.
    """
    operator, bases = emulator.operator, emulator.bases
    assert bases is not None  # as in every operator with a law of both sides
    sets = sets.alone(0)
    seen, read = encode(emulator, sets), encode(emulator, sets, outputs=True)
    a, c = bases.at_sensors(seen)[0][0], bases.output_at(read)[1][0]
    rounding = SINGLE_PRECISION * float(bases.output_scale) / len(bases.output_mean) ** 0.5
    left, own = (bases.input_remainder, rounding_noise(bases)), emulator.default_noise(0)
    of_inputs = sensor_noise(seen.noise(own), *left, norm=seen.norm(2))[0]
    of_outputs = sensor_noise(read.noise(), operator.output_error(), rounding, norm=read.norm(1))[0]
    rows = torch.cat([pad(a, [0, c.shape[1]]), pad(c, [a.shape[1], 0])])
    return rows, torch.cat([of_inputs, of_outputs]).square()


def _joint_covariance(emulator: Emulator, sets: Sensors, valued: bool) -> tuple[Tensor, Sensors]:
    """Return the covariance (k, k) of ``(a, c)``, and the sensors that it does not know of."""
    if not valued and not emulator.operator.closed:
        raise ObservationError(
            "given: places without values are enough only for a linear branch and the gaussian "
            "law; this model's answer depends on what the sensors read: give (locations, values)"
        )
    joint = joint_law(emulator, replace(sets, mask=sets.mask & valued))
    if joint.input is None:
        raise ObservationError(
            f"{emulator.method} has no law of its input, so it places no sensors"
        )
    (_, of_a), (_, of_c) = (side.law.moments() for side in (joint.input, joint.output))
    cross = joint.output.law.cross(joint.input.law)
    whole = torch.cat([torch.cat([of_a[0], cross], 1), torch.cat([cross.T, of_c[0]], 1)])
    return whole, replace(sets, mask=sets.mask & (not valued))


def _known(emulator: Emulator, given: object) -> tuple[Sensors, bool]:
    """Return the sensors that are there already, and whether their values are known."""
    fields, numbers = emulator.named_fields, unnamed(emulator)
    named: dict[Any, Any] = dict(given) if isinstance(given, Mapping) else {None: given}
    alone = [isinstance(one, tuple) and len(one) == 1 for one in named.values()]
    if not any(alone):
        sets = read_sensors(fields, given, unnamed=numbers)
        check(emulator, sets, stacklevel=5)
        if not sets.single:
            raise ObservationError(f"given must be one set of sensors, found {len(sets)}")
        return sets, True
    if not all(alone):
        raise ObservationError("given: values for the sensors of all fields or of none")
    groups = _points(emulator, {k: one[0] for k, one in named.items()}, "given")
    ones = {fields[k].name: (x, torch.ones(len(x))) for k, x in groups}
    return read_sensors(fields, named=ones), False


Groups = list[tuple[int, Tensor]]  # numbers of fields of sensors, and points (m, d) there


def _candidates(emulator: Emulator, candidates: object, name: str | None) -> Groups:
    """Return candidates by field; by default the points of those that the model is for."""
    fields = emulator.named_fields
    if isinstance(candidates, Mapping) and not hasattr(candidates, "to_dataframe"):
        if name is not None:
            raise ObservationError("candidates by field name have a field: leave out field")
        named = dict(candidates)
    elif candidates is not None:
        named = {name: candidates}
    else:
        numbers = unnamed(emulator) if name is None else [field_number(fields, name)]
        named = {fields[k].name: fields[k].domain.points() for k in numbers}
    return _points(emulator, named, "candidates")


def _points(emulator: Emulator, named: Mapping[Any, object], what: str) -> Groups:
    """Return points by field, checked; without a name they are of the only one that it may be."""
    fields, groups = emulator.named_fields, []
    for name, points in named.items():
        if name is None:
            number = the_one(fields, unnamed(emulator), f"{what}: ")
        else:
            number = field_number(fields, name, f"{what}: field")
        one, label = fields[number], f"{what} of {fields[number].name}"
        x = points_of(one, points, label, f"{label}:")
        groups.append((number, x))
    if not groups:
        raise ObservationError(f"{what}: no field is named")
    return groups


def _wanted(emulator: Emulator, target: object) -> tuple[int, Tensor | None]:
    """Return the target's field, and the weights (M,) on its points if it is a functional."""
    fields = emulator.named_fields
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
    rows, size = real_numbers(weights, "target"), fields[number].domain.size
    if rows.shape != (size,) or not bool(rows.isfinite().all()) or not bool(rows.any()):
        raise ObservationError(
            f"target: weights on the {size} points of {fields[number].name}, finite and not all "
            f"zero, expected; found shape {tuple(rows.shape)}"
        )
    return number, rows


def _of_each(
    emulator: Emulator, groups: Groups, values: object, what: str,
    default: Callable[[int], float] | None,
) -> list[Tensor]:  # fmt: skip
    """Return a number for each candidate of each group, stated for all, by field or one by one."""
    fields = emulator.named_fields
    stated = dict(values) if isinstance(values, Mapping) else None
    for name in stated or ():
        field_number(fields, name, f"{what}: field")
    numbers = []
    for number, x in groups:
        value = values if stated is None else stated.get(fields[number].name)
        if value is None:
            value = 1.0 if default is None else default(number)
        one = real_numbers(value, what)
        if one.ndim and (one.shape != (len(x),) or (len(groups) > 1 and stated is None)):
            raise ObservationError(
                f"{what} must be a number, or one for each of the {len(x)} candidates of "
                f"{fields[number].name}; found shape {tuple(one.shape)}"
            )
        numbers.append(one.expand(len(x)))
    return numbers

"""Checks of sensors: what cannot be used is refused, and what is unusual gives a warning."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from uqsonet.emulator.encode import encode
from uqsonet.emulator.field_law import IMPROBABLE, SETS
from uqsonet.errors import ObservationError, ObservationWarning
from uqsonet.fields.cloud import PointCloud
from uqsonet.fields.field import Field
from uqsonet.fields.numbers import is_frame, real_numbers
from uqsonet.laws.base import InputLaw, NormalLaw
from uqsonet.sensors.sensors import Sensors, require_readable, require_readings

Emulator = Any  # `uqsonet.emulator.emulator.Emulator`, whose methods call this file

MAX_SENSORS = 20_000  # sensors in one set: memory grows with its square
MAX_ENTRIES = 1 << 24  # covariances between sensors that are tested at a time
FAR_SPACINGS = 3.0  # distance to the nearest point beyond which a warning is given, in typical ones
SAME_VALUE = 1e-6  # exact sensors at one place may differ by this fraction of their values


def check(operator: Emulator, sets: Sensors, stacklevel: int, gaussian: bool = True) -> None:
    """Refuse sensors that no law can be conditioned on, and warn of unusual ones.

    That values are improbable is said only where their noise is `gaussian`.

    It raises `ObservationError` if sensors cannot be used; the message names the sensor or field.
    """
    require_usable(operator, sets)
    improbable = _law_doubts(operator, sets) if gaussian else []
    doubts = _range_doubts(operator, sets) + _noise_doubts(operator, sets)
    for text in (*doubts, *improbable):
        warnings.warn(text, ObservationWarning, stacklevel=stacklevel + 1)


def require_usable(operator: Emulator, sets: Sensors) -> None:
    """Refuse sensors that no law can be conditioned on."""
    used = sets.mask
    if used.shape[1] > MAX_SENSORS:
        raise ObservationError(f"a set has {used.shape[1]} sensors, at most {MAX_SENSORS}")
    if sets.weights is not None:
        require_readable(operator.inputs, operator.outputs, operator.operator, sets)
    for number, one in enumerate(operator.named_fields):
        here = used & (sets.field == number)
        require_readings(sets, one, here, f"sensor values of {one.name}")
        name = "sensor" if number < len(operator.inputs) == 1 else f"sensor of {one.name}"
        level = sets.noise_std.nan_to_num(nan=operator.default_noise(number))
        exact = here & sets.at_points & (level == 0)
        for row in range(len(sets)):
            x = sets.locations[row][..., : one.domain.dim]
            one.domain.require_inside(x[here[row]], name)
            x = x if sets.weights is None else x[:, 0]
            _require_consistent(x, sets.values[row], exact[row].nonzero()[:, 0], one)


def _require_consistent(x: Tensor, values: Tensor, exact: Tensor, one: Field) -> None:
    """Refuse sensors without noise, of these numbers, at one of places (m, d) that disagree."""
    if len(exact) < 2:
        return
    _, group = x[exact].unique(dim=0, return_inverse=True)
    for g in (group.bincount() > 1).nonzero()[:, 0].tolist():
        same = exact[group == g]
        read = values[same]
        if float(read.max() - read.min()) > SAME_VALUE * float(read.abs().max()):
            first, second = same[:2].tolist()
            raise ObservationError(
                f"sensors {first} and {second} of {one.name} stand at the same place "
                f"{x[first].tolist()} and read {read[0]:g} and {read[1]:g}: give noise_std, or "
                "leave one out"
            )


def _range_doubts(operator: Emulator, sets: Sensors) -> list[str]:
    """Return in words which values and places are unlike those of training."""
    doubts = []
    for number, one in enumerate(operator.named_fields):
        here = sets.mask & (sets.field == number)
        # Less far beyond an end of the range where many values of training stand.
        hard = math.isfinite(one.transform.lower), math.isfinite(one.transform.upper)
        below, above = ((0.01 if end else 0.1) * (one.highest - one.lowest) for end in hard)
        values = sets.values
        out = (values < one.lowest - below) | (values > one.highest + above)
        out = out & here & sets.at_points
        if bool(out.any()):
            row, k = out.nonzero()[0].tolist()
            more = f" (and {int(out.sum()) - 1} more)" if int(out.sum()) > 1 else ""
            doubts.append(
                f"sensor {k} of {one.name} reads {float(values[row, k]):g}{more}, outside the "
                f"range that training saw, {one.lowest:g} to {one.highest:g}"
            )
        if isinstance(one.domain, PointCloud) and bool(here.any()):
            x = sets.locations[here][..., : one.domain.dim].reshape(-1, one.domain.dim)
            nearest = one.domain.distances(x)
            typical = one.domain.typical_distance()
            if float(nearest.max()) > FAR_SPACINGS * typical:
                doubts.append(
                    f"a sensor of {one.name} at {x[int(nearest.argmax())].tolist()} is "
                    f"{float(nearest.max()) / typical:.3g} times as far from the nearest point "
                    "that training saw as these are apart"
                )
    return doubts


def drowned(fields: Sequence[Field], levels: Mapping[str, float]) -> list[str]:
    """Return in words of which fields the noise exceeds what their runs differ by."""
    return [
        f"noise_std of {one.name} is {levels[one.name]:g}"
        f"{f' {one.units}' if one.units and one.transform.linear else ''}, more than its runs "
        f"differ by (std {one.scale:.3g}): such sensors tell next to nothing. Is it in other units?"
        for one in fields
        if levels.get(one.name, 0.0) > one.scale
    ]


def _noise_doubts(operator: Emulator, sets: Sensors) -> list[str]:
    """Return in words which fields have sensors whose noise exceeds the field's std."""
    found = {}
    for number, one in enumerate(operator.named_fields if operator.encoded else []):
        levels = sets.noise_std.nan_to_num(nan=operator.default_noise(number))
        here = levels[sets.mask & sets.at_points & (sets.field == number)]
        if here.numel():
            found[one.name] = float(here.min())
    return drowned(operator.named_fields, found)


def _law_doubts(operator: Emulator, sets: Sensors) -> list[str]:
    """Return a doubt if sensors of inputs do not fit the law of the input."""
    if operator.reads_outputs(sets):
        used = sets.mask & (sets.field < len(operator.inputs))
        sets = replace(sets, mask=used, field=sets.field * used).each(lambda t: t[:, used.any(0)])
    p = _tails(operator, sets)
    if p is None:
        return []
    row = int(p.argmin())
    if float(p[row]) > IMPROBABLE / len(p) or not bool(sets.mask[row].any()):
        return []
    law: InputLaw = operator.operator.law or NormalLaw()
    text = (
        f"the sensors{sets.named(row)} are improbable under the model's law of the input "
        f"({law.name!r}): values as far from it have probability {float(p[row]):.1g}"
    )
    if operator.calibration:
        from uqsonet.emulator.calibration import observed

        asked = [(one.emulator or operator, one) for one in operator.calibration]
        tails = [_tails(model, observed(model, one, sets[row : row + 1])) for model, one in asked]
        among = torch.cat([one for one in tails if one is not None])
        if bool((among <= p[row]).any()):
            return []  # a law that is not quite right has such sensors among its own runs
        text += f"; none of {len(among)} calibration runs is as far"
    return [text + ". The band may be wrong here"]


def _tails(operator: Emulator, sets: Sensors) -> Tensor | None:
    """Return the probability (B,) of values as far from a law as these; None if it has none."""
    bases, law = operator.bases, operator.operator.law or NormalLaw()
    if bases is None or not sets.values.shape[1]:
        return None
    step = max(1, min(SETS, MAX_ENTRIES // sets.values.shape[1] ** 2))
    parts = (sets[first : first + step] for first in range(0, len(sets), step))
    default = operator.default_noise(0)
    encoded = (encode(operator, part) for part in parts)
    tails = [law.tail(bases, replace(one, noise_std=one.noise(default))) for one in encoded]
    return None if any(tail is None for tail in tails) else torch.cat(tails)


def points_of(field: Field, points: Any, what: str, each: str) -> Tensor:
    """Return points (M, d) of a field that a caller stated as an array or a table, checked.

    Messages name them `what`, and a single one `each`.

    It raises `ObservationError` if they cannot be used.
    """
    domain = field.domain
    if is_frame(points):
        from uqsonet.sensors.tables import columns_of, points_of_table

        points = points_of_table(columns_of(points, [field])[0], what, field)
    x = real_numbers(points, what)
    x = x[:, None] if x.ndim == 1 and domain.dim == 1 else x
    if x.ndim != 2 or x.shape[1] != domain.dim:
        raise ObservationError(f"{what} must have shape (M, {domain.dim}), found {tuple(x.shape)}")
    if not bool(x.isfinite().all()):
        raise ObservationError(f"{what} must be finite (found NaN or inf)")
    x = field.wrapped(x)
    domain.require_inside(x, each)
    return x

"""From sensors as users state them to what an operator answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from uqsonet.fields.field import part_locations
from uqsonet.gauss.posterior import Joint
from uqsonet.operator.base import Conditioned
from uqsonet.sensors.sensors import Sensors

Emulator = Any  # `uqsonet.emulator.emulator.Emulator`, whose methods call this file


def joint_law(emulator: Emulator, sets: Sensors, likelihood: Any = None) -> Joint:
    """Return the law of both sides given sensors of either.

    The likelihood is as `likelihoods_of` returns it. It raises `ObservationError` if the operator
    takes no sensors of its output, or no likelihood.
    """
    seen = encode(emulator, sets)
    read = encode(emulator, sets, outputs=True) if emulator.reads_outputs(sets) else None
    if likelihood is None:
        by_set = answering(emulator, sets)
        if len(set(map(id, by_set))) == 1:
            return by_set[0].condition_on(seen, read)
        ones = ((seen.alone(b), read and read.alone(b)) for b in range(len(sets)))
        pairs = zip(by_set, ones, strict=True)
        return Joint.together([one.condition_on(*both) for one, both in pairs])
    from uqsonet.emulator.likelihood import NamedNoise

    noise = [NamedNoise.of(emulator, sets.alone(row), likelihood) for row in range(len(sets))]
    return emulator.operator.condition_on(seen, read, noise)


def answering(emulator: Emulator, sets: Sensors) -> list[Conditioned]:
    """Return what answers each set; without sensors it is the operator."""
    given = emulator.given_inputs or emulator.operator, emulator.given_outputs or emulator.operator
    read = (sets.mask & (sets.field >= len(emulator.inputs))).any(1).tolist()
    some = sets.mask.any(1).tolist()
    return [given[k] if any else emulator.operator for k, any in zip(read, some, strict=True)]


def encode(emulator: Emulator, sets: Sensors, outputs: bool = False) -> Sensors:
    """Return the sensors of one side as the operator takes them."""
    fields, first = (emulator.outputs, len(emulator.inputs)) if outputs else (emulator.inputs, 0)
    number = sets.field - first
    used = sets.mask & (number >= 0) & (number < len(fields))
    if outputs or emulator.reads_outputs(sets):
        keep = used.any(0)  # the rest are sensors of the other side in every set
        sets, number, used = sets.each(lambda t: t[:, keep]), number[:, keep], used[:, keep]
    values, noise = torch.ones_like(sets.values), sets.noise_std
    if emulator.encoded:
        scale = torch.tensor([f.scale for f in fields], dtype=torch.float64)
        of, usual = number.clamp(0, len(fields) - 1), range(first, first + len(fields))
        levels = torch.tensor(list(map(emulator.default_noise, usual)), dtype=torch.float64)
        noise = torch.where(noise.isnan(), levels[of], noise) / scale[of]
    for k, one in enumerate(fields):
        here = (number == k) & used
        values[here] = one.encode(sets.values[here]) if emulator.encoded else sets.values[here]
    domain = emulator.fields.output.domain if outputs else emulator.fields.input.domain
    x = part_locations(number, sets.locations, domain)
    x = x * used.view(*used.shape, *[1] * (x.ndim - 2))
    return replace(sets, locations=x, values=values, mask=used, noise_std=noise, field=number)


def sensors_of_fit(emulator: Emulator) -> Any:
    """Return the sensors that `fit` was told to expect; None of a model that it did not make."""
    recipe = emulator.card.get("recipe")  # of operators of the paper a word
    return recipe.get("sensors") if isinstance(recipe, Mapping) else None


def unnamed(emulator: Emulator) -> list[int]:
    """Return numbers of the fields that sensors without a name may read: `fit` was told, or inputs.

    Fields are numbered inputs first.
    """
    stated = sensors_of_fit(emulator)
    named = stated if isinstance(stated, Mapping) else ()
    found = [k for k, one in enumerate(emulator.named_fields) if one.name in named]
    return found or list(range(len(emulator.inputs)))

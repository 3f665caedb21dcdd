"""Hundreds of readings of the output: the law of both fields, linearised at the likeliest input."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from uqsonet.errors import ObservationError
from uqsonet.laws.base import InputPosterior
from uqsonet.operator.joint import (
    JointPosterior,
    LinearBranch,
    OutputReadings,
    Readings,
    both_sides,
    input_given_all,
    input_posterior,
)
from uqsonet.operator.model import KarhunenLoeveModel

NEWTON_STEPS = 5  # gauss-Newton steps to the likeliest input, at most
TOLERANCE = 0.1
"""Stop when a step is below this fraction of the input's norm: the next is far smaller."""


@torch.no_grad()
def condition_linearised(
    model: KarhunenLoeveModel, inputs: Readings, outputs: Readings
) -> JointPosterior:
    """Return the law of both fields by Gauss-Newton steps to the likeliest input.

    There the branch is linearised and the Gaussian law conditioned (Laplace's approximation, for
    one set). For hundreds of readings of the output, where samples have too little weight to
    correct it; the operator has to be smooth, and its inputs Gaussian.

    Parameters
    ----------
    model : KarhunenLoeveModel
        Its network, if it has one, has a method `slope` from coefficients (r,) to (p, r).
    inputs, outputs : tuple
        As `KarhunenLoeveModel.condition_jointly` takes them, in one set.

    Raises
    ------
    ObservationError
        If sensors cannot be used, or there are several sets.
    """
    seen, read = both_sides(model.fields, inputs, outputs)
    seen, single = replace(seen, noise_std=seen.noise(model.noise_std)), seen.single
    if len(seen) != 1:
        raise ObservationError(f"sensors come in {len(seen)} sets; linearised answers are for one")
    if not read.values.shape[1]:
        return model.condition_both(seen, read)
    given = model.input_law_given(seen)
    root = model.residual_root(given, 1)
    readings = OutputReadings(model, read, root)
    source: InputPosterior = given
    tail, at_sensors = 1.0, model.bases.at_sensors(seen)
    for step in range(NEWTON_STEPS):
        at, rows = source.mean[0].double(), readings.rows[0]
        answer, slope = _slope(model, at)
        offset, weight = rows @ (answer - slope @ at), rows @ slope
        found = LinearBranch(offset[None], weight[None], torch.zeros_like(readings.noise))
        if not step:
            tail = float(readings.tail(*found.moments(given)))
        better = input_given_all(model, seen, at_sensors, readings, found)
        if better is None:
            raise ObservationError("linearised answers need a law of the input in closed form")
        source = better
        if (source.mean[0] - at).norm() <= TOLERANCE * at.norm():
            break
    output = model.output_posterior(source, root, single, readings)
    ones = torch.ones(1, dtype=torch.float64)
    return JointPosterior(
        input_posterior(model, single, source), output, math.inf * ones, tail * ones
    )


def _slope(model: KarhunenLoeveModel, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return the branch's answer (p,) at one input (r,), and its slope (p, r), float64."""
    slope, offset = model.straight()
    found = slope @ a + offset
    if model.network is not None:
        found, slope = found + model.network(a), slope + model.network.slope(a)  # pyright: ignore
    return found, slope

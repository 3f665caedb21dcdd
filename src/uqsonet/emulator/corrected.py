"""An answer corrected by a solver: its operator is fitted again to solves near the answer.

Samples of the answer are solved, and what the solver gives beyond the operator is regressed on the
coefficients of the input (ridge regression, by leave-one-out errors). The sensors are then answered
by the corrected operator, and the next solves are of samples of that: an iterated ensemble smoother
that starts from a learned answer, not from zero. The errors are what the operator leaves over, as
noise: where samples are wide they damp the step. They would be too small if the truth stood outside
the samples, so an answer that still moves far, in units of its std, draws its next samples wider.
Weights of the last samples say how well it fits.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uqsonet.emulator.encode import encode
from uqsonet.emulator.field_law import FieldLaw
from uqsonet.emulator.likelihood import NamedNoise
from uqsonet.errors import ObservationError, ObservationWarning
from uqsonet.gauss.gaussian import sensor_noise
from uqsonet.gauss.given import Given
from uqsonet.operator.closed_form import LEFT_OVER, scaled_root, set_residuals
from uqsonet.operator.config import KEPT
from uqsonet.operator.model import KarhunenLoeveModel

Emulator = Any  # `uqsonet.emulator.emulator.Emulator`, whose methods call this file

SOLVE_ROUNDS = 4  # times that samples are solved

MIN_SOLVES = 40

MOVE_WIDTH = 2.0  # width of the next samples, over how far the answer moved in its own std
MAX_WIDTH = 3.0  # the largest width of samples, in std of the answer

MIN_EFFECTIVE_SHARE = 0.1  # share of the last samples that is effective, else a warning is given
SOLVE_RIDGES = 10.0 ** np.arange(-8, 5)  # tried, in units of the largest squared singular value
Solver = Callable[[Any], Any]  # inputs (S, n_in) at all points, side by side, to outputs


@dataclass(frozen=True)
class Solves:
    """What solves say of an answer.

    Attributes
    ----------
    count : int
    before, after : float
        Effective number of the first and of the last samples under the solver's own likelihood.
    of : int
        Number of samples that these are out of.
    """

    count: int
    before: float
    after: float
    of: int


def corrected(first: FieldLaw, solver: Solver, solves: int, seed: int) -> tuple[FieldLaw, Solves]:
    """Return the answer of an operator that is fitted to solves near it.

    It raises `ObservationError` if there are several sets, too few solves, or the solver's outputs
    do not fit.
    """
    operator, sets = first.emulator, first.sets
    learned = operator.operator
    if not isinstance(learned, KarhunenLoeveModel):
        raise ObservationError(f"{operator.method} cannot be corrected by a solver")
    if not sets.single or solves < MIN_SOLVES:
        raise ObservationError(
            f"a solver corrects one set of sensors, by {MIN_SOLVES} solves or more; found "
            f"{len(sets)} sets, {solves} solves"
        )
    size, generator = solves // SOLVE_ROUNDS, torch.Generator().manual_seed(seed)
    answer, every, sizes, moments = first, [], [], []
    for k in range(SOLVE_ROUNDS):
        with warnings.catch_warnings():  # of answers on the way
            warnings.simplefilter("ignore", ObservationWarning)
            a, c = _samples(answer, size, generator)
            if k:
                moments.append(_both(answer)[0].moments())
        if len(moments) > 1:
            a = a.mean(0) + _width(*moments[-2:]) * (a - a.mean(0))
        found, left = _solved(operator, solver, a)
        sizes.append(_effective(first, a, c, found))
        every.append((a, found))
        fitted = _fitted(operator, every, left)
        answer = FieldLaw(fitted, sets, first.number, first.likelihood)
    if sizes[-1] < MIN_EFFECTIVE_SHARE * size:
        warnings.warn(
            f"of the last {size} samples {sizes[-1]:.1f} are effective under the solver, so the "
            "answer is rough. Use more solves, or readings with more noise",
            ObservationWarning,
            stacklevel=4,
        )
    return answer, Solves(SOLVE_ROUNDS * size, sizes[0], sizes[-1], size)


def _both(answer: FieldLaw) -> tuple[Given, Given]:
    """Return the laws of the coefficients of input and output."""
    joint = answer.joint(slice(0, 1))
    assert joint.input is not None
    return joint.input.law, joint.output.law


def _samples(answer: FieldLaw, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return coefficients of input (n, r) and output (n, p) that belong together."""
    input, output = _both(answer)
    state = generator.get_state()
    a = input.sample(size, generator)[0]
    again = torch.Generator()
    again.set_state(state)
    return a.double(), output.sample(size, again)[0].double()


def _width(before: tuple[Tensor, Tensor], now: tuple[Tensor, Tensor]) -> float:
    """Return the width of the next samples, by moments (1, r) and (1, r, r) of two answers."""
    variance, directions = torch.linalg.eigh(before[1][0].double())
    moved = (now[0] - before[0])[0].double() @ directions / variance.clamp_min(1e-12).sqrt()
    return min(MAX_WIDTH, max(1.0, MOVE_WIDTH * float(moved.square().mean().sqrt())))


def _solved(operator: Emulator, solver: Solver, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return the solver's outputs as coefficients (n, p), and what modes leave out (n, M)."""
    model: Any = operator.operator
    bases = model.bases
    inputs = bases.input_mean + a @ bases.input_factor.double().T
    sizes = [one.domain.size for one in operator.inputs]
    parts = zip(operator.inputs, inputs.split(sizes, 1), strict=True)
    known = torch.cat([one.decode(part) for one, part in parts], 1)
    outputs = torch.as_tensor(np.asarray(solver(known.numpy())), dtype=torch.float64)
    points = [one.domain.size for one in operator.outputs]
    if outputs.shape != (len(a), sum(points)) or not bool(outputs.isfinite().all()):
        raise ObservationError(
            f"the solver must return finite outputs of shape {(len(a), sum(points))}, found "
            f"{tuple(outputs.shape)}"
        )
    parts = zip(operator.outputs, outputs.split(points, 1), strict=True)
    centred = torch.cat([one.encode(part) for one, part in parts], 1) - bases.output_mean
    c = centred @ bases.output_projection().double()
    return c / bases.output_scale.double(), centred - c @ bases.output_modes.double().T


def _effective(answer: FieldLaw, a: Tensor, c: Tensor, found: Tensor) -> float:
    """Return the effective number of samples when the solver's outputs replace the operator's."""
    operator, sets = answer.emulator, answer.sets.alone(0)
    if not operator.reads_outputs(sets):
        return float(len(a))
    model: Any = operator.operator
    seen, read = encode(operator, sets), encode(operator, sets, outputs=True)
    offset, rows = model.bases.output_at(read)
    (at_inputs,), (residual,) = model.bases.at_sensors(seen)
    own = residual - a @ at_inputs.T  # the same for both
    noise = NamedNoise.of(operator, sets, {} if answer.likelihood is None else answer.likelihood)
    levels = noise.levels.clone()
    levels[noise.place >= len(residual)] = sensor_noise(
        read.noise(), model.output_error(), norm=read.norm(1)
    ).clamp_min(1e-12)[0]
    noise = replace(noise, levels=levels)
    off = [torch.cat([own, read.values[0] - offset[0] - x @ rows[0].T], 1) for x in (found, c)]
    weight = noise.log_likelihood(off[0]) - noise.log_likelihood(off[1])
    return 1 / float(torch.softmax(weight, 0).square().sum())


def _fitted(operator: Emulator, every: list[tuple[Tensor, Tensor]], outside: Tensor) -> Emulator:
    """Return the learned operator, corrected by a linear map that solves ask for.

    What modes leave out of the last solves (n, M) is nearly the same in all of them where the
    answer is sharp, so its mean is part of the answer; how far they differ widens the band.
    """
    model: Any = copy.deepcopy(operator.operator)
    a, found = (torch.cat(part) for part in zip(*every, strict=True))
    with torch.no_grad():
        beyond = found - model.branch(a.float()).double()
        weight, offset, left = ridge_fit(a, beyond, len(every[-1][0]))
        model.bases.output_mean += outside.mean(0)
        square, differ = outside.var(0), outside - outside.mean(0)
        remainder = scaled_root(differ[:LEFT_OVER].T, square)
        r, p = model.config.input_modes, model.config.output_modes
        old = model.linear
        model.linear = nn.Linear(r, p)
        model.linear.weight.copy_(weight + (0 if old is None else old.weight))
        model.linear.bias.copy_(offset + (0 if old is None else old.bias))
        model.config = model.config.model_copy(update={"held_out_residuals": True, "nearest": 0})
        model.register_buffer("residual_covariance", torch.zeros(p, p, dtype=torch.float64))
        model.register_buffer("residuals", torch.zeros(KEPT, p))
        model.register_buffer("output_remainder", torch.zeros((), dtype=torch.float64))
        set_residuals(
            model,
            left.float(),
            float(model.bases.input_remainder),
            float(square.mean().sqrt()),
        )
    bases = model.bases
    of_inputs = torch.full((len(bases.input_mean), 1), float(bases.input_remainder))
    of_inputs = operator.remainder[0] if operator.remainder else of_inputs
    return replace(  # what answers in its place and what calibrates is not of this operator
        operator, operator=model.eval(), remainder=(of_inputs, remainder),
        calibration=(), given_inputs=None, given_outputs=None,
    )  # fmt: skip


def ridge_fit(a: Tensor, c: Tensor, last: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return weight (p, r), offset (p,) and leave-one-out residuals (k, p) of ``c = w a + o``.

    The fit to all pairs or to the last ones alone, and the ridge, are those of the least
    leave-one-out errors of the last pairs.
    """
    best, least = None, float("inf")
    for rows in (len(a), last):
        x, y = a[-rows:], c[-rows:]
        at, mean = x.mean(0), y.mean(0)
        u, s, v = torch.linalg.svd(x - at, full_matrices=False)
        for ridge in SOLVE_RIDGES * float(s[0]) ** 2:
            shrunk = s.square() / (s.square() + ridge)
            leverage = (u.square() @ shrunk + 1 / rows).clamp_max(1 - 1e-6)
            left = y - mean - (u * shrunk) @ (u.T @ (y - mean))
            left = left / (1 - leverage)[:, None]
            score = float(left[-last:].square().sum())
            if score < least:
                weight = ((v.T * (s / (s.square() + ridge))) @ (u.T @ (y - mean))).T
                best, least = (weight, mean - weight @ at, left), score
    assert best is not None
    return best

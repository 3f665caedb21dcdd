"""Burgers' equation from a few gauges that are read at all times: space and time together.

The problem of DiffusionPDE (Huang et al., NeurIPS 2024): ``u_t + u u_x = 0.01 u_xx``, periodic on
[0, 1], with u on 128 points at 128 times of [0, 1]; the coefficients of u(x, 0) are normal with
variances ``49^2 ((2 pi k)^2 + 49)^-2.5`` times two. Gauges stand at random points and are read
without noise. Asked for is all of u(x, t).

    python -m benchmarks.burgers --pairs 4000 --cases 30 --out published/benchmark

`ours` is `uqsonet.operator.local_regression` on the runs, `ours, shifted` on the runs and four
copies of each, shifted along the axis, which the equation allows. `ours, with the solver` corrects
the answer of `ours` by solves from other u(x, 0) (`FieldPosterior.corrected`). Its settings were
looked at on runs of seed 2, which no method learns from or is scored on.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
import typer
from torch import Tensor

from uqsonet.emulator.emulator import Emulator
from uqsonet.errors import ObservationWarning
from uqsonet.fields.field import Field
from uqsonet.fields.grid import Grid
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.fitting.candidates import linear_model
from uqsonet.operator.base import Conditioned
from uqsonet.operator.baselines import Cokriging, Floor
from uqsonet.operator.closed_form import fit_bases, sized_bases, targets, widen_band
from uqsonet.operator.local_regression import LocalRegression
from uqsonet.operator.regression import Regression
from uqsonet.runs.functions import Functions
from uqsonet.sensors.sensors import checked_sensors

POINTS = TIMES = 128
VISCOSITY = 0.01
SUBSTEPS = 4
"""Steps of the solver between two times: sixteen change u by less than 1e-7."""

MODES = 256
SHIFTS = 5
MAX_RUNS = 20_000  # maximum number of runs with their copies: 1.3 GB
GAUGES = (1, 2, 3, 5)
SAMPLES = 4
"""Number of posterior samples whose errors are averaged, each alone."""

SOLVED_MODES = 512
"""Modes of u of the operator that solves correct. What they leave out counts as noise of the
readings: on eight runs, five gauges, 384 modes have 1.8 times the error, 256 three times."""

HELD_OUT = 400  # number of the runs whose errors that operator's band has
SOLVES = 600  # number of solves of a case

Answer = tuple[Tensor, Tensor, Tensor]
"""Mean (M,), standard deviation (M,) and samples (S, M) of u at all points and times."""

Method = Callable[[Tensor, Tensor], Answer]
"""Maps numbers (m,) of points and what is read there (m,) to an answer."""


GRID = Grid((0.0, 0.0), (1.0, 1.0), (POINTS, TIMES), periodic=(True, False))
LINE = Grid((0.0,), (1.0,), (POINTS,), periodic=(True,))


def initial(size: int, generator: np.random.Generator) -> Tensor:
    """Draw u(x, 0), shape (size, 128), float64."""
    k = np.arange(1, POINTS // 2)
    scale = 2**0.5 * 49 * ((2 * np.pi * k) ** 2 + 49) ** -1.25
    sines, cosines = generator.standard_normal((2, size, len(k))) * scale
    phase = 2 * np.pi * np.outer(k, np.arange(POINTS) / POINTS)
    return torch.from_numpy(sines @ np.sin(phase) + cosines @ np.cos(phase))


def solve(u0: Tensor, substeps: int = SUBSTEPS) -> Tensor:
    """Return u (B, 128 points, 128 times) by ETDRK4 (Kassam and Trefethen, 2005), dealiased."""
    h = 1 / (TIMES - 1) / substeps
    k = torch.arange(POINTS // 2 + 1, dtype=torch.float64)
    derivative = 2j * np.pi * k
    derivative[-1] = 0
    linear = -VISCOSITY * (2 * np.pi * k) ** 2 * h
    whole, half = linear.exp(), (linear / 2).exp()
    angles = torch.arange(1, 33, dtype=torch.float64) - 0.5
    z = linear[:, None] + torch.exp(
        1j * np.pi * angles / 32
    )  # means over a circle: no cancellation
    middle = h * (((z / 2).exp() - 1) / z).real.mean(1)
    first = h * ((-4 - z + z.exp() * (4 - 3 * z + z**2)) / z**3).real.mean(1)
    between = h * ((2 + z + z.exp() * (z - 2)) / z**3).real.mean(1)
    last = h * ((-4 - 3 * z - z**2 + z.exp() * (4 - z)) / z**3).real.mean(1)

    def advection(v: Tensor) -> Tensor:
        padded = torch.nn.functional.pad(v[:, : POINTS // 2], (0, POINTS // 2 + 1))
        u = 2 * torch.fft.irfft(padded, n=2 * POINTS)
        return -0.25 * derivative * torch.fft.rfft(u * u)[:, : POINTS // 2 + 1]

    v, states = torch.fft.rfft(u0), [u0]
    for _ in range(TIMES - 1):
        for _ in range(substeps):
            n = advection(v)
            a = half * v + middle * n
            n_a = advection(a)
            n_b = advection(half * v + middle * n_a)
            n_c = advection(half * a + middle * (2 * n_b - n))
            v = whole * v + first * n + 2 * between * (n_a + n_b) + last * n_c
        states.append(torch.fft.irfft(v, n=POINTS))
    return torch.stack(states, 2)


def flows(size: int, seed: int) -> Tensor:
    """Return u of random runs, float32, shape (size, 128, 128)."""
    states = initial(size, np.random.default_rng([seed, 2026]))
    return torch.cat([solve(some).float() for some in states.split(200)])


def learned(u: Tensor, shifts: int) -> dict[str, Method]:
    """Return what answers, learned from runs (N, 128, 128) and copies of them."""
    fields = OperatorFields("burgers", Field("u", GRID), Field("u", GRID))
    copies = [torch.roll(u, shift * POINTS // shifts, 1) for shift in range(shifts)]
    rows = torch.cat(copies).flatten(1)
    functions = Functions(fields, "training", rows, rows)
    bases = sized_bases(functions, MODES, MODES)
    fit_bases(bases, functions)
    pairs = targets(bases, functions)
    ours = LocalRegression(bases, pairs["a"], pairs["c"])
    if shifts > 1:
        return {"ours, shifted": method_of(ours)}
    return {
        "ours": method_of(ours),
        "regression": method_of(Regression(functions, 0.0, bases=bases)),
        "cokriging": method_of(Cokriging(functions, 0.0)),
    }


def method_of(operator: Conditioned) -> Method:
    """Return the answers of an operator from u to u."""

    def answer(index: Tensor, values: Tensor) -> Answer:
        points = GRID.points()
        read = checked_sensors(operator.fields.input, points[index], values, None, 0.0)
        law = operator.condition_on(read)
        draws = law.sample(SAMPLES, generator=torch.Generator().manual_seed(0))
        return law.mean(), law.std(), draws

    return answer


def with_solver(u: Tensor) -> Method:
    """Return answers of regression on runs, corrected by solves from other u(x, 0)."""
    fields = OperatorFields("burgers", Field("u0", LINE), Field("u", GRID))
    first, held, every = (
        Functions(fields, "training", some[:, :, 0].contiguous(), some.flatten(1))
        for some in (u[:-HELD_OUT], u[-HELD_OUT:], u)
    )
    model = linear_model(first, POINTS, SOLVED_MODES)
    remainder = widen_band(model, [(held, model)])
    pairs = targets(model.bases, every)
    local = LocalRegression(model.bases, pairs["a"], pairs["c"])
    operators = {"uqsonet": model, local.method: local}
    floor = Floor(operators, {"outputs": {TIMES: local.method}})
    emulator = Emulator(
        model, [fields.input], [fields.output], noise_std=0.0, remainder=remainder, floor=floor
    )

    def solver(u0: np.ndarray) -> np.ndarray:
        return solve(torch.from_numpy(u0), 1).flatten(1).numpy()  # 2e-6 of u off

    def answer(index: Tensor, values: Tensor) -> Answer:
        start = emulator.condition(u=(GRID.points()[index], values, 0.0))
        found = start.corrected(solver, SOLVES)["u"]
        return found.mean(), found.std(), found.sample(SAMPLES)

    return answer


def scores(answer: Answer, truth: Tensor) -> dict[str, float]:
    """Return relative L2 errors of mean and samples in percent, and shares inside the bands."""
    mean, std, draws = answer
    found = {"mean": (mean - truth).norm(), "sample": (draws - truth).norm(dim=1).mean()}
    found = {name: 100 * float(value / truth.norm()) for name, value in found.items()}
    for level, width in ((50, 0.6745), (90, 1.6449)):
        inside = (mean - truth).abs() <= width * std
        found[f"cover_{level}"] = 100 * float(inside.double().mean())
    return found


def rows(named: dict[str, Method], tests: Tensor, pairs: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each case, number of gauges and method."""
    for count in GAUGES:
        for case, u in enumerate(tests.double()):
            gauges = np.random.default_rng([case, count]).permutation(POINTS)[:count]
            index = (torch.from_numpy(gauges)[:, None] * TIMES + torch.arange(TIMES)).flatten()
            for name, method in named.items():
                start = time.process_time()
                one = scores(method(index, u.flatten()[index]), u.flatten())
                one["seconds"] = time.process_time() - start
                yield {"gauges": count, "method": name, "pairs": pairs, "case": case, **one}


def main(
    pairs: Annotated[int, typer.Option(help="Runs to learn from.")] = 4000,
    cases: Annotated[int, typer.Option(help="Runs to score on.")] = 30,
    out: Annotated[Path, typer.Option(help="Folder for burgers.csv.")] = Path("results/benchmark"),
) -> None:
    """Make runs, learn, score, and write medians and means over the cases.

    Copies and solves are left out where the runs with their copies are more than `MAX_RUNS`. Rows
    of other numbers of runs stay in the file.
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ObservationWarning)  # of one gauge
    u, tests = flows(pairs, 0), flows(cases, 1)
    found = list(rows(learned(u, 1), tests, pairs))
    if pairs * SHIFTS <= MAX_RUNS:
        found += rows(learned(u, SHIFTS), tests, pairs)
        found += rows({"ours, with the solver": with_solver(u)}, tests, pairs)
    groups: Any = pd.DataFrame(found).drop(columns="case").groupby(["gauges", "method", "pairs"])
    scored = groups.mean().assign(median=groups["mean"].median(), cases=cases).reset_index()
    path = out / "burgers.csv"
    if path.is_file():
        before: Any = pd.read_csv(path)
        scored = pd.concat([before[before["pairs"] != pairs], scored])
        scored = scored.sort_values(["pairs", "gauges", "method"])
    out.mkdir(parents=True, exist_ok=True)
    scored.to_csv(path, index=False, float_format="%.4g", lineterminator="\n")
    print(scored.to_string(index=False, float_format="%.3g"))


if __name__ == "__main__":
    typer.run(main)

"""Sparse sensors of one field, the whole of the other: scores beside published figures.

The task of DiffusionPDE (Huang et al., NeurIPS 2024), FunDPS (NeurIPS 2025) and DDIS: 500 sensors
without noise at random grid points. Pairs come from the seed tree in blocks and are never written;
a smaller training set is the beginning of a larger one. Every choice is made on pairs that are held
out of them, and test functions are scored once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from uqsonet.errors import DataError
from uqsonet.gauss.metrics import relative_error
from uqsonet.gauss.seeds import numpy_generator, torch_generator
from uqsonet.operator.closed_form import set_residuals, widen_band
from uqsonet.operator.config import KarhunenLoeveNetwork
from uqsonet.operator.file import read_model
from uqsonet.operator.joint import Readings
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.operator.regression import Regression
from uqsonet.runs.functions import Functions
from uqsonet_study.config import BenchmarkConfig
from uqsonet_study.correction import Corrected, fit_correction
from uqsonet_study.kernel_branch import KernelBranch, fit_kernel_branch
from uqsonet_study.linearised import condition_linearised
from uqsonet_study.priors.gaussian_process import GaussianField
from uqsonet_study.problems import Problem, get_problem
from uqsonet_study.reference.linear import GridSensors, linear_posterior
from uqsonet_study.reference.sampling import plain_draws, posterior
from uqsonet_study.shift_kernel import ShiftKernel

LOG = logging.getLogger("uqsonet")

BLOCK = 500  # pairs that share a stream of the seed tree
TRIED = 10  # held-out functions that methods are compared on
MOMENTS = 256  # even draws behind a mean that has no closed form
OPERATED = 64
"""Draws behind the mean of an operator that reads whole fields: a hundredth of a second each."""

SOLVED = 64  # solves behind an exact mean, where the operator is not linear
LEFT_OVER = 4000  # pairs that show what a kernel's correction leaves over, at most
BASED_ON = 30_000  # pairs and images of pairs that modes are fitted to, where images are known
IMAGES = 4  # of a pair that a kernel with symmetries is fitted to, besides their shifts
TARGETS = {"forward": ("output",), "inverse": ("input",), "both": ("input", "output")}
"""Direction -> sides whose errors are stated."""

ALONE = {"operator": "forward", "correction": "inverse"}
"""The one direction that a method answers, if it is one."""

COLUMNS = "problem direction target method pairs err_sample err_mean seconds seconds_samples"
COLUMNS += " functions"


@dataclass(frozen=True)
class Answer:
    """The law of both fields on the grid."""

    mean: Callable[[Any], Tensor]  # maps a side to its mean (n,)
    # maps a side, a number and a seed to samples (size, n)
    sample: Callable[[str, int, int], Tensor]


Places = Mapping[str, Tensor]  # side -> flat indices of its sensors

Answers = Callable[[Places, Mapping[str, Tensor]], Answer | Corrected]
"""Maps places and values of each side to an answer."""


def drawn(problem: Problem, seed: int, split: str, size: int) -> Functions:
    """Return `size` pairs of the seed tree, float32; a larger set begins with a smaller one."""
    kappa, u = (torch.empty(size, problem.grid.size) for _ in range(2))
    for first in range(0, size, BLOCK):
        path = (problem.name, "benchmark", split, first // BLOCK)
        rows = slice(first, min(first + BLOCK, size))
        # Whole blocks: what a pair is does not depend on how many are drawn.
        found = problem.sample(numpy_generator(seed, *path), BLOCK)
        for to, values in zip((kappa, u), found, strict=True):
            to[rows] = values[: rows.stop - rows.start]
    return Functions(problem.fields, split, kappa, u)


def places(problem: Problem, seed: int, split: str, index: int, sensors: int) -> Tensor:
    """Return the sensors of one function: flat indices, all different."""
    generator = torch_generator(seed, problem.name, "benchmark", "sensors", split, index)
    return torch.randperm(problem.grid.size, generator=generator)[:sensors]


def chosen(direction: str, index: Tensor) -> Places:
    """Return which sensors read which side; in `both` the first half reads the input."""
    none, half = index[:0], len(index) // 2
    if direction == "both":
        return {"input": index[:half], "output": index[half:]}
    read = "input" if direction == "forward" else "output"
    return {side: index if side == read else none for side in ("input", "output")}


def conditioned(problem: Problem, model: KarhunenLoeveModel | Regression) -> Answers:
    """Return the answers, to sensors without noise, of what conditions jointly."""
    points, bases = problem.grid.points(), model.bases
    linearised = isinstance(model, KarhunenLoeveModel) and model.network is not None
    on_grid = {"input": bases.input_basis(points), "output": bases.output_basis(points)}

    def answer(where: Places, values: Mapping[str, Tensor]) -> Answer:
        readings: dict[str, Readings] = {
            side: (points[where[side]][None], values[side][None], None, 0.0) for side in where
        }
        both = readings["input"], readings["output"]
        if linearised:
            assert isinstance(model, KarhunenLoeveModel)
            found = condition_linearised(model, *both)
        else:
            found = model.condition_jointly(*both)
        sides = {"input": found.input, "output": found.output}

        def mean(side: str) -> Tensor:
            offset, basis = on_grid[side]
            return offset + basis @ sides[side].even_moments(MOMENTS)[0][0]

        def sample(side: str, size: int, seed: int) -> Tensor:
            offset, basis = on_grid[side]
            generator = torch.Generator().manual_seed(seed)
            return offset + sides[side].coefficient_samples(size, generator)[0] @ basis.T

        return Answer(mean, sample)

    return answer


def learned(problem: Problem, weights: Path) -> Answers:
    """Return the answers of a trained operator with a law of its input to sensors of the input."""
    points, model = problem.grid.points(), read_model(weights)[0]
    if model.fields != problem.fields:
        raise DataError(f"{weights}: not an operator of {problem.name}")

    def answer(where: Places, values: Mapping[str, Tensor]) -> Answer:
        found = model.condition(points[where["input"]], values["input"], noise_std=0.0)

        def sample(side: str, size: int, seed: int) -> Tensor:
            return found.sample(size, generator=torch.Generator().manual_seed(seed))

        return Answer(lambda side: sample(side, OPERATED, 0).mean(0), sample)

    return answer


def exact(problem: Problem) -> Answers:
    """Return the posterior in closed form; the only noise is single precision's rounding.

    Where the operator is not linear, the output is solved from exact samples of the input.
    """
    if not isinstance(problem.prior, GaussianField):
        return _solved(problem)

    def answer(where: Places, values: Mapping[str, Tensor]) -> Answer:
        sensors = {
            side: GridSensors(where[side], values[side]) if len(where[side]) else None
            for side in where
        }
        found = linear_posterior(problem, sensors["input"], sensors["output"])

        def sample(side: str, size: int, seed: int) -> Tensor:
            return found.sample(size, np.random.default_rng(seed))[0 if side == "input" else 1]

        def mean(side: Any) -> Tensor:
            if side == "output" and problem.affine != "kappa":
                return sample(side, SOLVED, 0).mean(0)
            return found.mean(side)

        return Answer(mean, sample)

    return answer


def _solved(problem: Problem) -> Answers:
    """Return the law of the output given sensors of an input that no Gaussian field is."""

    def answer(where: Places, values: Mapping[str, Tensor]) -> Answer:
        points = problem.grid.points()[where["input"]]
        law = posterior(problem, points, values["input"], 0.0)

        def sample(side: str, size: int, seed: int) -> Tensor:
            return torch.cat([*plain_draws(problem, law, np.random.default_rng(seed), size)])

        return Answer(lambda side: sample(side, SOLVED, 0).mean(0), sample)

    return answer


def score(
    answers: Answers,
    problem: Problem,
    functions: Functions,
    direction: str,
    config: BenchmarkConfig,
    seed: int,
) -> pd.DataFrame:
    """Return relative L2 errors of one sample and of the mean, and seconds of one core.

    Parameters
    ----------
    answers : callable
    functions : Functions
        Truths.
    config : BenchmarkConfig
        Sensors and samples.

    Returns
    -------
    DataFrame
        A row for each function and target. `err_sample` is the error of one sample, averaged over
        all samples that are drawn of the posterior; `seconds` go to a mean, `seconds_samples` to
        all samples as well. An input of two values has the share of wrong points for an error.
    """
    rows = []
    for i, pair in enumerate(zip(functions.kappa, functions.u, strict=True)):
        index = places(problem, seed, functions.split, i, config.sensors)
        where = chosen(direction, index)
        truth: dict[str, Tensor] = dict(zip(("input", "output"), pair, strict=True))
        values = {side: truth[side][where[side]].double() for side in where}
        start = time.process_time()
        answer = answers(where, values)
        means = {side: answer.mean(side) for side in TARGETS[direction]}
        seconds = time.process_time() - start
        samples = {side: answer.sample(side, config.samples, i) for side in means}
        whole = time.process_time() - start
        for side, mean in means.items():
            true = truth[side].double()
            error = wrong_share if len(true.unique()) == 2 else relative_error
            rows.append(
                {
                    "direction": direction,
                    "target": side,
                    "err_sample": 100 * float(error(samples[side], true).mean()),
                    "err_mean": 100 * float(error(mean, true)),
                    "seconds": seconds,
                    "seconds_samples": whole,
                }
            )
    return pd.DataFrame(rows)


def wrong_share(found: Tensor, true: Tensor) -> Tensor:
    """Return the share of points (..., n) that are nearer to the other value of a truth of two."""
    middle = (true.amin() + true.amax()) / 2
    return ((found > middle) != (true > middle)).double().mean(-1)


def fitted(
    functions: Functions, modes: int, held: Functions, kernel: int = 0
) -> KarhunenLoeveModel:
    """Return the joint law of both fields in coefficients, in closed form.

    Parameters
    ----------
    functions : Functions
        Training pairs.
    modes : int
        Of either field, at most; half of the pairs at most, too.
    held : Functions
        What the operator and the modes leave over is that of these pairs.
    kernel : int
        Training pairs that a correction of the linear operator is fitted to, at most; three
        quarters at most, too. Others show what it leaves over.
    """
    few = min(modes, functions.size // 2)
    network = KarhunenLoeveNetwork(
        input_modes=few, output_modes=few, branch=[], held_out_residuals=True
    )
    model = KarhunenLoeveModel(functions.fields, network, 0.0)
    bases = model.bases
    with torch.no_grad():
        model.fit_constants(functions)
        widen_band(model, [(held, model)])
        if not kernel:
            return model
        first = min(kernel, 3 * functions.size // 4)
        pairs = [model.targets(functions), model.targets(held)]
        pairs = [(of["a"], of["c"] - of["a"] @ bases.linear_weight.T) for of in pairs]
        (a, left), check = pairs
        sizes = (bases.input_factor.norm(dim=0) * bases.linear_weight.norm(dim=0)).sqrt()
        branch = fit_kernel_branch(a[:first], left[:first], check, sizes)
        others = slice(first, first + LEFT_OVER)
        after = [left[others] - branch(a[others]), check[1] - branch(check[0])]
        _use_branch(model, branch, torch.cat(after))
    return model


def _use_branch(model: KarhunenLoeveModel, branch: KernelBranch, left: Tensor) -> None:
    """Give a model a branch, and the law of what it leaves over (N, p) of other pairs."""
    set_residuals(model, left, float(model.bases.input_remainder), float(model.output_remainder))
    model.network = branch  # pyright: ignore[reportAttributeAccessIssue]


@torch.no_grad()
def fitted_with_symmetries(
    problem: Problem, functions: Functions, modes: int, held: Functions, kernel: int
) -> KarhunenLoeveModel:
    """Return the joint law, with an operator that commutes with the equation's symmetries.

    Parameters
    ----------
    problem : Problem
        With images of its pairs.
    functions, modes, held
        As in `fitted`.
    kernel : int
        Training pairs whose images the operator is fitted to, at most; three quarters at most, too.
        Others show what it leaves over.
    """

    def images(pairs: slice, number: int) -> Functions:
        sides = functions.kappa[pairs], functions.u[pairs]
        return Functions(problem.fields, "training", *(problem.images(s, number) for s in sides))

    number = BASED_ON // functions.size
    model = fitted(images(slice(None), number) if number > 1 else functions, modes, held)
    first = min(kernel, 3 * functions.size // 4)
    centres, check = images(slice(first), IMAGES), model.targets(held)
    shifts = ShiftKernel.of(model.bases, problem.grid.shape, problem.shifts)
    branch = shifts.fit(centres.kappa, centres.u, (check["a"], check["c"]))
    others = model.targets(images(slice(first, first + LEFT_OVER // IMAGES), IMAGES))
    left = torch.cat([of["c"] - branch(of["a"]) for of in (others, check)])
    _use_branch(model, branch, left)
    model.bases.linear_weight.zero_()
    return model


def benchmark(
    name: str, config: BenchmarkConfig, pairs: int, seed: int, weights: Path | None = None
) -> pd.DataFrame:
    """Return scores of a problem for one number of pairs; for none those of the exact answer.

    Parameters
    ----------
    name : str
        Among `config.problems`.
    pairs : int
        All that is seen: training and held-out pairs.
    weights : Path, optional
        A trained operator that may answer sensors of the input. It has seen other pairs of the
        same law, as many.

    Returns
    -------
    DataFrame
        Columns `COLUMNS`, a row for each method, direction and target.
    """
    one = config.problems[name]
    problem = get_problem(one.problem)
    # `ours` is chosen for each direction on the held-out pairs.
    methods: dict[str, dict[str, Answers]]
    if not pairs:
        answered = one.directions if problem.affine == "kappa" else ["forward"]
        methods = {"exact": dict.fromkeys(answered, exact(problem))}
    else:
        methods = _learned(problem, config, name, pairs, seed, weights)
    test = drawn(problem, seed, "test", config.functions)
    parts, known = [], dict[tuple[int, str], pd.DataFrame]()
    for method, of in methods.items():
        for direction, answers in of.items():
            if (id(answers), direction) not in known:
                found = score(answers, problem, test, direction, config, seed)
                found = found.groupby(["direction", "target"], sort=False, as_index=False)
                known[id(answers), direction] = pd.DataFrame(found.mean())
            parts.append(known[id(answers), direction].assign(method=method))
            LOG.info("%s\n%s", method, parts[-1].to_string(index=False))
    rows = pd.concat(parts).assign(problem=name, pairs=pairs or pd.NA, functions=test.size)
    return rows.reindex(columns=COLUMNS.split())


def _learned(
    problem: Problem,
    config: BenchmarkConfig,
    name: str,
    pairs: int,
    seed: int,
    weights: Path | None,
) -> dict[str, dict[str, Answers]]:
    one = config.problems[name]
    everything = drawn(problem, seed, "training", pairs)
    held = min(config.held_out, pairs // 10)
    kappa, u = everything.kappa, everything.u
    train = Functions(problem.fields, "training", kappa[held:], u[held:])
    kept = Functions(problem.fields, "validation", kappa[:held], u[:held])
    law = fitted(train, one.modes, kept, one.kernel)
    # Few pairs have fewer modes in the law than they span.
    bases = law.bases if law.config.input_modes == one.modes else None

    def regression(functions: Functions) -> Answers:
        return conditioned(problem, Regression(functions, 0.0, one.modes, one.modes, bases))

    tried: dict[str, Answers] = {"law": conditioned(problem, law)}
    if pairs <= one.regression:
        tried["regression"] = regression(train)
    if weights is not None:
        tried["operator"] = learned(problem, weights)
    if one.correction is not None:
        layout = partial(places, problem, seed, sensors=config.sensors)
        layouts = partial(layout, "training"), partial(layout, "validation")
        tried["correction"] = fit_correction(law, train, kept, layouts, one.correction, seed)

    some = Functions(problem.fields, "validation", kappa[: min(TRIED, held)], u[: min(TRIED, held)])
    whole = regression(everything) if "regression" in tried else None
    ours: dict[str, Answers] = {}
    for direction in one.directions:
        known = {k: v for k, v in tried.items() if ALONE.get(k, direction) == direction}
        found = {
            what: score(answers, problem, some, direction, config, seed)["err_mean"]
            .to_numpy()
            .mean()
            for what, answers in known.items()
            if len(known) > 1
        }
        LOG.info("%s, held-out errors of the mean: %s", direction, found)
        best = min(found, key=lambda what: found[what], default="law")
        ours[direction] = whole if whole and best == "regression" else tried[best]
    methods = {"ours": ours}
    if one.symmetric:
        law = fitted_with_symmetries(problem, train, one.modes, kept, one.symmetric)
        methods["ours, symmetric"] = dict.fromkeys(one.directions, conditioned(problem, law))
    if whole:
        methods["regression"] = {direction: whole for direction in one.directions}
    return methods

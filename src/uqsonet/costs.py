"""What a run will cost on this machine, measured before it starts.

Each kind of job is timed on a small piece of itself (a shard, a posterior, a few training steps)
and multiplied by what the configuration asks for and the results folder does not yet hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from uqsonet.config import BASELINES, Config, EvaluationConfig
from uqsonet.layouts import uniform_layouts
from uqsonet.nn.base import OperatorModel, build_model
from uqsonet.pipeline import Plan
from uqsonet.posterior import coefficient_moments
from uqsonet.problems import get_problem
from uqsonet.reference.directions import Directions
from uqsonet.reference.sampling import CONTROL_SAMPLES
from uqsonet.seeds import numpy_generator, torch_generator
from uqsonet.simulation import Functions
from uqsonet.training.optimiser import StackedOptimiser
from uqsonet.training.sampler import BatchSampler

CLOSED_FORM_SECONDS = 0.1
"""Exact moments of one set on 101 x 101 points."""

SAMPLE = 1000
"""Functions drawn for a trial measurement."""


@dataclass(frozen=True)
class Cost:
    """Work left in one stage.

    Attributes
    ----------
    stage : str
    jobs : int
        Jobs whose outputs are missing.
    total : int
        All jobs of the stage.
    seconds : float
        CPU seconds that the missing ones will take on one core.
    """

    stage: str
    jobs: int
    total: int
    seconds: float


def _timed(action: Callable[[], object], repeats: int = 3) -> float:
    """Return the shortest of a few timings: the first pays for start-up."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - start)
    return best


@cache
def _some_functions(problem_name: str) -> Functions:
    """Return inputs of the problem with outputs of the right shape: timing needs no solutions."""
    problem = get_problem(problem_name)
    generator = numpy_generator(0, problem_name, "estimate")
    fields = [
        problem.prior.field(problem.normals(generator, min(problem.block, SAMPLE - start))[0])
        for start in range(0, SAMPLE, problem.block)
    ]
    kappa = problem.transform.inverse(torch.cat(fields)).float()
    u = kappa[:, problem.training_grid()[1]].contiguous()
    return Functions(problem, "training", kappa, u)


def _training_step(model: OperatorModel, config: Config, experiment: str, method: str) -> float:
    """Return seconds of one training step of one trial."""
    chosen = config.experiments[experiment]
    settings = config.method_of(experiment, method).training
    settings = settings.model_copy(update={"batch_size": min(settings.batch_size, SAMPLE)})
    if settings.protocol == "fixed_batches":
        settings = settings.model_copy(update={"protocol": "redraw"})
    data = _some_functions(chosen.problem)
    with torch.no_grad():
        model.fit_constants(data)
    layouts = {
        m: torch.from_numpy(
            uniform_layouts(numpy_generator(0, "estimate", m), data.problem.grid.size, m, SAMPLE)
        ).long()
        for m in chosen.sensors.counts
    }
    sampler = BatchSampler(
        data.problem,
        settings,
        data.kappa,
        model.targets(data),
        layouts if model.reads_sensors else None,
        chosen.noise_std,
        model.latent_dim,
        0,
        [torch_generator(0, "estimate")],
    )
    optimiser = StackedOptimiser(model, [dict(model.named_parameters())], settings)
    wanted = config.method_of(experiment, method).training.batch_size
    return _timed(lambda: optimiser.step(0, *sampler.draw()), 8) * wanted / settings.batch_size


def _posterior_sample(model: OperatorModel, experiment: str, config: Config) -> float:
    """Return seconds per sample of a posterior and its moments."""
    if not model.probabilistic:
        return 0.0
    count = config.experiments[experiment].sensors.counts[-1]
    places = model.problem.grid.points()[:count]
    posterior = model.condition(places, torch.ones(count))
    generator = torch_generator(0, "estimate")
    return _timed(lambda: coefficient_moments(posterior.draw(SAMPLE, generator))) / SAMPLE


@cache
def _pair_seconds(problem_name: str) -> float:
    """Return seconds to draw and solve one pair."""
    problem = get_problem(problem_name)
    generator = numpy_generator(0, problem_name, "estimate")
    return _timed(lambda: problem.sample(generator, problem.block)) / problem.block


@cache
def _sources_seconds(problem_name: str) -> float:
    """Return seconds of the response to all leading sources, for one coefficient."""
    directions = Directions(get_problem(problem_name))
    return _timed(lambda: directions.responses(directions.typical))


def _reference_seconds(problem_name: str, evaluation: EvaluationConfig, sets: int) -> float:
    """Return seconds of the reference posteriors of an evaluation, by its estimator."""
    problem, samples = get_problem(problem_name), evaluation.reference_samples
    if evaluation.estimator == "monte_carlo":
        exact = WASSERSTEIN_SECONDS * (min(samples, 1000) / 1000) ** 2
        each = 2 * samples * _pair_seconds(problem_name) + evaluation.wasserstein * exact
        return sets * each
    if problem.affine is None:
        return (sets * samples + CONTROL_SAMPLES) * _pair_seconds(problem_name)
    if problem.intrinsic is None:
        return sets * CLOSED_FORM_SECONDS
    return _sources_seconds(problem_name) * samples * (1 if problem.affine == "kappa" else sets)


SCORE_SECONDS = 0.02
"""CRPS, coverage and Gaussian distance of one set; about the same everywhere."""

WASSERSTEIN_SECONDS = 0.3
"""One exact W2 between 1,000 and 1,000 samples."""


def estimate(config: Config, root: Path) -> list[Cost]:
    """Return the work left, stage by stage.

    Parameters
    ----------
    config : Config
    root : Path
        Folder that `config.results` is relative to.
    """
    plan, results = Plan(config), root / config.results
    rows: dict[str, list[tuple[bool, float]]] = {}

    def add(stage: str, output: str, seconds: float) -> None:
        rows.setdefault(stage, []).append(((results / output).exists(), seconds))

    for name, data in config.problems.items():
        functions = data.training + data.validation + data.test
        add("simulate", f"simulate/{name}.h5", _pair_seconds(name) * functions)
    for name, experiment in config.experiments.items():
        counts = len(experiment.sensors.counts)
        for label in config.evaluations:
            evaluation = config.evaluation_of(name, label)
            sets = evaluation.sets * counts
            spent = _reference_seconds(experiment.problem, evaluation, sets)
            add("reference", f"reference/{name}/{label}.h5", spent)
            distance = WASSERSTEIN_SECONDS if evaluation.wasserstein else 0.0
            if label == "validation":
                continue
            score = SCORE_SECONDS + distance
            for method in BASELINES:
                output = f"evaluate/{name}/{label}/{method}/stack_0.csv"
                add("evaluate", output, sets * (score + evaluation.model_samples * 1e-6))
            for method in experiment.methods:
                network = config.method_of(name, method).network
                model = build_model(method, experiment.problem, network, experiment.noise_std)
                each = score + evaluation.model_samples * _posterior_sample(model, name, config)
                for k, trials in plan.stacks(name).items():
                    output = f"evaluate/{name}/{label}/{method}/stack_{k}.csv"
                    add("evaluate", output, sets * each * len(trials))
        for method in experiment.methods:
            chosen = config.method_of(name, method)
            model = build_model(method, experiment.problem, chosen.network, experiment.noise_std)
            step = _training_step(model, config, name, method)
            for k, trials in plan.stacks(name).items():
                output = f"train/{name}/{method}/stack_{k}.safetensors"
                add("train", output, step * chosen.training.iterations * len(trials))
    return [
        Cost(
            stage, sum(not there for there, _ in jobs), len(jobs), sum(s for t, s in jobs if not t)
        )
        for stage, jobs in rows.items()
    ]

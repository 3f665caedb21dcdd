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

from uqsonet.baselines import build_baseline
from uqsonet.data import Functions
from uqsonet.models.base import OperatorModel, build_model
from uqsonet.posterior import moments_of
from uqsonet.problems import get_problem, problem_names
from uqsonet.reference.directions import Directions
from uqsonet.reference.sampling import control_samples
from uqsonet.seeds import numpy_generator, torch_generator
from uqsonet.training.optimiser import StackedOptimiser
from uqsonet.training.sampler import BatchSampler
from uqsonet_study.config import Config, Evaluation, EvaluationConfig, ProblemConfig
from uqsonet_study.layouts import uniform_layouts
from uqsonet_study.own_data import training_functions
from uqsonet_study.pipeline import UNTRAINED, Plan
from uqsonet_study.training import within_data

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


def _functions_of(config: Config, problem: str) -> Functions:
    """Return training pairs of own data, or what stands for those of another problem."""
    own = config.problems[problem]
    if own.data is None:
        return _some_functions(problem)
    return _some_own_functions(problem, own.model_dump_json(), config.seed)


@cache
def _some_own_functions(problem: str, own: str, seed: int) -> Functions:
    return training_functions(problem, ProblemConfig.model_validate_json(own), seed, SAMPLE)


@cache
def _some_functions(problem_name: str) -> Functions:
    """Return inputs of the problem with outputs of the right shape: timing needs no solutions."""
    problem = get_problem(problem_name)
    generator = numpy_generator(0, problem_name, "estimate")
    fields = [
        problem.prior.draw(generator, min(problem.block, SAMPLE - start))
        for start in range(0, SAMPLE, problem.block)
    ]
    kappa = problem.transform.inverse(torch.cat(fields)).float()
    u = kappa[:, problem.training_grid()[1]].contiguous()
    return Functions(problem.fields, "training", kappa, u)


def _training_step(
    model: OperatorModel, config: Config, case: str, method: str
) -> tuple[float, float]:
    """Return seconds of one training step of one trial, and of fitting constants to one pair."""
    chosen = config.cases[case]
    settings = config.method_of(case, method).training
    data = _functions_of(config, chosen.problem)
    settings = settings.model_copy(update={"batch_size": min(settings.batch_size, data.size)})
    if settings.protocol == "fixed_batches":
        settings = settings.model_copy(update={"protocol": "redraw"})
    with torch.no_grad():
        fitting = _timed(lambda: model.fit_constants(data), 2) / data.size
    layouts = {
        m: torch.from_numpy(
            uniform_layouts(
                numpy_generator(0, "estimate", m), data.fields.input.grid.size, m, SAMPLE
            )
        ).long()
        for m in chosen.sensors.counts
    }
    sampler = BatchSampler(
        data.fields,
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
    wanted = config.method_of(case, method).training.batch_size
    step = _timed(lambda: optimiser.step(0, *sampler.draw()), 8) * wanted / settings.batch_size
    return step, fitting


def _posterior_sample(model: OperatorModel, case: str, config: Config) -> float:
    """Return seconds per sample of a posterior and its moments."""
    if not model.probabilistic:
        return 0.0
    count = config.cases[case].sensors.counts[-1]
    places = model.fields.input.grid.points()[:count]
    posterior = model.condition(places, torch.ones(count))
    generator = torch_generator(0, "estimate")
    return _timed(lambda: moments_of(posterior.coefficient_samples(SAMPLE, generator))) / SAMPLE


@cache
def _pair_seconds(problem_name: str) -> float:
    """Return seconds to draw and solve one pair; none where pairs are a user's own."""
    if problem_name not in problem_names():
        return 0.0
    problem = get_problem(problem_name)
    generator = numpy_generator(0, problem_name, "estimate")
    return _timed(lambda: problem.sample(generator, problem.block)) / problem.block


@cache
def _cokriging_seconds(data: Functions) -> float:
    """Return seconds to fit the linear baseline to one pair."""
    return _timed(lambda: build_baseline("cokriging", data, 0.0), 2) / data.size


@cache
def _sources_seconds(problem_name: str) -> float:
    """Return seconds of the response to all leading sources, for one coefficient."""
    directions = Directions(get_problem(problem_name))
    return _timed(lambda: directions.responses(directions.typical))


def _reference_seconds(problem_name: str, evaluation: EvaluationConfig, sets: int) -> float:
    """Return seconds of the reference posteriors of an evaluation, by its estimator."""
    if evaluation.estimator == "none":
        return 0.0
    problem, samples = get_problem(problem_name), evaluation.reference_samples
    if evaluation.estimator == "monte_carlo":
        exact = WASSERSTEIN_SECONDS * (min(samples, 1000) / 1000) ** 2
        each = 2 * samples * _pair_seconds(problem_name) + evaluation.wasserstein * exact
        return sets * each
    if evaluation.estimator == "chains":
        return sets * samples * CHAIN_SOLVES * _pair_seconds(problem_name)
    if problem.affine is None:
        solved = sets * samples + control_samples(sets * samples)
        return solved * _pair_seconds(problem_name) + sets * CONTROL_SECONDS
    if problem.unobserved is None:
        return sets * CLOSED_FORM_SECONDS
    return _sources_seconds(problem_name) * samples * (1 if problem.affine == "kappa" else sets)


SCORE_SECONDS = 0.02, 4e-5
"""CRPS, coverage and Gaussian distance of one set: for itself, and for each point."""

CHAIN_SOLVES = 150
"""Solves for each effective draw of a chain, a mean over settings of section 4.1."""

CONTROL_SECONDS = 0.03
"""Exact moments of the control for one set, two halves."""

WASSERSTEIN_SECONDS = 0.3
"""One exact W2 between 1,000 and 1,000 samples."""


LAW_SECONDS = {
    "gaussian": 1.0,
    "mixture": 60.0,
    "thresholded": 30.0,
    "bounded": 10.0,
    "analogue": 30.0,
    "auto": 300.0,
}
"""One law of one operator, fitted to 10,000 inputs: roughly, as it is not timed in small."""


class Meter:
    """Times each kind of model once, however many cases it stands in."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._steps: dict[str, tuple[float, float]] = {}
        self._samples: dict[str, float] = {}

    def _key(self, case: str, method: str) -> str:
        chosen = self.config.cases[case]
        used = self.config.method_of(case, method)
        batch = used.training.batch_size
        return f"{chosen.problem} {method} {used.network!r} {batch} {used.training.protocol}"

    def _model(self, case: str, method: str) -> OperatorModel:
        chosen = self.config.cases[case]
        data = _functions_of(self.config, chosen.problem)
        network = within_data(self.config.method_of(case, method), data).network
        return build_model(method, data.fields, network, chosen.noise_std)

    def step(self, case: str, method: str) -> tuple[float, float]:
        """Return seconds of one training step, and of fitting constants to one pair."""
        key = self._key(case, method)
        if key not in self._steps:
            step = _training_step(self._model(case, method), self.config, case, method)
            self._steps[key] = step
        return self._steps[key]

    def training(self, case: str, method: str) -> float:
        """Return seconds of one trial trained by itself."""
        step, fitting = self.step(case, method)
        iterations = self.config.method_of(case, method).training.iterations
        return step * iterations + fitting * self.config.cases[case].training

    def answer(self, case: str, method: str, samples: int) -> float:
        """Return seconds to sample one posterior, all members' where there are several."""
        experiment = self.config.cases[case].experiment
        ensemble = self.config.ensemble_of(experiment, method)
        if ensemble is not None:
            return samples * 1e-6
        method = self.config.base(experiment, method)
        key = self._key(case, method)
        if key not in self._samples:
            self._samples[key] = _posterior_sample(self._model(case, method), case, self.config)
        return self._samples[key] * samples


def estimate(config: Config, root: Path) -> list[Cost]:
    """Return the work left, stage by stage.

    Parameters
    ----------
    config : Config
    root : Path
        Folder that `config.results` is relative to.
    """
    plan, meter = Plan(config), Meter(config)
    jobs: dict[str, dict[str, float]] = {
        stage: {} for stage in ("simulate", "reference", "train", "law", "evaluate")
    }
    for case in config.cases_of(config.selected):
        data = config.problems[case.problem]
        pairs = data.training + data.validation + data.test
        # Jobs that several cases share are one entry here, as they are one file.
        jobs["simulate"][plan.functions(case.name)] = _pair_seconds(case.problem) * pairs
        needed: list[tuple[str, Evaluation]] = [(case.name, label) for label in case.evaluations]
        for method in case.methods:
            each = meter.training(case.name, plan.base(case.name, method))
            for job in plan.trainings(case.name, method):
                file = plan.file("train", job.name, "safetensors")
                jobs["train"][file] = each * len(job.parameters["trials"])
            for job in plan.laws(case.name, method):
                file = plan.file("law", job.name, "safetensors")
                jobs["law"][file] = LAW_SECONDS[job.parameters["law"]] * case.training / 10_000
            needed.append((plan.validation_case(case.name, method), "validation"))
        for name, label in needed:
            evaluation = config.evaluation_of(name, label)
            sets = evaluation.sets * len(config.cases[name].counts)
            spent = _reference_seconds(case.problem, evaluation, sets)
            jobs["reference"][plan.posteriors(name, label)] = spent
        for label in case.evaluations:
            evaluation = config.evaluation_of(case.name, label)
            sets = evaluation.sets * len(case.counts)
            pairs_of = _functions_of(config, case.problem)
            points = pairs_of.u_rows.shape[1]
            score = SCORE_SECONDS[0] + SCORE_SECONDS[1] * points
            score += evaluation.wasserstein * WASSERSTEIN_SECONDS
            for job in plan.evaluations(case.name, label):
                spent = 0.0
                for scored in job.parameters["models"]:
                    method = scored["method"]
                    if method == UNTRAINED:
                        spent += _cokriging_seconds(pairs_of) * case.training + sets * score
                        continue
                    answer = meter.answer(case.name, method, evaluation.model_samples)
                    spent += sets * (score + answer) * scored["predictors"]
                jobs["evaluate"][plan.file("evaluate", job.name, "csv")] = spent
    return [
        Cost(
            stage,
            sum(not (root / file).exists() for file in files),
            len(files),
            sum(s for file, s in files.items() if not (root / file).exists()),
        )
        for stage, files in jobs.items()
        if files or stage != "law"
    ]

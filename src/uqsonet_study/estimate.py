"""What a run will cost on this machine, measured before it starts.

Each kind of job that is left is timed on a small piece of itself (a shard, a posterior, a few
training steps) and multiplied by what the configuration asks for. Times are of the processor, so
that a busy machine does not count as a slow one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch

from uqsonet.fitting.baselines import INPUT_MODES, OUTPUT_MODES
from uqsonet.gauss.posterior import moments_of
from uqsonet.gauss.seeds import numpy_generator, torch_generator
from uqsonet.networks.training.gradients import BlockOptimiser
from uqsonet.networks.training.sampler import BatchSampler
from uqsonet.operator.base import OperatorModel, build_model
from uqsonet.runs.functions import Functions
from uqsonet_study.config import Config, Evaluation, EvaluationConfig, ProblemConfig
from uqsonet_study.evaluation.scores import BAND_SAMPLES
from uqsonet_study.layouts import uniform_layouts
from uqsonet_study.own_data import training_functions
from uqsonet_study.pipeline import UNTRAINED, Plan
from uqsonet_study.problems import get_problem, problem_names
from uqsonet_study.reference.directions import Directions
from uqsonet_study.reference.sampling import control_samples
from uqsonet_study.references import for_sampling
from uqsonet_study.training import within_data

CLOSED_FORM_SECONDS = 0.1
"""Exact moments of one set on 101 x 101 points."""

SAMPLE = 300
"""Functions drawn for a trial measurement: more than a model has modes."""

ENOUGH = 0.3
"""Seconds after which a measurement is not repeated."""

BUDGET = 7.0
"""Seconds of the processor after which nothing more is measured."""

FIT_SECONDS = 2e-7
"""Modes of a field, or the linear baseline, for each pair and each point of input and output."""


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
        Those that there was no time to measure count as the mean of the others.
    """

    stage: str
    jobs: int
    total: int
    seconds: float


def _timed(action: Callable[[], object], repeats: int = 3) -> float:
    """Return the least CPU seconds of a few runs, or of one that takes long."""
    best, spent = float("inf"), 0.0
    for _ in range(repeats):
        start = time.process_time()
        action()
        seconds = time.process_time() - start
        best, spent = min(best, seconds), spent + seconds
        if spent > ENOUGH:
            break
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


def _training_step(model: OperatorModel, config: Config, case: str, method: str) -> float:
    """Return seconds of one training step."""
    chosen = config.cases[case]
    settings = config.method_of(case, method).training
    data = _functions_of(config, chosen.problem)
    size = min(settings.batch_size, data.size)
    settings = settings.model_copy(update={"batch_size": size - size % model.group})
    if settings.protocol == "fixed_batches":
        settings = settings.model_copy(update={"protocol": "redraw"})
    bases: Any = getattr(model, "bases", None)
    if bases is None:
        model.fit_constants(data)
    else:  # any modes do: to fit them takes longer than all else here
        for kept in (bases.input_factor, bases.to_coefficients, bases.output_modes):
            kept.normal_(generator=torch_generator(0, "estimate"))
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
        torch_generator(0, "estimate"),
    )
    optimiser = BlockOptimiser(model, settings)
    wanted = config.method_of(case, method).training.batch_size
    step = _timed(lambda: optimiser.step(0, *sampler.draw()), 8) * wanted / settings.batch_size
    return step


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
def _pair_seconds(problem_name: str, sampling: bool = False) -> float:
    """Return seconds to draw and solve one pair, for data or as finely as references need it.

    There are none where pairs are a user's own.
    """
    if problem_name not in problem_names():
        return 0.0
    problem = get_problem(problem_name)
    problem = for_sampling(problem) if sampling else problem
    generator = numpy_generator(0, problem_name, "estimate")
    return _timed(lambda: problem.sample(generator, problem.block)) / problem.block


def _fit_seconds(data: Functions) -> float:
    """Return seconds to fit modes, or the linear baseline, to one pair."""
    return FIT_SECONDS * (data.fields.input.grid.size + data.u_rows.shape[1])


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
        each = 2 * samples * _pair_seconds(problem_name, True) + evaluation.wasserstein * exact
        return sets * each
    if evaluation.estimator == "chains":
        return sets * samples * CHAIN_SOLVES * _pair_seconds(problem_name, True)
    if problem.affine is None:
        solved = sets * samples + control_samples(sets * samples)
        return solved * _pair_seconds(problem_name, True) + sets * CONTROL_SECONDS
    if problem.unobserved is None:
        return sets * CLOSED_FORM_SECONDS
    return _sources_seconds(problem_name) * samples * (1 if problem.affine == "kappa" else sets)


SCORE_SECONDS = 0.004, 1.6e-5
"""CRPS, coverage and Gaussian distance of one set: for itself, and for each point."""

REGRESSION_SECONDS = 1.6e-6
"""Regression for one set, for each pair that it keeps."""

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
        self._steps: dict[str, float] = {}
        self._samples: dict[str, float] = {}
        self._fitted: set[tuple[object, ...]] = set()

    def _key(self, case: str, method: str) -> str:
        chosen = self.config.cases[case]
        used = self.config.method_of(case, method)
        batch = used.training.batch_size
        return f"{chosen.problem} {method} {used.network!r} {batch} {used.training.protocol}"

    def _model(self, case: str, method: str) -> OperatorModel:
        chosen = self.config.cases[case]
        data = _functions_of(self.config, chosen.problem)
        network = within_data(self.config.method_of(case, method), data).network
        # What a random operator adds to a sample takes no time; its law takes seconds, once.
        fields = replace(data.fields, random_operator=False)
        return build_model(method, fields, network, chosen.noise_std)

    def step(self, case: str, method: str) -> float:
        """Return seconds of one training step."""
        key = self._key(case, method)
        if key not in self._steps:
            step = _training_step(self._model(case, method), self.config, case, method)
            self._steps[key] = step
        return self._steps[key]

    def training(self, case: str, method: str) -> float:
        """Return seconds of a training."""
        used = self.config.method_of(case, method)
        modes = (getattr(used.network, key, None) for key in ("input_modes", "output_modes"))
        fitting = self._fitting(case, tuple(modes))
        return self.step(case, method) * used.training.iterations + fitting

    def _fitting(self, case: str, modes: tuple[int | None, ...]) -> float:
        """Return seconds to fit modes, for the first that needs them: they are kept."""
        chosen = self.config.cases[case]
        key = chosen.problem, chosen.training, modes
        if key in self._fitted:
            return 0.0
        self._fitted.add(key)
        return _fit_seconds(_functions_of(self.config, chosen.problem)) * chosen.training

    def scores(
        self, case: str, evaluation: EvaluationConfig, method: str, predictors: int
    ) -> float:
        """Return seconds of the scores of a method."""
        chosen = self.config.cases[case]
        data = _functions_of(self.config, chosen.problem)
        sets = evaluation.sets * len(chosen.counts)
        score = SCORE_SECONDS[0] + SCORE_SECONDS[1] * data.u_rows.shape[1]
        score += evaluation.wasserstein * WASSERSTEIN_SECONDS
        if method == UNTRAINED:
            pairs = chosen.training
            fitting = self._fitting(case, (INPUT_MODES, OUTPUT_MODES))
            fitting += FIT_SECONDS * data.u_rows.shape[1] * pairs  # of u alone
            return fitting + sets * (score + REGRESSION_SECONDS * pairs)
        bands = 0 if evaluation.wasserstein else BAND_SAMPLES
        answer = self.answer(case, method, evaluation.model_samples + bands)
        return sets * (score + answer) * predictors

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


def estimate(config: Config, root: Path, left: Collection[str] | None = None) -> list[Cost]:
    """Return the work left, stage by stage.

    Parameters
    ----------
    config : Config
    root : Path
        Folder that `config.results` is relative to.
    left : collection of str, optional
        Files that are to be made; by default all that do not exist.
    """
    plan, meter = Plan(config), Meter(config)
    jobs: dict[str, dict[str, Callable[[], float]]] = {
        stage: {} for stage in ("simulate", "reference", "train", "law", "evaluate")
    }
    for case in config.cases_of(config.selected):
        data = config.problems[case.problem]
        pairs = data.training + data.validation + data.test
        # Jobs that several cases share are one entry here, as they are one file.
        jobs["simulate"][plan.functions(case.name)] = partial(_pairs, case.problem, pairs)
        needed: list[tuple[str, Evaluation]] = [(case.name, label) for label in case.evaluations]
        for method in case.methods:
            base = plan.base(case.name, method)
            for job in plan.trainings(case.name, method):
                file = plan.file("train", job.name, "safetensors")
                jobs["train"][file] = partial(meter.training, case.name, base)
            for job in plan.laws(case.name, method):
                file = plan.file("law", job.name, "safetensors")
                jobs["law"][file] = partial(_law_seconds, job.parameters["law"], case.training)
            needed.append((plan.validation_case(case.name, method), "validation"))
        for name, label in needed:
            evaluation = config.evaluation_of(name, label)
            sets = evaluation.sets * len(config.cases[name].counts)
            spent = partial(_reference_seconds, case.problem, evaluation, sets)
            jobs["reference"][plan.posteriors(name, label)] = spent
        for label in case.evaluations:
            evaluation = config.evaluation_of(case.name, label)
            for job in plan.evaluations(case.name, label):
                told = job.parameters["method"], job.parameters["predictors"]
                spent = partial(meter.scores, case.name, evaluation, *told)
                jobs["evaluate"][plan.file("evaluate", job.name, "csv")] = spent
    start = time.process_time()
    missing = {
        stage: [f for f in files if (not (root / f).exists() if left is None else f in left)]
        for stage, files in jobs.items()
    }
    known: dict[str, list[float]] = {stage: [] for stage in jobs}
    # In turns, so that every stage has been looked at when time is up.
    for turn in zip_longest(*missing.values()):
        for stage, file in zip(missing, turn, strict=True):
            if file is not None and time.process_time() - start < BUDGET:
                known[stage].append(jobs[stage][file]())
    found = []
    for stage, files in missing.items():
        each = sum(known[stage]) / max(1, len(known[stage]))
        found.append(Cost(stage, len(files), len(jobs[stage]), each * len(files)))
    return [cost for cost in found if cost.total or cost.stage != "law"]


def _pairs(problem: str, pairs: int) -> float:
    """Return seconds of a data set."""
    return _pair_seconds(problem) * pairs


def _law_seconds(law: str, training: int) -> float:
    """Return seconds of one law, fitted to so many inputs."""
    return LAW_SECONDS[law] * training / 10_000

"""The training job: a stack of trials from data to weights, resumable at any moment."""

from __future__ import annotations

import csv
import io
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from uqsonet.devices import keep_freed_memory, require_device
from uqsonet.errors import TrainingError
from uqsonet.layouts import load_layouts
from uqsonet.nn.base import OperatorModel, build_model
from uqsonet.reference import load_reference
from uqsonet.seeds import torch_generator
from uqsonet.simulation import Functions, load_functions
from uqsonet.storage import file_digest, remove_debris, write_text, write_weights
from uqsonet.training.checkpoint import (
    Progress,
    advice,
    load_checkpoint,
    not_finite,
    save_checkpoint,
    termination_flag,
)
from uqsonet.training.optimiser import StackedOptimiser, learning_rate
from uqsonet.training.progress import ProgressDisplay
from uqsonet.training.sampler import BatchSampler
from uqsonet.training.validation import Validator, load_trial, no_skill, skill_columns
from uqsonet_study.config import JobsConfig, MethodConfig

LOG = logging.getLogger("uqsonet")

CHECK_EVERY = 50
"""Iterations between looks at whether the loss is still finite (a look waits for a GPU)."""

COLLAPSE_NATS = 0.05
"""Mean KL below which the latent space counts as collapsed."""


class NotFiniteError(TrainingError):
    """Loss or weights hold NaN or infinity."""


@dataclass(frozen=True)
class TrainingJob:
    """Everything that defines a stack of trials.

    Attributes
    ----------
    method, problem : str
    config : MethodConfig
    noise_std : float
    trials : list of int
        Numbers of the trials trained as one stack.
    training : int
        Training pairs N: the first N of the data set.
    seed : int
        Root of the seed tree.
    functions, sensors, reference : Path
        Training data, layouts, validation reference.
    code : str
        Digest of the source that determines the result.
    """

    method: str
    problem: str
    config: MethodConfig
    noise_std: float
    trials: list[int]
    training: int
    seed: int
    functions: Path
    sensors: Path
    reference: Path
    code: str = ""

    def identity(self) -> dict[str, Any]:
        """Return what a checkpoint must agree with to be continued."""
        return {
            "method": self.method,
            "problem": self.problem,
            "config": self.config.model_dump(mode="json"),
            "noise_std": self.noise_std,
            "trials": self.trials,
            "training": self.training,
            "seed": self.seed,
            "inputs": {
                name: file_digest(getattr(self, name))
                for name in ("functions", "sensors", "reference")
            },
            "code": self.code,
            "torch": torch.__version__,
        }

    def stream(self, trial: int, purpose: str, device: str = "cpu") -> torch.Generator:
        """Return a trial's generator for `initialisation` or `order`."""
        path = (self.problem, "training", self.method, purpose, trial)
        return torch_generator(self.seed, *path, device=device)


def initialise(job: TrainingJob, data: Functions) -> tuple[OperatorModel, list[dict[str, Tensor]]]:
    """Return a model with its data-driven constants and each trial's initial parameters."""
    initial = []
    model: OperatorModel | None = None
    for trial in job.trials:
        with torch.random.fork_rng(devices=[]):
            # torch.nn draws initial weights from the global generator: fork it and seed it here.
            torch.manual_seed(job.stream(trial, "initialisation").initial_seed())
            model = build_model(job.method, job.problem, job.config.network, job.noise_std)
        initial.append({k: v.detach().clone() for k, v in model.named_parameters()})
    assert model is not None
    with torch.no_grad():
        model.fit_constants(data)
    return model, initial


def train(
    job: TrainingJob, jobs: JobsConfig, weights: Path, log: Path, state: Path, bar: bool = True
) -> None:
    """Train a stack of trials and write weights and log.

    Parameters
    ----------
    job : TrainingJob
    jobs : JobsConfig
        Device and time between checkpoints.
    weights, log : Path
        Results: stacked weights (safetensors) and logged rows (CSV).
    state : Path
        Checkpoint; continued if it belongs to this run, removed at the end.
    bar : bool
        Draw a progress bar on a terminal.

    Raises
    ------
    TrainingError
        If the loss is not finite, the device is missing, or the job was asked to stop (after
        saving a checkpoint).
    """
    device = require_device(jobs.device)
    keep_freed_memory()
    data = load_functions(job.functions, "training", job.training)
    model, initial = initialise(job, data)
    _, kept = data.problem.training_grid()
    validator = Validator(load_reference(job.reference)[0], data.u_rows, kept)
    targets = {k: v.to(device) for k, v in model.targets(data).items()}
    layouts = load_layouts(job.sensors, "training") if model.reads_sensors else None
    generators = [job.stream(trial, "order", device) for trial in job.trials]
    model.to(device)
    optimiser = StackedOptimiser(
        model, [{k: v.to(device) for k, v in one.items()} for one in initial], job.config.training
    )
    sampler = BatchSampler(
        data.problem,
        job.config.training,
        data.kappa.to(device) if model.reads_sensors else None,
        targets,
        layouts,
        job.noise_std,
        model.latent_dim,
        job.seed,
        generators,
    )
    identity = job.identity()
    remove_debris(state)
    found = load_checkpoint(state, identity, generators)
    if isinstance(found, str):
        LOG.info("starting from scratch: %s", found)
        progress = Progress()
    else:
        saved, progress = found
        optimiser.restore(saved)
        LOG.info("continuing at iteration %d", progress.iteration)
    # Validation works on a copy: it loads averaged weights, trial by trial.
    judge = build_model(job.method, job.problem, job.config.network, job.noise_std)
    judge.load_state_dict(model.to("cpu").state_dict())
    judge.eval()
    model.to(device)

    def save() -> None:
        save_checkpoint(state, identity, optimiser.state(), generators, progress)

    try:
        _run(job, jobs, optimiser, sampler, validator, judge, progress, save, bar)
    except NotFiniteError as error:
        raise TrainingError(f"{error}; {advice(state)}") from None
    meta = {k: v for k, v in identity.items() if k not in ("code", "inputs")}
    if progress.earlier_rates:
        meta["earlier_rates"] = progress.earlier_rates
    stacked = {f"parameter/{k}": v for k, v in optimiser.weights().items()}
    constants = {f"buffer/{k}": v for k, v in judge.state_dict().items() if k not in initial[0]}
    write_weights(weights, stacked | constants, meta)
    write_text(log, _as_csv(progress.history))
    state.unlink(missing_ok=True)


def _run(
    job: TrainingJob,
    jobs: JobsConfig,
    optimiser: StackedOptimiser,
    sampler: BatchSampler,
    validator: Validator,
    judge: OperatorModel,
    progress: Progress,
    save: Callable[[], None],
    bar: bool,
) -> None:
    """Iterate to the end, validating, checkpointing and watching for trouble on the way."""
    total = job.config.training.iterations
    every = min(job.config.training.validate_every, total)
    title = f"{job.problem} {job.method} trials {job.trials}"
    base, start = progress.seconds, time.monotonic()
    saved_at = start
    with termination_flag() as stop, ProgressDisplay(title, total, progress.iteration, bar) as show:
        while progress.iteration < total:
            batch, normals = sampler.draw()
            terms = optimiser.step(progress.iteration, batch, normals)
            progress.iteration += 1
            at_end = progress.iteration == total
            if progress.iteration % CHECK_EVERY == 0 or at_end:
                _require_finite(terms["loss"], progress.iteration, job)
                show.update(progress.iteration)
            if progress.iteration % every == 0 or at_end:
                # A bad gradient spoils the weights one step before a loss tells.
                if bad := not_finite(optimiser.weights()):
                    raise NotFiniteError(
                        f"{bad[0]} is not finite at iteration {progress.iteration}, so the "
                        "gradient was not"
                    )
                progress.seconds = base + time.monotonic() - start
                rows = [
                    _row(job, i, progress, terms, validator, judge, optimiser)
                    for i in range(len(job.trials))
                ]
                progress.history.extend(rows)
                show.report(progress.iteration, rows)
            due = time.monotonic() - saved_at > 60 * jobs.checkpoint_minutes
            if (due or stop) and not at_end:
                _require_finite(terms["loss"], progress.iteration, job)
                progress.seconds = base + time.monotonic() - start
                save()
                saved_at = time.monotonic()
            if stop and not at_end:
                raise TrainingError(
                    f"stopped by signal {stop[0]} at iteration {progress.iteration}; a "
                    "checkpoint is saved, and the same command continues from it"
                )
    _warn(progress.history, job)


def _row(
    job: TrainingJob,
    index: int,
    progress: Progress,
    terms: dict[str, Tensor],
    validator: Validator,
    judge: OperatorModel,
    optimiser: StackedOptimiser,
) -> dict[str, Any]:
    weights = {k: v.cpu() for k, v in optimiser.weights().items()}
    load_trial(judge, weights, index)
    return {
        "trial": job.trials[index],
        "iteration": progress.iteration,
        "seconds": round(progress.seconds, 3),
        "learning_rate": learning_rate(job.config.training, progress.iteration - 1),
        **{key: float(value[index]) for key, value in terms.items()},
        **skill_columns(validator.score(judge)),
    }


def _require_finite(losses: Tensor, iteration: int, job: TrainingJob) -> None:
    bad = [
        t for t, loss in zip(job.trials, losses.tolist(), strict=True) if not math.isfinite(loss)
    ]
    if bad:
        raise NotFiniteError(
            f"the loss of trial {bad[0]} is not finite at iteration {iteration} (checked every "
            f"{CHECK_EVERY}; learning_rate is {job.config.training.learning_rate})"
        )


def _warn(history: list[dict[str, Any]], job: TrainingJob) -> None:
    """Say loudly what a falling loss would hide."""
    last = [row for row in history if row["iteration"] == history[-1]["iteration"]]
    for row in last:
        lacking = no_skill(row)
        if lacking:
            LOG.warning(
                "trial %d has no skill over the sensor-free predictor in: %s",
                row["trial"],
                ", ".join(lacking),
            )
        if row.get("kl", math.inf) < COLLAPSE_NATS:
            LOG.warning("trial %d: the latent space collapsed (KL %.3g)", row["trial"], row["kl"])


def _as_csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in r.items()} for r in rows
    )
    return text.getvalue()

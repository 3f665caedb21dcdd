"""The training job of the pipeline: from files of data, layouts and references to weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from uqsonet.errors import ConfigError
from uqsonet.files import file_digest
from uqsonet.networks.train import Trained, Trial, set_weights
from uqsonet.networks.train import train as train_model
from uqsonet.operator.closed_form import BUFFERS, widen_band
from uqsonet.operator.weight_files import write_weights
from uqsonet.runs.functions import Functions
from uqsonet_study.jobs import draws_bar, log_rows
from uqsonet_study.kept_modes import Keeper
from uqsonet_study.layouts import load_layouts
from uqsonet_study.problems import get_problem
from uqsonet_study.reference.files import Reference, load_sets
from uqsonet_study.settings import Jobs, Method
from uqsonet_study.storage import load_functions
from uqsonet_study.trainer import SensorTrainer
from uqsonet_study.validation import Validator


@dataclass(frozen=True)
class TrainingJob:
    """Everything that defines a training."""

    method: str
    problem: str
    config: Method
    noise_std: float
    trial: int  # number of the trial
    training: int  # training pairs N: the first N of the data set
    seed: int  # root of the seed tree
    # training data, layouts, validation reference
    functions: Path
    sensors: Path
    reference: Path
    code: str = ""  # digest of the source that determines the result


def train(job: TrainingJob, jobs: Jobs, weights: Path, log: Path, state: Path) -> None:
    """Train a model and write weights and log.

    Parameters
    ----------
    jobs : Jobs
        Device and time between checkpoints.
    weights, log : Path
        Results: weights (safetensors) and logged rows (CSV).
    state : Path
        Checkpoint; continued if it belongs to this job, removed at the end.

    Raises
    ------
    TrainingError
        See `uqsonet.networks.train.train`.
    """
    data = load_functions(job.functions, "training", job.training)
    files = {
        name: file_digest(getattr(job, name)) for name in ("functions", "sensors", "reference")
    }
    data.keeper = Keeper(job.functions, files["functions"])
    sets, _, _ = load_sets(job.reference)
    held, kept = load_functions(job.functions, "validation"), data.fields.training_grid()[1]
    known = isinstance(sets, Reference)
    mean, std = (sets.mean, sets.std[:, kept]) if known else (held.u[sets.function], None)
    validator = Validator(sets.observations, mean[:, kept], std, data.u_rows)
    trial = Trial(job.method, job.config, job.noise_std, job.trial, job.seed)
    trained = train_model(
        SensorTrainer(trial, data, load_layouts(job.sensors, "training"), jobs.device),
        validator.columns,
        state,
        {"inputs": files, "code": job.code},
        jobs.checkpoint_minutes,
        draws_bar(),
    )
    if getattr(job.config.network, "held_out_residuals", False):
        trained = _with_residuals(trial, trained, data, held)
    write_weights(weights, trained.tensors(), trained.meta)
    log_rows(log, trained.history)
    state.unlink(missing_ok=True)


def _with_residuals(trial: Trial, trained: Trained, data: Functions, held: Functions) -> Trained:
    """Return a training whose law has what it leaves over of the validation functions.

    The law of residuals differs from trial to trial, so it is stored like a parameter.
    """
    model: Any = trial.untrained(data.fields)
    model.fit_constants(data)
    kept = data.fields.training_grid()[1]
    held = Functions(held.fields, "training", held.kappa, held.u[:, kept])
    set_weights(model, trained.weights)
    widen_band(model, [(held, model)])
    residuals = {name: model.state_dict()[name] for name in BUFFERS}
    constants = {name: v for name, v in trained.constants.items() if name not in residuals}
    return replace(trained, weights=trained.weights | residuals, constants=constants)


def require_modes(problem: str, config: Method, pairs: int) -> None:
    """Refuse more modes than pairs or grid points of a problem can give.

    Raises
    ------
    ConfigError
    """
    network, found = config.network, get_problem(problem)
    points = {"input_modes": found.grid.size, "output_modes": found.training_grid()[0].size}
    for key, size in points.items():
        modes, most = getattr(network, key, 0), min(pairs - 1, size)
        if modes > most:
            raise ConfigError(
                f"recipes.*.{problem}.*.network.{key} = {modes}: {pairs} functions on {size} "
                f"points give at most {most} modes"
            )

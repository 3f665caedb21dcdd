"""The training job of the pipeline: from files of data, layouts and references to weights."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uqsonet.config import MethodConfig
from uqsonet.data import load_functions
from uqsonet.errors import DataError
from uqsonet.reference.files import load_reference
from uqsonet.storage.files import file_digest, write_text
from uqsonet.storage.weights import write_weights
from uqsonet.training import loop
from uqsonet.training.loop import RunOptions
from uqsonet.training.trainer import TrialStack
from uqsonet.training.validation import ReferenceValidator
from uqsonet_study.config import JobsConfig
from uqsonet_study.layouts import load_layouts


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
        Checkpoint; continued if it belongs to this job, removed at the end.
    bar : bool
        Draw a progress bar on a terminal.

    Raises
    ------
    DataError
        If the data are those of another problem.
    TrainingError
        See `uqsonet.training.loop.train`.
    """
    data = load_functions(job.functions, "training", job.training)
    if data.fields.name != job.problem:
        raise DataError(f"{job.functions}: of {data.fields.name}, asked for {job.problem}")
    files = {
        name: file_digest(getattr(job, name)) for name in ("functions", "sensors", "reference")
    }
    reference, _, _ = load_reference(job.reference)
    trained = loop.train(
        TrialStack(job.method, job.config, job.noise_std, job.trials, job.seed),
        data,
        load_layouts(job.sensors, "training"),
        ReferenceValidator(reference, data.u_rows, data.fields.training_grid()[1]),
        state,
        RunOptions(jobs.device, jobs.checkpoint_minutes, bar),
        {"inputs": files, "code": job.code},
    )
    write_weights(weights, trained.tensors, trained.meta)
    write_text(log, _as_csv(trained.history))
    state.unlink(missing_ok=True)


def _as_csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in r.items()} for r in rows
    )
    return text.getvalue()

"""Running a training: progress, validation, checkpoints; it can be resumed at any moment."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from uqsonet.errors import TrainingError
from uqsonet.files import remove_debris
from uqsonet.networks.training.checkpoint import (
    Identity,
    Progress,
    advice,
    load_checkpoint,
    not_finite,
    save_checkpoint,
    termination_flag,
)
from uqsonet.networks.training.optimiser import learning_rate
from uqsonet.networks.training.progress import ProgressDisplay
from uqsonet.networks.training.trainer import Trainer, Trial
from uqsonet.networks.training.validation import Validator, no_skill
from uqsonet.operator.devices import keep_freed_memory, require_device
from uqsonet.runs.functions import Functions

LOG = logging.getLogger("uqsonet")

CHECK_EVERY = 50
"""Iterations between looks at whether the loss is still finite (a look waits for a GPU)."""

COLLAPSE_NATS = 0.05
"""Mean KL below which the latent space counts as collapsed."""


class NotFiniteError(TrainingError):
    """Loss or weights hold NaN or infinity."""


@dataclass(frozen=True)
class RunOptions:
    """How a training is run; none of it changes the result.

    Attributes
    ----------
    device : str
        ``cpu`` or ``cuda``.
    checkpoint_minutes : float
        Time between checkpoints.
    bar : bool
        Draw a progress bar on a terminal.
    """

    device: str = "cpu"
    checkpoint_minutes: float = 2.0
    bar: bool = True


@dataclass(frozen=True)
class Trained:
    """What a training leaves.

    Attributes
    ----------
    weights, constants : dict of Tensor
        Parameters and buffers of the model, on the CPU.
    meta : dict
        Header of a weight file.
    history : list of dict
        Rows of the log.
    """

    weights: dict[str, Tensor]
    constants: dict[str, Tensor]
    meta: dict[str, Any]
    history: list[dict[str, Any]]

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors of a weight file, where parameters have an axis for the trial."""
        weights = {f"parameter/{name}": value[None] for name, value in self.weights.items()}
        return weights | {f"buffer/{name}": value for name, value in self.constants.items()}


def train(
    trial: Trial,
    data: Functions,
    layouts: dict[int, Tensor] | None,
    validator: Validator,
    state: Path,
    options: RunOptions | None = None,
    origin: Mapping[str, Any] | None = None,
) -> Trained:
    """Train one model.

    Parameters
    ----------
    trial : Trial
    data : Functions
        Training pairs.
    layouts : dict of int to Tensor (P, m), or None
        Sensor layouts by count, as indices of grid points, for models whose loss reads sensors.
    validator : Validator
        Measures skill over the sensor-free predictor on sets that training does not see.
    state : Path
        Checkpoint; continued if it belongs to this training. The caller removes it when the result
        is stored.
    options : RunOptions, optional
    origin : mapping, optional
        What else a checkpoint must agree with to be continued: digests of files and of the source.

    Raises
    ------
    TrainingError
        If the loss is not finite, the device is missing, or the training was asked to stop (after
        saving a checkpoint).
    """
    options = options or RunOptions()
    device = require_device(options.device)
    keep_freed_memory()
    trainer = Trainer(trial, data, layouts, device)
    common = {
        "method": trial.method,
        "fields": data.fields.as_dict(),
        "config": trial.config.model_dump(mode="json"),
        "noise_std": trial.noise_std,
        "training": data.size,
        "seed": trial.seed,
        "torch": torch.__version__,
    }
    run = _Run(trainer, validator, state, {**common, "trial": trial.number, **(origin or {})})
    run.resume()
    try:
        run.iterate(options)
    except NotFiniteError as error:
        raise TrainingError(f"{error}; {advice(state)}") from None
    meta = {**common, "trials": [trial.number]}
    if run.progress.earlier_rates:
        meta["earlier_rates"] = run.progress.earlier_rates
    weights = {name: value.float().cpu() for name, value in trainer.optimiser.weights().items()}
    return Trained(weights, trainer.constants(), meta, run.progress.history)


class _Run:
    """A training under way: what it works with, and how far it is.

    Parameters
    ----------
    trainer : Trainer
    validator : Validator
    state : Path
        Checkpoint.
    identity : dict
        What a checkpoint must agree with to be continued.
    """

    def __init__(
        self, trainer: Trainer, validator: Validator, state: Path, identity: Identity
    ) -> None:
        self._trainer, self._validator = trainer, validator
        self._state, self._identity = state, identity
        self._number, self._settings = trainer.trial.number, trainer.trial.config.training
        # Validation works on a copy, which has averaged weights.
        self._validated = trainer.trial.untrained(trainer.model.fields).eval()
        self.progress = Progress()

    def resume(self) -> None:
        """Continue from the checkpoint if it belongs to this training."""
        remove_debris(self._state)
        found = load_checkpoint(self._state, self._identity, self._trainer.generator)
        if isinstance(found, str):
            LOG.info("starting from scratch: %s", found)
            return
        saved, self.progress = found
        self._trainer.optimiser.restore(saved)
        LOG.info("continuing at iteration %d", self.progress.iteration)

    def iterate(self, options: RunOptions) -> None:
        """Iterate to the end, validating, saving and watching for trouble on the way."""
        trainer, settings, progress = self._trainer, self._settings, self.progress
        total, every = settings.iterations, min(settings.validate_every, settings.iterations)
        title = f"{trainer.model.fields.name} {trainer.trial.method} trial {self._number}"
        start = time.monotonic()
        before, saved_at = progress.seconds, start
        bar = ProgressDisplay(title, total, progress.iteration, options.bar)
        with termination_flag() as stop, bar as show:
            while progress.iteration < total:
                terms = trainer.step(progress.iteration)
                progress.iteration += 1
                at_end = progress.iteration == total
                if progress.iteration % CHECK_EVERY == 0 or at_end:
                    self._require_finite(terms["loss"])
                    show.update(progress.iteration)
                if progress.iteration % every == 0 or at_end:
                    self._require_finite_weights()
                    progress.seconds = before + time.monotonic() - start
                    progress.history.append(self._row(terms))
                    show.report(progress.iteration, progress.history[-1])
                due = time.monotonic() - saved_at > 60 * options.checkpoint_minutes
                if (due or stop) and not at_end:
                    self._require_finite(terms["loss"])
                    progress.seconds = before + time.monotonic() - start
                    self._save()
                    saved_at = time.monotonic()
                if stop and not at_end:
                    raise TrainingError(
                        f"stopped by signal {stop[0]} at iteration {progress.iteration}; a "
                        "checkpoint is saved, and the same command continues from it"
                    )
        warn(progress.history[-1])

    def _save(self) -> None:
        tensors, generator = self._trainer.optimiser.state(), self._trainer.generator
        save_checkpoint(self._state, self._identity, tensors, generator, self.progress)

    def _row(self, terms: dict[str, Tensor]) -> dict[str, Any]:
        """Return a row of the log, with the skill on the validation sets."""
        weights = self._trainer.optimiser.weights()
        self._validated.load_state_dict(self._trainer.constants() | weights)
        progress = self.progress
        return {
            "trial": self._number,
            "iteration": progress.iteration,
            "seconds": round(progress.seconds, 3),
            "learning_rate": learning_rate(self._settings, progress.iteration - 1),
            **{key: float(value) for key, value in terms.items()},
            **self._validator.columns(self._validated),
        }

    def _require_finite(self, loss: Tensor) -> None:
        if not math.isfinite(float(loss)):
            raise NotFiniteError(
                f"the loss of trial {self._number} is not finite at iteration "
                f"{self.progress.iteration} (checked every {CHECK_EVERY}; learning_rate is "
                f"{self._settings.learning_rate})"
            )

    def _require_finite_weights(self) -> None:
        # A bad gradient spoils the weights one step before a loss tells.
        if bad := not_finite(self._trainer.optimiser.weights()):
            raise NotFiniteError(
                f"{bad[0]} is not finite at iteration {self.progress.iteration}, so the "
                "gradient was not"
            )


def warn(row: Mapping[str, Any]) -> None:
    """Log a warning for what a falling loss would hide in the last row of a training."""
    if lacking := ", ".join(no_skill(row)):
        message = "trial %d has no skill over the sensor-free predictor in: %s"
        LOG.warning(message, row["trial"], lacking)
    if row.get("kl", math.inf) < COLLAPSE_NATS:
        LOG.warning("trial %d: the latent space collapsed (KL %.3g)", row["trial"], row["kl"])

"""Running a training: progress, validation, checkpoints; it can be resumed at any moment."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from uqsonet.errors import TrainingError
from uqsonet.files import remove_debris
from uqsonet.networks.training.checkpoint import (
    Progress,
    advice,
    load_checkpoint,
    not_finite,
    save_checkpoint,
    termination_flag,
)
from uqsonet.networks.training.optimiser import learning_rate
from uqsonet.networks.training.progress import ProgressDisplay
from uqsonet.networks.training.trainer import Trainer, TrialStack
from uqsonet.networks.training.validation import Validator, load_trial, no_skill
from uqsonet.operator.base import OperatorModel
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
class TrainedStack:
    """What a training leaves: tensors and header of a weight file, and the rows of its log."""

    tensors: dict[str, Tensor]
    meta: dict[str, Any]
    history: list[dict[str, Any]]


def train(
    stack: TrialStack,
    data: Functions,
    layouts: dict[int, Tensor] | None,
    validator: Validator,
    state: Path,
    options: RunOptions | None = None,
    origin: Mapping[str, Any] | None = None,
) -> TrainedStack:
    """Train a stack of trials.

    Parameters
    ----------
    stack : TrialStack
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
    trainer = Trainer(stack, data, layouts, device)
    meta = {
        "method": stack.method,
        "fields": data.fields.as_dict(),
        "config": stack.config.model_dump(mode="json"),
        "noise_std": stack.noise_std,
        "trials": stack.trials,
        "training": data.size,
        "seed": stack.seed,
        "torch": torch.__version__,
    }
    identity = {**meta, **(origin or {})}
    remove_debris(state)
    found = load_checkpoint(state, identity, trainer.generators)
    if isinstance(found, str):
        LOG.info("starting from scratch: %s", found)
        progress = Progress()
    else:
        saved, progress = found
        trainer.optimiser.restore(saved)
        LOG.info("continuing at iteration %d", progress.iteration)
    # Validation works on a copy: it loads averaged weights, trial by trial.
    constants, validated = trainer.constants(), stack.untrained(data.fields)
    validated.load_state_dict(constants | dict(validated.named_parameters()))
    run = _Run(stack, trainer, validator, validated.eval(), progress)
    try:
        run.iterate(options, lambda: run.save(state, identity))
    except NotFiniteError as error:
        raise TrainingError(f"{error}; {advice(state)}") from None
    if progress.earlier_rates:
        meta["earlier_rates"] = progress.earlier_rates
    tensors = {f"parameter/{k}": v.float() for k, v in trainer.optimiser.weights().items()}
    tensors |= {f"buffer/{k}": v for k, v in constants.items()}
    return TrainedStack(tensors, meta, progress.history)


@dataclass
class _Run:
    """A training under way: what it works with, and how far it is."""

    stack: TrialStack
    trainer: Trainer
    validator: Validator
    validated: OperatorModel
    progress: Progress

    def save(self, state: Path, identity: dict[str, Any]) -> None:
        """Write a checkpoint."""
        tensors = self.trainer.optimiser.state()
        save_checkpoint(state, identity, tensors, self.trainer.generators, self.progress)

    def iterate(self, options: RunOptions, save: Callable[[], None]) -> None:
        """Iterate to the end, validating, saving and watching for trouble on the way."""
        settings, progress = self.stack.config.training, self.progress
        total, every = settings.iterations, min(settings.validate_every, settings.iterations)
        title = f"{self.validated.fields.name} {self.stack.method} trials {self.stack.trials}"
        before, start = progress.seconds, time.monotonic()
        saved_at = start
        bar = ProgressDisplay(title, total, progress.iteration, options.bar)
        with termination_flag() as stop, bar as show:
            while progress.iteration < total:
                terms = self.trainer.step(progress.iteration)
                progress.iteration += 1
                at_end = progress.iteration == total
                if progress.iteration % CHECK_EVERY == 0 or at_end:
                    self._require_finite(terms["loss"])
                    show.update(progress.iteration)
                if progress.iteration % every == 0 or at_end:
                    self._require_finite_weights()
                    progress.seconds = before + time.monotonic() - start
                    rows = [self._row(i, terms) for i in range(len(self.stack.trials))]
                    progress.history.extend(rows)
                    show.report(progress.iteration, rows)
                due = time.monotonic() - saved_at > 60 * options.checkpoint_minutes
                if (due or stop) and not at_end:
                    self._require_finite(terms["loss"])
                    progress.seconds = before + time.monotonic() - start
                    save()
                    saved_at = time.monotonic()
                if stop and not at_end:
                    raise TrainingError(
                        f"stopped by signal {stop[0]} at iteration {progress.iteration}; a "
                        "checkpoint is saved, and the same command continues from it"
                    )
        self._warn()

    def _row(self, index: int, terms: dict[str, Tensor]) -> dict[str, Any]:
        """Return the log's row of one trial, with its skill on the validation sets."""
        weights = {k: v.cpu() for k, v in self.trainer.optimiser.weights().items()}
        load_trial(self.validated, weights, index)
        settings, progress = self.stack.config.training, self.progress
        return {
            "trial": self.stack.trials[index],
            "iteration": progress.iteration,
            "seconds": round(progress.seconds, 3),
            "learning_rate": learning_rate(settings, progress.iteration - 1),
            **{key: float(value[index]) for key, value in terms.items()},
            **self.validator.columns(self.validated),
        }

    def _require_finite(self, losses: Tensor) -> None:
        for trial, loss in zip(self.stack.trials, losses.tolist(), strict=True):
            if not math.isfinite(loss):
                raise NotFiniteError(
                    f"the loss of trial {trial} is not finite at iteration "
                    f"{self.progress.iteration} (checked every {CHECK_EVERY}; learning_rate is "
                    f"{self.stack.config.training.learning_rate})"
                )

    def _require_finite_weights(self) -> None:
        # A bad gradient spoils the weights one step before a loss tells.
        if bad := not_finite(self.trainer.optimiser.weights()):
            raise NotFiniteError(
                f"{bad[0]} is not finite at iteration {self.progress.iteration}, so the "
                "gradient was not"
            )

    def _warn(self) -> None:
        """Say loudly what a falling loss would hide."""
        history = self.progress.history
        for row in (r for r in history if r["iteration"] == history[-1]["iteration"]):
            trial, lacking = row["trial"], ", ".join(no_skill(row))
            if lacking:
                LOG.warning(
                    "trial %d has no skill over the sensor-free predictor in: %s", trial, lacking
                )
            if row.get("kl", math.inf) < COLLAPSE_NATS:
                LOG.warning("trial %d: the latent space collapsed (KL %.3g)", trial, row["kl"])

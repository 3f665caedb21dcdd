"""Training of one model: Adam on minibatches, validated on the way, resumed after any stop.

A `Trainer` has the numbers: initial weights, batches and steps. `train` runs it: progress, rows of
the log, checkpoints. This trainer's batches are rows of a model's targets, and its gradients are
those of a whole batch. `uqsonet_study.trainer` adds sensors to batches, and sums over chunks.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from uqsonet.errors import TrainingError
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.files import remove_debris
from uqsonet.gauss.seeds import torch_generator
from uqsonet.networks.devices import keep_freed_memory, require_device
from uqsonet.networks.progress import (
    Identity,
    Progress,
    ProgressBar,
    advice,
    load_checkpoint,
    require_finite,
    save_checkpoint,
    termination_flag,
)
from uqsonet.networks.settings import MethodConfig, TrainingConfig
from uqsonet.operator.base import Batch, OperatorModel, build_model
from uqsonet.runs.functions import Functions

LOG = logging.getLogger("uqsonet")

CHECK_EVERY = 50  # iterations between looks whether the loss is finite (a look waits for a GPU)
COLLAPSE_NATS = 0.05  # the latent space counts as collapsed if the mean KL is below this
MIN_SKILL = 0.02  # a skill over the sensor-free predictor below this counts as none
WARM_UP = 0.05  # share of the iterations in which the cosine schedule rises
ALIGNMENT = 16  # parameters start at multiples of so many values (64 bytes), as tensors do


def learning_rate(config: TrainingConfig, iteration: int) -> float:
    """Return the step size of an iteration (counted from 0)."""
    if config.schedule == "constant":
        return config.learning_rate
    progress = (iteration + 1) / config.iterations
    if progress < WARM_UP:
        return config.learning_rate * progress / WARM_UP
    fall = math.pi * (progress - WARM_UP) / (1 - WARM_UP)
    return config.learning_rate * 0.5 * (1 + math.cos(fall))


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread, so that no bit of a result depends on how many there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Optimiser:
    """The parameters of a model as parts of one tensor, and the state of Adam on it.

    On a CPU a hundred small tensors cost Adam more than the numbers in them. The model's parameters
    and their gradients become parts of tensors of the optimiser.
    """

    def __init__(self, model: OperatorModel, config: TrainingConfig) -> None:
        self.model, self.config = model, config
        parameters = dict(model.named_parameters())
        sizes = [-(-p.numel() // ALIGNMENT) * ALIGNMENT for p in parameters.values()]
        *starts, size = accumulate(sizes, initial=0)
        self._places = {
            name: (start, p.shape)
            for start, (name, p) in zip(starts, parameters.items(), strict=True)
        }
        self._whole = next(iter(parameters.values())).detach().new_zeros(size)
        self._gradient = torch.zeros_like(self._whole)
        gradients = self._parts(self._gradient)
        for name, part in self._parts(self._whole).items():
            part.copy_(parameters[name].detach())
            parameters[name].data, parameters[name].grad = part, gradients[name]
        # State of AdamW as a function: the class imports torch's compiler, more than a second.
        self._state = {
            "parameter": self._whole,
            "adam/step": torch.zeros((), device=self._whole.device),
            "adam/exp_avg": torch.zeros_like(self._whole),
            "adam/exp_avg_sq": torch.zeros_like(self._whole),
        }
        if config.average_decay is not None:
            self._state["average"] = self._whole.clone()

    def _parts(self, whole: Tensor) -> dict[str, Tensor]:
        """Return the parts of a tensor that belong to the parameters; they share its memory."""
        return {
            name: whole[start : start + shape.numel()].view(shape)
            for name, (start, shape) in self._places.items()
        }

    def gradients(self, batch: Batch, normals: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Add the gradients of a batch; return the loss and its terms, detached."""
        loss, terms = self.model.loss(batch, normals)
        loss.backward()
        return loss.detach(), {name: value.detach() for name, value in terms.items()}

    def step(self, iteration: int, batch: Batch, normals: Tensor) -> dict[str, Tensor]:
        """Take one step; return the loss and its terms, detached."""
        config, state = self.config, self._state
        self._gradient.zero_()
        with one_thread():
            loss, terms = self.gradients(batch, normals)
            if config.gradient_clip is not None:
                norm = self._gradient.square().sum().sqrt()
                self._gradient.mul_((config.gradient_clip / (norm + 1e-12)).clamp_max(1.0))
            moments = [state["adam/exp_avg"]], [state["adam/exp_avg_sq"]]
            with torch.no_grad():
                adamw(
                    [self._whole], [self._gradient], *moments, [], [state["adam/step"]],
                    fused=True, amsgrad=False, maximize=False,
                    lr=learning_rate(config, iteration), beta1=config.beta1, beta2=config.beta2,
                    weight_decay=config.weight_decay, eps=config.epsilon,
                )  # fmt: skip
            if config.average_decay is not None:
                state["average"].lerp_(self._whole, 1 - config.average_decay)
        return {"loss": loss} | terms

    def weights(self) -> dict[str, Tensor]:
        """Return the weights to use: the average where one is kept, else the parameters."""
        return self._parts(self._state.get("average", self._whole))

    def state(self) -> dict[str, Tensor]:
        """Return everything that a bit-exact continuation needs, as named tensors."""
        found = {}
        for kind, value in self._state.items():
            parts = {"": value} if value.ndim == 0 else self._parts(value)
            found |= {f"{kind}/{name}".rstrip("/"): part for name, part in parts.items()}
        return found

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from what `state` returned."""
        for name, value in self.state().items():
            value.copy_(state[name])


@dataclass(frozen=True)
class Trial:
    """One training of a method: what it trains, and its random numbers."""

    method: str
    config: MethodConfig  # networks and training
    noise_std: float  # standard deviation of the observation noise
    number: int  # of the trial: each has a random stream of its own
    seed: int  # root of the seed tree

    def stream(self, fields: OperatorFields, purpose: str, device: str = "cpu") -> torch.Generator:
        """Return the generator for `initialisation` or `order`."""
        path = (fields.name, "training", self.method, purpose, self.number)
        return torch_generator(self.seed, *path, device=device)

    def untrained(self, fields: OperatorFields) -> OperatorModel:
        """Return a model of this method with networks drawn from torch's global generator."""
        return build_model(self.method, fields, self.config.network, self.noise_std)

    def initialised(self, data: Functions) -> OperatorModel:
        """Return a model with the trial's initial weights and constants from data."""
        with torch.random.fork_rng(devices=[]):
            # torch.nn draws initial weights from the global generator: fork it and seed it here.
            seed = self.stream(data.fields, "initialisation").initial_seed()
            torch.default_generator.manual_seed(seed)  # that of the CPU, and not those of GPUs
            model = self.untrained(data.fields)
        with torch.no_grad():
            model.fit_constants(data)
        return model


class Trainer:
    """A trial that is ready to take steps.

    It is on a device, ``cpu`` or ``cuda``; a `ConfigError` is raised if that is missing.
    """

    optimiser_type = Optimiser

    def __init__(self, trial: Trial, data: Functions, device: str = "cpu") -> None:
        settings, self.device = trial.config.training, require_device(device)
        self.trial, self.pairs, self.model = trial, data.size, trial.initialised(data)
        self.precision: torch.dtype = getattr(torch, settings.precision)
        if self.precision == torch.float64:
            self.model.double()
        targets = self.model.targets(data).items()
        self.targets = {name: value.to(device, self.precision) for name, value in targets}
        self.model.to(device)
        self.generator = trial.stream(data.fields, "order", device)
        self.generators = [self.generator]  # all that batches are drawn by
        self.optimiser = self.optimiser_type(self.model, settings)

    def draw(self) -> tuple[Batch, Tensor]:
        """Return a batch and standard normals (B, latent_dim)."""
        size, g = self.trial.config.training.batch_size, self.generator
        rows = torch.randint(self.pairs, (size,), generator=g, device=self.device)
        batch = {name: value[rows] for name, value in self.targets.items()}
        shape = (size, self.model.latent_dim)
        return batch, torch.randn(shape, generator=g, device=self.device)

    def step(self, iteration: int) -> dict[str, Tensor]:
        """Take one step; return the loss and its terms."""
        return self.optimiser.step(iteration, *self.draw())

    def constants(self) -> dict[str, Tensor]:
        """Return the buffers of the model that are stored, on the CPU."""
        parameters = dict(self.model.named_parameters())
        state = self.model.state_dict().items()
        return {name: value.cpu() for name, value in state if name not in parameters}

    def header(self) -> dict[str, Any]:
        """Return what the header of a weight file says besides the trial."""
        trial = self.trial
        return {
            "method": trial.method,
            "fields": self.model.fields.as_dict(),
            "config": trial.config.model_dump(mode="json"),
            "noise_std": trial.noise_std,
            "training": self.pairs,
            "seed": trial.seed,
            "torch": torch.__version__,
        }


Skills = Callable[[OperatorModel], Mapping[str, float]]
"""Returns columns of the log of training; those called ``skill_...`` should be well above zero.

A falling loss proves nothing: a model can learn to ignore its sensors. Skill is ``1 - error / error
of the sensor-free predictor``, on sets that training does not see.
"""


def skill_columns(
    name: str, error: Mapping[int, float], base: Mapping[int, float]
) -> dict[str, float]:
    """Return ``1 - error / base`` by sensor count, as columns ``<name>_<m>``."""
    return {f"{name}_{m}": 1 - e / base[m] for m, e in error.items()}


def set_weights(model: OperatorModel, weights: Mapping[str, Tensor]) -> None:
    """Give a model's parameters the values of weights, in place."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


@dataclass(frozen=True)
class Trained:
    """What a training leaves."""

    weights: dict[str, Tensor]  # parameters of the model, on the CPU
    constants: dict[str, Tensor]  # its buffers
    meta: dict[str, Any]  # header of a weight file
    history: list[dict[str, Any]]  # rows of the log

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors of a weight file, where parameters have an axis for the trial."""
        weights = {f"parameter/{name}": value[None] for name, value in self.weights.items()}
        return weights | {f"buffer/{name}": value for name, value in self.constants.items()}


def train(
    trainer: Trainer, skills: Skills, state: Path, origin: Mapping[str, Any],
    checkpoint_minutes: float = 2.0, bar: bool = True,
) -> Trained:  # fmt: skip
    """Train one model.

    `skills` measures skill over the sensor-free predictor on sets that training does not see. The
    checkpoint `state` is written every so many minutes, and continued if it belongs to this
    training and agrees with `origin` (digests of files and of the source); the caller removes it
    when the result is stored. With `bar` a progress bar is drawn on a terminal.

    It raises `TrainingError` if the loss is not finite, or the training was asked to stop (after
    saving a checkpoint).
    """
    keep_freed_memory()
    header, trial, settings = trainer.header(), trainer.trial, trainer.trial.config.training
    kind = torch.device(trainer.device).type  # its generators have states of their own kind
    identity = {**header, **origin, "trial": trial.number, "device": kind}
    progress = _resumed(trainer, state, identity)
    # Validation works on a copy, which has averaged weights.
    validated = trial.untrained(trainer.model.fields).eval()
    total, every = settings.iterations, min(settings.validate_every, settings.iterations)
    title = f"{trainer.model.fields.name} {trial.method} trial {trial.number}"
    saved_at = start = time.monotonic()
    before = progress.seconds
    with termination_flag() as stop, ProgressBar(title, total, progress.iteration, bar) as show:
        while progress.iteration < total:
            terms = trainer.step(progress.iteration)
            progress.iteration += 1
            at_end = progress.iteration == total
            logged = at_end or progress.iteration % every == 0
            if logged or progress.iteration % CHECK_EVERY == 0:  # waits for a GPU
                _require_finite_loss(trainer, terms["loss"], progress.iteration, state)
                show.update(progress.iteration)
            now = time.monotonic()
            progress.seconds = before + now - start
            if logged:
                require_finite(trainer.optimiser.weights(), progress.iteration, state)
                progress.history.append(_row(trainer, validated, terms, progress, skills))
                show.update(progress.iteration, _logged(progress.history[-1], show, total))
            stopped = bool(stop) and not at_end  # a signal may come while skills are measured
            if stopped or (now - saved_at > 60 * checkpoint_minutes and not at_end):
                _require_finite_loss(trainer, terms["loss"], progress.iteration, state)
                tensors, generators = trainer.optimiser.state(), trainer.generators
                save_checkpoint(state, identity, tensors, generators, progress)
                saved_at = time.monotonic()
            if stopped:
                raise TrainingError(
                    f"stopped by signal {stop[0]} at iteration {progress.iteration}; a "
                    "checkpoint is saved, and the same command continues from it"
                )
    warn(progress.history[-1])
    rates = progress.earlier_rates
    meta = header | {"trials": [trial.number]} | ({"earlier_rates": rates} if rates else {})
    weights = {name: value.float().cpu() for name, value in trainer.optimiser.weights().items()}
    return Trained(weights, trainer.constants(), meta, progress.history)


def _resumed(trainer: Trainer, state: Path, identity: Identity) -> Progress:
    """Return how far a training is, having restored its checkpoint if there is one to use."""
    remove_debris(state)
    loaded = load_checkpoint(state, identity, trainer.generators)
    if isinstance(loaded, str):
        if state.exists():
            LOG.info("starting from the beginning: %s", loaded)
        return Progress()
    trainer.optimiser.restore(loaded[0])
    LOG.info("continuing at iteration %d", loaded[1].iteration)
    return loaded[1]


def _row(
    trainer: Trainer, validated: OperatorModel, terms: dict[str, Tensor], progress: Progress,
    skills: Skills,
) -> dict[str, Any]:  # fmt: skip
    """Return a row of the log, with the skill on the validation sets."""
    validated.load_state_dict(trainer.constants() | trainer.optimiser.weights())
    return {
        "trial": trainer.trial.number,
        "iteration": progress.iteration,
        "seconds": round(progress.seconds, 3),
        "learning_rate": learning_rate(trainer.trial.config.training, progress.iteration - 1),
        **{key: float(value) for key, value in terms.items()},
        **skills(validated),
    }


def _logged(row: Mapping[str, Any], show: ProgressBar, total: int) -> str:
    """Log a row in one line, and return its loss terms and skills."""
    hidden, done = ("trial", "iteration", "seconds", "learning_rate"), row["iteration"]
    numbers = "  ".join(f"{k} {v:.4g}" for k, v in row.items() if k not in hidden)
    speed = f"{show.rate(done):.1f} it/s  {show.left(done):.0f} s left"
    texts = done, total, row["trial"], speed, numbers
    LOG.info("iteration %d/%d trial %d  %s  %s", *texts, extra={"row": dict(row)})
    return numbers


def _require_finite_loss(trainer: Trainer, loss: Tensor, iteration: int, state: Path) -> None:
    if not math.isfinite(float(loss)):
        rate = trainer.trial.config.training.learning_rate
        raise TrainingError(
            f"the loss of trial {trainer.trial.number} is not finite at iteration {iteration} "
            f"(checked every {CHECK_EVERY}; learning_rate is {rate}); " + advice(state)
        )


def warn(row: Mapping[str, Any]) -> None:
    """Log a warning for what a falling loss would hide in the last row of a training."""
    lacking = [k for k, v in row.items() if k.startswith("skill_") and v < MIN_SKILL]
    if lacking:
        message = "training %d is no better than no sensors in: %s"
        LOG.warning(message, row["trial"], ", ".join(lacking))
    if row.get("kl", math.inf) < COLLAPSE_NATS:
        LOG.warning("trial %d: the latent space collapsed (KL %.3g)", row["trial"], row["kl"])

"""One optimisation step for a stack of trials: loss, gradients, Adam, weight average.

Trials share data and code and nothing else, so they train as one model whose parameters have a
leading trial axis; Adam acts element by element, and each trial's trajectory is its own. On a GPU
the loss is mapped over that axis. On a CPU the products of one trial fill a core already, and
trials take turns.
"""

from __future__ import annotations

import math
from itertools import accumulate

import torch
from torch import Tensor
from torch.func import functional_call, vmap
from torch.optim.adamw import adamw

from uqsonet.networks.training.gradients import Workers, add_gradients, twin
from uqsonet.networks.training.sampler import Stack
from uqsonet.networks.training.settings import TrainingConfig
from uqsonet.operator.base import OperatorModel

WARM_UP = 0.05
"""Share of the iterations that the cosine schedule spends rising."""


def learning_rate(config: TrainingConfig, iteration: int) -> float:
    """Return the step size of an iteration (counted from 0)."""
    if config.schedule == "constant":
        return config.learning_rate
    progress = (iteration + 1) / config.iterations
    if progress < WARM_UP:
        return config.learning_rate * progress / WARM_UP
    return (
        config.learning_rate * 0.5 * (1 + math.cos(math.pi * (progress - WARM_UP) / (1 - WARM_UP)))
    )


ALIGNMENT = 16
"""Parameters start at multiples of so many values, as tensors of their own would (64 bytes)."""


class _Parts:
    """Tensors (T, ...) by name as parts of one tensor (T, P), which an optimiser takes as a whole.

    On a CPU a hundred small tensors cost it more than the numbers in them.
    """

    def __init__(self, shapes: dict[str, torch.Size]) -> None:
        sizes = [-(-shape[1:].numel() // ALIGNMENT) * ALIGNMENT for shape in shapes.values()]
        *starts, self.size = accumulate(sizes, initial=0)
        self._places = [
            (name, start, shape)
            for start, (name, shape) in zip(starts, shapes.items(), strict=True)
        ]

    def of(self, whole: Tensor) -> dict[str, Tensor]:
        """Return the parts of a tensor (T, P), which share its memory."""
        return {
            name: whole[:, start : start + shape[1:].numel()].view(shape)
            for name, start, shape in self._places
        }


class StackedOptimiser:
    """Parameters of T trials and the state of their optimisation.

    Parameters
    ----------
    model : OperatorModel
        Supplies the loss and the constants that trials share.
    initial : list of dict of Tensor
        Freshly drawn parameters of each trial.
    config : TrainingConfig
    """

    def __init__(
        self, model: OperatorModel, initial: list[dict[str, Tensor]], config: TrainingConfig
    ) -> None:
        self.model, self.config = model, config
        stacks = {name: torch.stack([one[name].detach() for one in initial]) for name in initial[0]}
        first = next(iter(stacks.values()))
        self._parts = _Parts({name: stack.shape for name, stack in stacks.items()})
        self._whole = first.new_zeros(len(initial), self._parts.size).requires_grad_()
        self._gradient = self._whole.grad = torch.zeros_like(self._whole)
        self.parameters = self._parts.of(self._whole.detach())
        for name, part in self._parts.of(self._gradient).items():
            self.parameters[name].copy_(stacks[name]).requires_grad_().grad = part
        self._average = self._whole.detach().clone()
        # State of AdamW as a function: the class imports torch's compiler, more than a second.
        self._moments = {
            "step": torch.zeros((), device=first.device),
            "exp_avg": torch.zeros_like(self._average),
            "exp_avg_sq": torch.zeros_like(self._average),
        }
        self._buffers = dict(model.named_buffers())
        self._workers = Workers()
        self._twins: list[OperatorModel] = []
        if first.device.type == "cpu":
            self._twins = [self._twin(trial) for trial in range(self.trials)]

    @property
    def trials(self) -> int:
        """Number of stacked trials."""
        return len(self._whole)

    def _twin(self, trial: int) -> OperatorModel:
        """Return a model whose parameters and gradients are one trial's part of the stack."""
        parts = {name: p.detach()[trial] for name, p in self.parameters.items()}
        gradients = {n: p.grad[trial] for n, p in self.parameters.items() if p.grad is not None}
        return twin(self.model, parts, gradients)

    def gradients(self, batch: Stack, normals: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Set the gradients; return the loss and its terms, each (T,), detached."""
        self._gradient.zero_()
        if not self._twins:
            losses, terms = self.losses(batch, normals)
            losses.sum().backward()  # of independent losses: each trial gets its own gradient
            return losses.detach(), {k: v.detach() for k, v in terms.items()}
        found = [
            add_gradients(one, {k: v[i] for k, v in batch.items()}, normals[i], self._workers)
            for i, one in enumerate(self._twins)
        ]
        terms = {k: torch.stack([one[k] for _, one in found]) for k in found[0][1]}
        return torch.stack([loss for loss, _ in found]), terms

    def losses(self, batch: Stack, normals: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss (T,) and its terms, each (T,), mapped over trials."""

        def one(
            parameters: dict[str, Tensor], batch: Stack, normals: Tensor
        ) -> tuple[Tensor, dict[str, Tensor]]:
            return functional_call(self.model, (parameters, self._buffers), (batch, normals))

        return vmap(one)(self.parameters, batch, normals)

    def step(self, iteration: int, batch: Stack, normals: Tensor) -> dict[str, Tensor]:
        """Take one step and return the loss and its terms, each (T,), detached."""
        with self._workers:
            return self._step(iteration, batch, normals)

    def _step(self, iteration: int, batch: Stack, normals: Tensor) -> dict[str, Tensor]:
        losses, terms = self.gradients(batch, normals)
        if self.config.gradient_clip is not None:
            self._clip(self.config.gradient_clip)
        self._descend(learning_rate(self.config, iteration))
        if self.config.average_decay is not None:
            self._average.lerp_(self._whole.detach(), 1 - self.config.average_decay)
        return {"loss": losses} | terms

    @torch.no_grad()
    def _descend(self, rate: float) -> None:
        moments, config = self._moments, self.config
        adamw(
            [self._whole],
            [self._gradient],
            [moments["exp_avg"]],
            [moments["exp_avg_sq"]],
            [],
            [moments["step"]],
            fused=True,
            amsgrad=False,
            beta1=config.beta1,
            beta2=config.beta2,
            lr=rate,
            weight_decay=config.weight_decay,
            eps=config.epsilon,
            maximize=False,
        )

    def _clip(self, largest: float) -> None:
        norm = self._gradient.square().sum(1, keepdim=True).sqrt()
        self._gradient.mul_((largest / (norm + 1e-12)).clamp_max(1.0))

    def weights(self) -> dict[str, Tensor]:
        """Return the weights to use: the average where one is kept, else the parameters."""
        kept = self._whole.detach() if self.config.average_decay is None else self._average
        return self._parts.of(kept)

    def _state(self) -> dict[str, Tensor]:
        """Return what a continuation needs, each (T, P) or a scalar."""
        found = {"parameter": self._whole.detach()}
        if self.config.average_decay is not None:
            found["average"] = self._average
        return found | {f"adam/{key}": value for key, value in self._moments.items()}

    def state(self) -> dict[str, Tensor]:
        """Return everything that a bit-exact continuation needs, as named tensors."""
        found = {}
        for kind, value in self._state().items():
            parts = {"": value} if value.ndim == 0 else self._parts.of(value)
            found |= {f"{kind}/{name}".rstrip("/"): part for name, part in parts.items()}
        return found

    @torch.no_grad()
    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from what `state` returned."""
        self._moments["step"].copy_(state["adam/step"])
        for kind, value in self._state().items():
            if value.ndim > 0:
                for name, part in self._parts.of(value).items():
                    part.copy_(state[f"{kind}/{name}"])

"""Adam on the parameters of a model, with a schedule, a bound on gradients and averaged weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from uqsonet.operator.base import Batch, OperatorModel
from uqsonet.operator.settings import TrainingConfig

WARM_UP = 0.05
"""Share of the iterations in which the cosine schedule rises."""

ALIGNMENT = 16
"""Parameters start at multiples of so many values, as tensors of their own would (64 bytes)."""


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

    On a CPU a hundred small tensors cost Adam more than the numbers in them.

    Parameters
    ----------
    model : OperatorModel
        Its parameters and their gradients become parts of tensors of the optimiser.
    config : TrainingConfig
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
        with one_thread():
            return self._of_whole(batch, normals)

    def _of_whole(self, batch: Batch, normals: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        loss, terms = self.model.loss(batch, normals)
        loss.backward()
        return loss.detach(), {name: value.detach() for name, value in terms.items()}

    def step(self, iteration: int, batch: Batch, normals: Tensor) -> dict[str, Tensor]:
        """Take one step; return the loss and its terms, detached."""
        self._gradient.zero_()
        loss, terms = self.gradients(batch, normals)
        with one_thread():
            if self.config.gradient_clip is not None:
                norm = self._gradient.square().sum().sqrt()
                self._gradient.mul_((self.config.gradient_clip / (norm + 1e-12)).clamp_max(1.0))
            self._descend(learning_rate(self.config, iteration))
            if self.config.average_decay is not None:
                self._state["average"].lerp_(self._whole, 1 - self.config.average_decay)
        return {"loss": loss} | terms

    @torch.no_grad()
    def _descend(self, rate: float) -> None:
        state, config = self._state, self.config
        adamw(
            [self._whole],
            [self._gradient],
            [state["adam/exp_avg"]],
            [state["adam/exp_avg_sq"]],
            [],
            [state["adam/step"]],
            fused=True,
            amsgrad=False,
            beta1=config.beta1,
            beta2=config.beta2,
            lr=rate,
            weight_decay=config.weight_decay,
            eps=config.epsilon,
            maximize=False,
        )

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

"""One optimisation step for a stack of trials: loss, gradients, Adam, weight average.

Trials share data and code and nothing else, so they train as one model whose parameters have a
leading trial axis; Adam acts element by element, and each trial's trajectory is its own.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.func import functional_call, vmap

from uqsonet.config import TrainingConfig
from uqsonet.nn.base import OperatorModel
from uqsonet.training.sampler import Stack

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
        self.parameters = {
            name: torch.stack([one[name].detach() for one in initial]).requires_grad_()
            for name in initial[0]
        }
        self.averages = {name: value.detach().clone() for name, value in self.parameters.items()}
        self._adam = torch.optim.AdamW(
            self.parameters.values(),
            lr=config.learning_rate,
            weight_decay=config.weight_decay,
            fused=True,
        )
        self._shared = dict(model.named_buffers())

    @property
    def trials(self) -> int:
        """Number of stacked trials."""
        return len(next(iter(self.parameters.values())))

    def losses(self, batch: Stack, normals: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss (T,) and its terms, each (T,)."""

        def one(
            parameters: dict[str, Tensor], batch: Stack, normals: Tensor
        ) -> tuple[Tensor, dict[str, Tensor]]:
            return functional_call(self.model, (parameters, self._shared), (batch, normals))

        if self.trials > 1:
            return vmap(one)(self.parameters, batch, normals)
        loss, terms = one(
            {k: v[0] for k, v in self.parameters.items()},
            {k: v[0] for k, v in batch.items()},
            normals[0],
        )
        return loss[None], {k: v[None] for k, v in terms.items()}

    def step(self, iteration: int, batch: Stack, normals: Tensor) -> dict[str, Tensor]:
        """Take one step and return the loss and its terms, each (T,), detached."""
        self._adam.zero_grad()
        losses, terms = self.losses(batch, normals)
        losses.sum().backward()  # a sum of independent losses: each trial gets its own gradient
        if self.config.gradient_clip is not None:
            self._clip(self.config.gradient_clip)
        for group in self._adam.param_groups:
            group["lr"] = learning_rate(self.config, iteration)
        self._adam.step()
        self._average()
        return {"loss": losses.detach()} | {k: v.detach() for k, v in terms.items()}

    def _clip(self, largest: float) -> None:
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        squares = torch.stack([g.flatten(1).square().sum(1) for g in gradients]).sum(0)
        factor = (largest / (squares.sqrt() + 1e-12)).clamp_max(1.0)
        for g in gradients:
            g.mul_(factor.reshape(-1, *[1] * (g.ndim - 1)))

    @torch.no_grad()
    def _average(self) -> None:
        decay = self.config.average_decay
        if decay is not None:
            for name, average in self.averages.items():
                average.lerp_(self.parameters[name], 1 - decay)

    def weights(self) -> dict[str, Tensor]:
        """Return the weights to use: the average where one is kept, else the parameters."""
        chosen = self.parameters if self.config.average_decay is None else self.averages
        return {name: value.detach() for name, value in chosen.items()}

    def state(self) -> dict[str, Tensor]:
        """Return everything that a bit-exact continuation needs, as named tensors."""
        found = {f"parameter/{k}": v.detach() for k, v in self.parameters.items()}
        if self.config.average_decay is not None:
            found |= {f"average/{k}": v for k, v in self.averages.items()}
        for name, parameter in self.parameters.items():
            for key, value in self._adam.state[parameter].items():
                found[f"adam/{key}/{name}"] = value
        return found

    @torch.no_grad()
    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from what `state` returned."""
        for name, parameter in self.parameters.items():
            parameter.copy_(state[f"parameter/{name}"])
            if self.config.average_decay is not None:
                self.averages[name].copy_(state[f"average/{name}"])
            self._adam.state[parameter] = {
                key: state[f"adam/{key}/{name}"].to(parameter.device).clone()
                for key in ("step", "exp_avg", "exp_avg_sq")
            }

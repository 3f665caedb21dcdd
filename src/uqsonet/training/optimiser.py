"""One optimisation step for a stack of trials: loss, gradients, Adam, weight average.

Trials share data and code and nothing else, so they train as one model whose parameters have a
leading trial axis; Adam acts element by element, and each trial's trajectory is its own. On a GPU
the loss is mapped over that axis. On a CPU the products of one trial fill a core already, and
trials take turns.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.func import functional_call, vmap

from uqsonet.config import TrainingConfig
from uqsonet.nn.base import OperatorModel
from uqsonet.training.gradients import Workers, add_gradients, twin
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
        for parameter in self.parameters.values():
            parameter.grad = torch.zeros_like(parameter)
        self._buffers = dict(model.named_buffers())
        self._workers = Workers()
        self._twins: list[OperatorModel] = []
        if next(iter(self.parameters.values())).device.type == "cpu":
            self._twins = [self._twin(trial) for trial in range(self.trials)]

    @property
    def trials(self) -> int:
        """Number of stacked trials."""
        return len(next(iter(self.parameters.values())))

    def _twin(self, trial: int) -> OperatorModel:
        """Return a model whose parameters and gradients are one trial's part of the stack."""
        parts = {name: p.detach()[trial] for name, p in self.parameters.items()}
        gradients = {n: p.grad[trial] for n, p in self.parameters.items() if p.grad is not None}
        return twin(self.model, parts, gradients)

    def gradients(self, batch: Stack, normals: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Set the gradients; return the loss and its terms, each (T,), detached."""
        self._adam.zero_grad(set_to_none=False)
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
        for group in self._adam.param_groups:
            group["lr"] = learning_rate(self.config, iteration)
        self._adam.step()
        self._average()
        return {"loss": losses} | terms

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

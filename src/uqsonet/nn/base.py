"""What every learned operator model shares: data-driven constants, loss, conditioning.

A new method is one file in this folder that calls `register`; configuration, training,
evaluation and tables take it from there.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from uqsonet.errors import ConfigError, ObservationError
from uqsonet.posterior import Posterior
from uqsonet.problems import get_problem
from uqsonet.sensors import Observations, observations_of
from uqsonet.simulation import Functions
from uqsonet_study.config import AttentionNetwork, KrigingNetwork

Batch = dict[str, Tensor]
"""Where the model reads sensors: `locations`, `values`, `mask` (none if nothing is padding) and, if
they stand on the problem's grid, `layout` (B, m), their points. Besides, the rows of `targets`."""
Shared = dict[str, tuple[Tensor, ...]]
"""What all samples of a batch share, by name."""
NetworkConfig = AttentionNetwork | KrigingNetwork


class OperatorModel(nn.Module, ABC):
    """An operator from observation sets of kappa to the law of u.

    Parameters
    ----------
    problem : str
        Name of the problem: grids, boundary factor, transform of the input.
    config : AttentionNetwork or KrigingNetwork
    noise_std : float
        Standard deviation of the observation noise it is trained for.
    """

    method: str
    reads_sensors: bool = True
    """Whether the training loss needs observation sets: then it also fixes their noise."""
    probabilistic: bool = True
    latent_dim: int = 0
    """Standard normals that one evaluation of the loss consumes per sample."""

    def __init__(self, problem: str, config: NetworkConfig, noise_std: float) -> None:
        super().__init__()
        self.problem = get_problem(problem)
        self.config = config
        self.noise_std = noise_std

    @abstractmethod
    def fit_constants(self, functions: Functions) -> None:
        """Set the buffers that come from training data in closed form (statistics, modes)."""

    @abstractmethod
    def targets(self, functions: Functions) -> dict[str, Tensor]:
        """Return per-sample tensors (N, ...) that the loss reads, gathered by the sampler."""

    @abstractmethod
    def loss(self, batch: Batch, normals: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of a batch and its terms, all scalars.

        Parameters
        ----------
        batch : dict
        normals : Tensor, shape (B, latent_dim)
            The randomness of the evaluation, drawn outside so that the loss is a pure function.
        """

    def shared_parts(self, batch: Batch) -> list[Callable[[], Shared]]:
        """Return what computes `shared`, in parts without a common parameter.

        They, and the ways back from them, may be worked on side by side.
        """
        return []

    def shared(self, batch: Batch) -> Shared:
        """Return what all samples of a batch share: functions of parameters alone, for one step."""
        return {name: value for part in self.shared_parts(batch) for name, value in part().items()}

    def block_loss(
        self, shared: Shared, batch: Batch, normals: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of some samples of a batch, and means over them that `terms` reads.

        Training adds the gradients of blocks that fit a cache; this and `shared_parts` are what it
        needs.
        """
        return self.loss(batch, normals)

    def terms(self, means: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the terms of the loss, all scalars, from the means of a whole batch."""
        return means

    def block_rows(self, batch: Batch) -> int:
        """Return into how many samples a batch is best cut on a CPU; by default it is not."""
        return len(next(iter(batch.values())))

    def forward(self, batch: Batch, normals: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return `loss`; torch.func calls modules through `forward`."""
        return self.loss(batch, normals)

    @abstractmethod
    def _posterior(self, observations: Observations, noise_std: float, single: bool) -> Posterior:
        """Condition on checked observations."""

    def condition(
        self,
        locations: object,
        values: object,
        mask: object = None,
        noise_std: float | None = None,
    ) -> Posterior:
        """Return the law of u given sensors.

        Parameters
        ----------
        locations : array, shape (m, d) or (B, m, d)
            Sensor locations, anywhere in the problem's domain.
        values : array, shape (m,) or (B, m)
            Observed values of kappa (not of its logarithm).
        mask : array of bool, shape of `values`, optional
            False marks padding.
        noise_std : float, optional
            Observation noise; by default that of training. Models whose networks were trained at
            one level refuse another.

        Raises
        ------
        ObservationError
            If a set is empty, shapes do not fit, a value is not finite or (where kappa is a
            coefficient) not positive, or a sensor stands outside the domain.
        """
        observations, single = observations_of(self.problem, locations, values, mask)
        level = self.noise_std if noise_std is None else noise_std
        if self.reads_sensors and level != self.noise_std:
            raise ObservationError(
                f"these networks were trained at noise_std = {self.noise_std}, asked for {level}; "
                "train at that level or use UQ-SONet's kriging architecture"
            )
        with torch.no_grad():
            return self._posterior(observations, level, single)


_REGISTRY: dict[tuple[str, str], type[OperatorModel]] = {}


Model = TypeVar("Model", bound=OperatorModel)


def register(architecture: str) -> Callable[[type[Model]], type[Model]]:
    """Class decorator: make a model known as (its `method`, `architecture`)."""

    def add(cls: type[Model]) -> type[Model]:
        _REGISTRY[cls.method, architecture] = cls
        return cls

    return add


def build_model(
    method: str, problem: str, config: NetworkConfig, noise_std: float
) -> OperatorModel:
    """Return an untrained model with freshly drawn networks.

    Raises
    ------
    ConfigError
        If no file of this folder offers the method in that architecture.
    """
    package = importlib.import_module("uqsonet.nn")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"uqsonet.nn.{module.name}")
    cls = _REGISTRY.get((method, config.architecture))
    if cls is None:
        known = ", ".join(f"{m} ({a})" for m, a in sorted(_REGISTRY))
        raise ConfigError(
            f"method {method!r} has no architecture {config.architecture!r}; there are {known}"
        )
    return cls(problem, config, noise_std)

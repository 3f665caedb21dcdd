"""What every learned operator model offers: constants from data, a loss, conditioning on sensors.

A new method is one file in `uqsonet.networks` that calls `register`, or one of another package that
has it as an entry point of the group ``uqsonet.networks``; configuration, training, evaluation and
tables take it from there.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from uqsonet.errors import ConfigError, ObservationError
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.gauss.posterior import Joint, Posterior
from uqsonet.operator.config import NetworkConfig
from uqsonet.sensors.sensors import Sensors, checked_sensors

if TYPE_CHECKING:  # whoever uses a trained model needs no data
    from uqsonet.laws.base import InputLaw
    from uqsonet.runs.functions import Functions

Batch = dict[str, Tensor]
"""Where the model reads sensors: `locations`, `values`, `mask` (none if nothing is padding) and, if
they stand on the input's grid, `index` (B, m), their points. Besides, the rows of `targets`."""
SAMPLES = 4096  # samples of an answer that has no closed form


def on_cpu(x: Tensor | torch.Generator) -> bool:
    """Return whether a tensor or a generator belongs to the CPU: a GPU is given other kernels."""
    return x.device.type == "cpu"


Readings = tuple[object, object, object, object]
"""Locations, values, mask and noise_std of sensors of one side."""


class Conditioned(ABC):
    """An operator that answers sensors of its input, and perhaps of its output."""

    fields: OperatorFields
    method: str
    reads_functionals: bool = False
    """Whether sensors may read weighted sums of values."""
    noise_std: float = 0.0
    """Noise of sensors of the input that state none."""
    law: Any = None
    """Law of the input (`uqsonet.laws`), where there is one."""

    closed: bool = False
    """Whether covariances are in closed form, and do not depend on what sensors read."""

    def output_error(self) -> float:
        """Return the least noise that readings of the output count with."""
        return 0.0

    def condition(
        self, locations: object, values: object, mask: object = None, noise_std: object = None
    ) -> Posterior:
        """Return the law of u given sensors of the input.

        Parameters
        ----------
        locations : array, shape (m, d) or (B, m, d)
            Sensor locations, anywhere in the domain.
        values : array, shape (m,) or (B, m)
            Observed values of the input (of k, not of its logarithm).
        mask : array of bool, shape of `values`, optional
            False marks padding.
        noise_std : float or array (shape of `values`), optional
            Observation noise; by default that of training. Models whose networks were trained at
            one level refuse another.

        Raises
        ------
        ObservationError
            If a set is empty, shapes do not fit, a value is not finite or (where the input is a
            coefficient) not positive, or a sensor stands outside the domain.
        """
        return self.condition_on(
            checked_sensors(self.fields.input, locations, values, mask, noise_std)
        ).output

    def condition_jointly(self, inputs: Readings, outputs: Readings, size: int = SAMPLES) -> Joint:
        """Return the law of input and output given sensors of both.

        Either may have no sensors: arrays of shape (B, 0, d) and (B, 0), or (0, d) and (0,). An
        answer that has no closed form is made of `size` samples.
        """
        seen = checked_sensors(self.fields.input, *inputs)
        read = checked_sensors(self.fields.output, *outputs)
        if len(seen) != len(read) or seen.single != read.single:
            raise ObservationError(
                f"sensors of the input come in {len(seen)} sets, those of the output in {len(read)}"
            )
        return self.condition_on(seen, read, size=size)

    def condition_on(
        self, seen: Sensors, read: Sensors | None = None, noise: Any = None, size: int = SAMPLES
    ) -> Joint:
        """Return the law of input and output given checked sensors of the one and the other.

        Here sensors of the output, and noise that is not Gaussian (one law for each set), are
        refused: it is for operators that know no law of their input.
        """
        if read is not None or noise is not None:
            raise ObservationError(
                f"{self.method} has no law of its input, so it takes no sensors of its output, no "
                "likelihood, and answers nothing about its input; the Karhunen-Loeve model does"
            )
        return Joint.exact(self.answer(seen), None, len(seen))

    def require_gaussian(self, noise: object) -> None:
        """Refuse noise that is not Gaussian: for operators that are answered in closed form."""
        if noise is not None:
            raise ObservationError(
                f"{self.method} takes no likelihood; the Karhunen-Loeve model does"
            )

    def answer(self, sensors: Sensors) -> Posterior:
        """Return the law of the output given checked sensors of the input."""
        raise NotImplementedError


class OperatorModel(nn.Module, Conditioned):
    """An operator from observation sets of the input to the law of the output.

    `noise_std` is the standard deviation of the observation noise that it is trained for.
    """

    method: str
    config_type: ClassVar[type[NetworkConfig]]
    """Class of the settings of its networks."""
    reads_sensors: bool = True
    """Whether the training loss needs observation sets: then it also fixes their noise."""
    probabilistic: bool = True
    latent_dim: int = 0
    """Standard normals that one evaluation of the loss consumes per sample."""
    group: int = 1
    """Training functions in a row that are read by the same sensors."""

    def __init__(self, fields: OperatorFields, config: NetworkConfig, noise_std: float) -> None:
        super().__init__()
        self.fields, self.config, self.noise_std = fields, config, noise_std

    def use_law(self, law: InputLaw) -> None:
        """Answer with another law of the input (`uqsonet.laws`); `ConfigError` without any."""
        raise ConfigError(f"{self.method} ({type(self).__name__}) has no law of the input")

    def require_trained_noise(self, sensors: Sensors) -> None:
        """Refuse what networks cannot take: a set without sensors, or noise of another level."""
        if not bool(sensors.mask.any(-1).all()):
            raise ObservationError("an observation set is empty: at least one sensor is needed")
        noise = sensors.noise(self.noise_std)[sensors.mask]
        if bool((other := noise != self.noise_std).any()):
            raise ObservationError(
                f"these networks were trained at noise_std = {self.noise_std}, asked for "
                f"{float(noise[other][0]):g}; train at that level or use UQ-SONet's "
                "Karhunen-Loeve model"
            )

    @abstractmethod
    def fit_constants(self, functions: Functions) -> None:
        """Set the buffers that come from training data in closed form (statistics, modes)."""

    @abstractmethod
    def targets(self, functions: Functions) -> dict[str, Tensor]:
        """Return per-sample tensors (N, ...) that the loss reads, gathered by the sampler."""

    @abstractmethod
    def loss(self, batch: Batch, normals: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of a batch and its terms, all scalars.

        Normals (B, latent_dim) are the randomness of the evaluation, drawn outside so that the loss
        is a pure function.
        """


REGISTRY: dict[tuple[str, str], type[OperatorModel]] = {}
"""Classes of models by method and architecture; `register` adds them."""

Model = TypeVar("Model", bound=OperatorModel)


def register(architecture: str) -> Callable[[type[Model]], type[Model]]:
    """Class decorator: make a model known as (its `method`, `architecture`)."""

    def add(cls: type[Model]) -> type[Model]:
        REGISTRY[cls.method, architecture] = cls
        return cls

    return add


def model_type(method: str, architecture: str) -> type[OperatorModel]:
    """Return the class of models of a method in an architecture; `ConfigError` if there is none."""
    key = method, architecture
    importlib.import_module("uqsonet.operator.model")
    if key not in REGISTRY:
        for found in pkgutil.iter_modules(importlib.import_module("uqsonet.networks").__path__):
            importlib.import_module(f"uqsonet.networks.{found.name}")
        for point in entry_points(group="uqsonet.networks"):
            point.load()
    if key not in REGISTRY:
        known = ", ".join(f"{m} ({a})" for m, a in sorted(REGISTRY))
        raise ConfigError(f"method {method!r} has no architecture {key[1]!r}; there are {known}")
    return REGISTRY[key]


def build_model(
    method: str, fields: OperatorFields, config: NetworkConfig, noise_std: float
) -> OperatorModel:
    """Return an untrained model with freshly drawn networks; errors are those of `model_type`."""
    kind = model_type(method, config.architecture)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)  # of the networks, whatever a caller's default is
    try:
        return kind(fields, config, noise_std)
    finally:
        torch.set_default_dtype(before)

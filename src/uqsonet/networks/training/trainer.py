"""The numbers of a training: initial weights, batches and steps.

Everything that decides what is learned is called from here; how a training is run, saved and shown
is in `uqsonet.networks.training.loop`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.gauss.seeds import torch_generator
from uqsonet.networks.training.gradients import BlockOptimiser
from uqsonet.networks.training.sampler import BatchSampler
from uqsonet.networks.training.settings import MethodConfig
from uqsonet.operator.base import OperatorModel
from uqsonet.operator.build import build_model
from uqsonet.runs.functions import Functions


@dataclass(frozen=True)
class Trial:
    """One training of a method: what it trains, and its random numbers.

    Attributes
    ----------
    method : str
    config : MethodConfig
        Networks and training.
    noise_std : float
        Standard deviation of the observation noise.
    number : int
        Number of the trial: each has a random stream of its own.
    seed : int
        Root of the seed tree.
    """

    method: str
    config: MethodConfig
    noise_std: float
    number: int
    seed: int

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
            torch.manual_seed(self.stream(data.fields, "initialisation").initial_seed())
            model = self.untrained(data.fields)
        with torch.no_grad():
            model.fit_constants(data)
        return model


class Trainer:
    """A trial on a device, ready to take steps.

    Parameters
    ----------
    trial : Trial
    data : Functions
        Training pairs.
    layouts : dict of int to Tensor (P, m), or None
        Sensor layouts by count, as indices of grid points, for models whose loss reads sensors.
    device : str
    """

    def __init__(
        self,
        trial: Trial,
        data: Functions,
        layouts: dict[int, Tensor] | None,
        device: str = "cpu",
    ) -> None:
        self.trial, settings = trial, trial.config.training
        self.model = trial.initialised(data)
        reads = self.model.reads_sensors
        precision: torch.dtype = getattr(torch, settings.precision)
        if precision == torch.float64:
            self.model.double()
        targets = {k: v.to(device, precision) for k, v in self.model.targets(data).items()}
        self.model.to(device)
        self.generator = trial.stream(data.fields, "order", device)
        self.optimiser = BlockOptimiser(self.model, settings)
        self._sampler = BatchSampler(
            data.fields,
            settings,
            data.kappa.to(device, precision) if reads else None,
            targets,
            layouts if reads else None,
            trial.noise_std,
            self.model.latent_dim,
            trial.seed,
            self.generator,
            self.model.group,
        )

    def step(self, iteration: int) -> dict[str, Tensor]:
        """Take one step; return the loss and its terms."""
        return self.optimiser.step(iteration, *self._sampler.draw())

    def constants(self) -> dict[str, Tensor]:
        """Return the buffers of the model that are stored, on the CPU."""
        parameters = dict(self.model.named_parameters())
        state = self.model.state_dict().items()
        return {name: value.cpu() for name, value in state if name not in parameters}

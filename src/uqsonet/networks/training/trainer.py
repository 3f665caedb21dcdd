"""The numbers of a training: initial weights, batches and steps of a stack of trials.

Everything that decides what is learned is called from here; how a training is run, saved and shown
is in `uqsonet.networks.training.loop`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.gauss.seeds import torch_generator
from uqsonet.networks.training.optimiser import StackedOptimiser
from uqsonet.networks.training.sampler import BatchSampler
from uqsonet.networks.training.settings import MethodConfig
from uqsonet.operator.base import OperatorModel
from uqsonet.operator.build import build_model
from uqsonet.runs.functions import Functions


@dataclass(frozen=True)
class TrialStack:
    """Trials that are trained together: the same networks and data, other random numbers.

    Attributes
    ----------
    method : str
    config : MethodConfig
        Networks and training.
    noise_std : float
        Of the observations.
    trials : list of int
        Numbers of the trials.
    seed : int
        Root of the seed tree.
    """

    method: str
    config: MethodConfig
    noise_std: float
    trials: list[int]
    seed: int

    def stream(
        self, fields: OperatorFields, trial: int, purpose: str, device: str = "cpu"
    ) -> torch.Generator:
        """Return a trial's generator for `initialisation` or `order`."""
        path = (fields.name, "training", self.method, purpose, trial)
        return torch_generator(self.seed, *path, device=device)

    def untrained(self, fields: OperatorFields) -> OperatorModel:
        """Return a model of this method with networks drawn from torch's global generator."""
        return build_model(self.method, fields, self.config.network, self.noise_std)


def initialise(stack: TrialStack, data: Functions) -> tuple[OperatorModel, list[dict[str, Tensor]]]:
    """Return a model with its data-driven constants and each trial's initial parameters."""
    initial = []
    model: OperatorModel | None = None
    for trial in stack.trials:
        with torch.random.fork_rng(devices=[]):
            # torch.nn draws initial weights from the global generator: fork it and seed it here.
            generator = stack.stream(data.fields, trial, "initialisation")
            torch.manual_seed(generator.initial_seed())
            model = stack.untrained(data.fields)
        initial.append({k: v.detach().clone() for k, v in model.named_parameters()})
    assert model is not None
    with torch.no_grad():
        model.fit_constants(data)
    return model, initial


class Trainer:
    """A stack of trials on a device, ready to take steps.

    Parameters
    ----------
    stack : TrialStack
    data : Functions
        Training pairs.
    layouts : dict of int to Tensor (P, m), or None
        Sensor layouts by count, as indices of grid points, for models whose loss reads sensors.
    device : str
    """

    def __init__(
        self,
        stack: TrialStack,
        data: Functions,
        layouts: dict[int, Tensor] | None,
        device: str = "cpu",
    ) -> None:
        self.model, initial = initialise(stack, data)
        reads = self.model.reads_sensors
        precision: torch.dtype = getattr(torch, stack.config.training.precision)
        if precision == torch.float64:
            self.model.double()
        targets = {k: v.to(device, precision) for k, v in self.model.targets(data).items()}
        self.generators = [stack.stream(data.fields, t, "order", device) for t in stack.trials]
        self.model.to(device)
        placed = [{k: v.to(device, precision) for k, v in one.items()} for one in initial]
        self.optimiser = StackedOptimiser(self.model, placed, stack.config.training)
        self._sampler = BatchSampler(
            data.fields,
            stack.config.training,
            data.kappa.to(device, precision) if reads else None,
            targets,
            layouts if reads else None,
            stack.noise_std,
            self.model.latent_dim,
            stack.seed,
            self.generators,
            self.model.group,
        )

    def step(self, iteration: int) -> dict[str, Tensor]:
        """Take one step; return the loss and its terms, each (T,)."""
        return self.optimiser.step(iteration, *self._sampler.draw())

    def constants(self) -> dict[str, Tensor]:
        """Return the buffers of the model that are stored, on the CPU."""
        parameters = dict(self.model.named_parameters())
        state = self.model.state_dict().items()
        return {name: value.cpu() for name, value in state if name not in parameters}

"""A trainer whose batches have sensors, and whose gradients are sums over blocks."""

from __future__ import annotations

from torch import Tensor

from uqsonet.networks.training.gradients import BlockOptimiser
from uqsonet.networks.training.sampler import BatchSampler
from uqsonet.operator.base import Batch
from uqsonet.operator.train import Trainer, Trial
from uqsonet.runs.functions import Functions


class SensorTrainer(Trainer):
    """A trial on a device, ready to take steps.

    Parameters
    ----------
    trial : Trial
    data : Functions
        Training pairs.
    layouts : dict of int to Tensor (P, m), or None
        Sensor layouts by count, as indices of grid points, for models whose loss reads sensors.
    device : str
        ``cpu`` or ``cuda``.

    Raises
    ------
    ConfigError
        If the device is missing.
    """

    optimiser_type = BlockOptimiser

    def __init__(
        self,
        trial: Trial,
        data: Functions,
        layouts: dict[int, Tensor] | None,
        device: str = "cpu",
    ) -> None:
        super().__init__(trial, data, device)
        reads = self.model.reads_sensors
        self._sampler = BatchSampler(
            data.fields,
            trial.config.training,
            data.kappa.to(device, self.precision) if reads else None,
            self.targets,
            layouts if reads else None,
            trial.noise_std,
            self.model.latent_dim,
            trial.seed,
            self.generator,
            self.model.group,
        )

    def draw(self) -> tuple[Batch, Tensor]:
        """Return a batch and standard normals (B, latent_dim)."""
        return self._sampler.draw()

"""Batches with sensors: which functions and sensors meet in an iteration (section 4).

Everything lives on the training device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.gauss.seeds import numpy_generator, torch_generator
from uqsonet.networks.settings import TrainingConfig
from uqsonet.networks.train import Trainer, Trial
from uqsonet.operator.base import Batch, on_cpu
from uqsonet.runs.functions import Functions
from uqsonet_study.gradients import ChunkOptimiser


class BatchSampler:
    """Draws batches.

    Parameters
    ----------
    config : TrainingConfig
        `batch_size` and `protocol`.
    kappa : Tensor, shape (N, n), or None
        Inputs that sensors read; not needed without layouts.
    targets : dict of Tensor, each (N, ...)
        Rows that the model's loss reads.
    layouts : dict of int to Tensor (P, m), or None
        Pregenerated layouts per sensor count; None for models that read no sensors in training.
    latent_dim : int
        Standard normals to draw per sample.
    generator : torch.Generator
        On the device of the data. States of all `generators` are the sampler's whole state: on a
        GPU the second one belongs to the host.
    group : int
        Functions in a row that are read by the same sensors (`redraw`): whole groups make a batch.
    """

    def __init__(
        self,
        fields: OperatorFields,
        config: TrainingConfig,
        kappa: Tensor | None,
        targets: dict[str, Tensor],
        layouts: dict[int, Tensor] | None,
        noise_std: float,
        latent_dim: int,
        seed: int,
        generator: torch.Generator,
        group: int = 1,
    ) -> None:
        self._group = group
        self._fields, self._config = fields, config
        self._targets, self._noise_std, self._latent_dim = targets, noise_std, latent_dim
        some = next(iter(targets.values()))
        self._size, self._generator, self._device = len(some), generator, some.device
        host = torch.Generator().manual_seed(generator.initial_seed())
        self.generators = [generator] if on_cpu(generator) else [generator, host]
        self._layouts = layouts
        self._batches: list[Batch] = []
        if layouts is not None:
            assert kappa is not None, "sensors need the functions that they read"
            self._kappa, self._points = kappa, fields.input.grid.points().to(kappa)
            self._sizes, widest = list(layouts), max(layouts)
            self._counts = torch.tensor(self._sizes, device=kappa.device)
            # (counts, P, widest): one table to gather from, padded with point 0
            pad = [torch.nn.functional.pad(v, (0, widest - v.shape[1])) for v in layouts.values()]
            self._pool = torch.stack(pad).to(kappa.device)
            if config.protocol == "fixed_batches":
                self._batches = self._fix_batches(seed)
                del self._kappa  # all functions: 3 GB in two dimensions

    def draw(self) -> tuple[Batch, Tensor]:
        """Return a batch and standard normals (B, latent_dim)."""
        if self._batches:
            batch = self._batches[self._number(len(self._batches))]
        else:
            rows = self._integers(self._size, self._config.batch_size)
            batch = self._gather(rows)
            if self._layouts is not None:
                batch |= self._sensors(rows)
        return batch, self._normals((self._config.batch_size, self._latent_dim))

    def _gather(self, rows: Tensor) -> Batch:
        return {key: value[rows] for key, value in self._targets.items()}

    def _number(self, high: int) -> int:
        """Draw a number on the host: on a GPU it would wait for all steps before."""
        return int(torch.randint(high, (1,), generator=self.generators[-1]))

    def _integers(self, high: int, size: int) -> Tensor:
        return torch.randint(high, (size,), generator=self._generator, device=self._device)

    def _normals(self, shape: Sequence[int]) -> Tensor:
        return torch.randn(shape, generator=self._generator, device=self._device)

    def _sensors(self, rows: Tensor) -> Batch:
        """Draw counts and layouts: one each for the batch (`batch_shared`) or for each group."""
        kinds, pool = self._pool.shape[:2]
        if self._config.protocol == "batch_shared":
            kind = self._number(kinds)
            layout = self._pool[kind, self._integers(pool, 1), : self._sizes[kind]]
            layout, counts = layout.expand(len(rows), -1), self._counts[kind].expand(len(rows))
        else:
            size = len(rows) // self._group
            drawn = self._integers(kinds, size)
            layout, counts = self._pool[drawn, self._integers(pool, size)], self._counts[drawn]
            layout, counts = (one.repeat_interleave(self._group, 0) for one in (layout, counts))
        noise = self._normals(layout.shape) * self._noise_std if self._noise_std else None
        return self._read(rows, layout, counts, noise)

    def _read(self, rows: Tensor, layout: Tensor, counts: Tensor, noise: Tensor | None) -> Batch:
        """Return sensors on functions of these numbers; only the values there are gathered."""
        values = self._fields.input.noisy(self._kappa[rows[:, None], layout], noise)
        mask = torch.arange(layout.shape[1], device=self._device) < counts[:, None]
        return {"locations": self._points[layout], "index": layout, "values": values, "mask": mask}

    def _fix_batches(self, seed: int) -> list[Batch]:
        """Cut the data once into batches of one sensor count each (section 4.1).

        Counts are stratified: every count gets a batch before any gets a second (ten free draws
        of ten counts would leave a third of them unseen). The same batches for every trial.
        """
        size = self._config.batch_size
        total = self._size // size
        generator = numpy_generator(seed, self._fields.name, "training", "batches")
        repeats = -(-total // len(self._counts))
        order = [k for _ in range(repeats) for k in generator.permutation(len(self._counts))]
        noise_generator = torch_generator(
            seed, self._fields.name, "training", "noise", device=self._device
        )
        batches = []
        for j in range(total):
            kind, rows = int(order[j]), torch.arange(j * size, (j + 1) * size, device=self._device)
            layout = self._pool[kind, rows % self._pool.shape[1], : self._sizes[kind]]
            noise = None
            if self._noise_std:
                noise = self._noise_std * torch.randn(
                    layout.shape, generator=noise_generator, device=self._device
                )
            counts = self._counts[kind].expand(size)
            batches.append(self._gather(rows) | self._read(rows, layout, counts, noise))
        return batches


class SensorTrainer(Trainer):
    """A trial on a device whose batches have sensors, and whose gradients are sums over chunks.

    Parameters
    ----------
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

    optimiser_type = ChunkOptimiser

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
        self.generators = self._sampler.generators

    def draw(self) -> tuple[Batch, Tensor]:
        """Return a batch and standard normals (B, latent_dim)."""
        return self._sampler.draw()

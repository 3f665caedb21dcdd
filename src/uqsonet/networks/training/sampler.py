"""Which functions and sensors meet in an iteration: the protocols of section 4.

Everything lives on the training device. Each trial draws from a generator of its own, so trials
stacked in one job see what they would see alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.gauss.seeds import numpy_generator, torch_generator
from uqsonet.networks.training.settings import TrainingConfig

Stack = dict[str, Tensor]
"""Tensors of shape (T, B, ...) for T stacked trials."""


class BatchSampler:
    """Draws stacked batches.

    Parameters
    ----------
    fields : OperatorFields
    config : TrainingConfig
        `batch_size` and `protocol`.
    kappa : Tensor, shape (N, n), or None
        Inputs that sensors read; not needed without layouts.
    targets : dict of Tensor, each (N, ...)
        Rows that the model's loss reads.
    layouts : dict of int to Tensor (P, m), or None
        Pregenerated layouts per sensor count; None for models that read no sensors in training.
    noise_std : float
    latent_dim : int
        Standard normals to draw per sample.
    seed : int
        Root of the seed tree.
    generators : list of torch.Generator
        One per trial, on the device of the data; their state is the sampler's whole state.
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
        generators: list[torch.Generator],
        group: int = 1,
    ) -> None:
        self._group = group
        self._fields, self._config = fields, config
        self._targets, self._noise_std, self._latent_dim = targets, noise_std, latent_dim
        some = next(iter(targets.values()))
        self._size, self._generators, self._device = len(some), generators, some.device
        self._layouts = layouts
        self._batches: list[Stack] = []
        if layouts is not None:
            assert kappa is not None, "sensors need the functions that they read"
            self._kappa, self._points = kappa, fields.input.grid.points().to(kappa)
            self._counts = torch.tensor(list(layouts), device=kappa.device)
            widest = int(self._counts.max())
            # (counts, P, widest): one table to gather from, padded with point 0
            pad = [torch.nn.functional.pad(v, (0, widest - v.shape[1])) for v in layouts.values()]
            self._pool = torch.stack(pad).to(kappa.device)
            if config.protocol == "fixed_batches":
                self._batches = self._fix_batches(seed)

    def draw(self) -> tuple[Stack, Tensor]:
        """Return a stacked batch and standard normals (T, B, latent_dim)."""
        drawn = [self._draw_one(generator) for generator in self._generators]
        widest = max(one["mask"].shape[1] for one, _ in drawn) if self._layouts else 0
        stacks = [_pad(one, widest) for one, _ in drawn]
        batch = {key: torch.stack([one[key] for one in stacks]) for key in stacks[0]}
        return batch, torch.stack([normals for _, normals in drawn])

    def _draw_one(self, generator: torch.Generator) -> tuple[Stack, Tensor]:
        if self._batches:
            choice = int(self._integers(len(self._batches), 1, generator))
            batch = self._batches[choice]
        else:
            rows = self._integers(self._size, self._config.batch_size, generator)
            batch = self._gather(rows)
            if self._layouts is not None:
                batch |= self._sensors(rows, generator)
        shape = (self._config.batch_size, self._latent_dim)
        return batch, torch.randn(shape, generator=generator, device=self._device)

    def _gather(self, rows: Tensor) -> Stack:
        return {key: value[rows] for key, value in self._targets.items()}

    def _integers(self, high: int, size: int, generator: torch.Generator) -> Tensor:
        return torch.randint(high, (size,), generator=generator, device=self._device)

    def _sensors(self, rows: Tensor, generator: torch.Generator) -> Stack:
        """Draw counts and layouts: one each for the batch (`batch_shared`) or for each group."""
        shared = self._config.protocol == "batch_shared"
        size = 1 if shared else len(rows) // self._group
        kind = self._integers(len(self._counts), size, generator)
        layout = self._pool[kind, self._integers(self._pool.shape[1], size, generator)]
        counts = self._counts[kind]
        if shared:
            layout, counts = layout[:, : int(counts)], counts.expand(len(rows))
            layout = layout.expand(len(rows), -1)
        elif self._group > 1:
            layout, counts = (one.repeat_interleave(self._group, 0) for one in (layout, counts))
        noise = None
        if self._noise_std:
            shape = layout.shape
            noise = torch.randn(shape, generator=generator, device=self._device) * self._noise_std
        return self._read(self._kappa[rows], layout, counts, noise)

    def _read(self, kappa: Tensor, layout: Tensor, counts: Tensor, noise: Tensor | None) -> Stack:
        locations, values = self._fields.input.read(kappa, layout, noise, self._points)
        mask = torch.arange(layout.shape[1], device=self._device) < counts[:, None]
        return {"locations": locations, "index": layout, "values": values, "mask": mask}

    def _fix_batches(self, seed: int) -> list[Stack]:
        """Cut the data once into batches of one sensor count each (section 4.1).

        Counts are stratified: every count gets a batch before any gets a second (ten free draws
        of ten counts would leave a third of them unseen). Same batches for every trial.
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
            m = int(self._counts[kind])
            layout = self._pool[kind, rows % self._pool.shape[1], :m]
            noise = None
            if self._noise_std:
                noise = self._noise_std * torch.randn(
                    layout.shape, generator=noise_generator, device=self._device
                )
            counts = self._counts[kind].expand(size)
            batches.append(
                self._gather(rows) | self._read(self._kappa[rows], layout, counts, noise)
            )
        return batches


def _pad(batch: Stack, width: int) -> Stack:
    """Widen the sensor axis, so that trials with different counts can be stacked."""
    extra = width - batch["mask"].shape[1] if "mask" in batch else 0
    if extra <= 0:
        return batch
    pad = torch.nn.functional.pad
    return batch | {
        "locations": pad(batch["locations"], (0, 0, 0, extra)),
        "index": pad(batch["index"], (0, extra)),
        "values": pad(batch["values"], (0, extra), value=1.0),
        "mask": pad(batch["mask"], (0, extra)),
    }

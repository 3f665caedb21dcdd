"""The Karhunen-Loeve model whose branch reads whole fields: architecture `karhunen_loeve_field`.

A perceptron on KL coefficients never sees what they leave out: of a medium that jumps, most of
what decides the output. Here the perceptron of `uqsonet.operator.model` gives way to a
neural operator on the grid of the input (Kovachki et al. 2023, JMLR 24, 89): layers that mix the
channels of each of the first cosines and sines of the box, beside a convolution with neighbours.
Fourier neural operators (Li et al. 2021) take periodic functions there; cosines and sines suit a
box. The grid's points are first gathered into patches, which makes a layer cheap, and the output is
written in the output's modes: trunk, laws of the input and residuals stay what they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from uqsonet.errors import ConfigError
from uqsonet.fields.cloud import Grid
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.gauss.given import Given, fixed
from uqsonet.operator.base import Batch, register
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet_study.settings import KarhunenLoeveFieldNetwork

if TYPE_CHECKING:
    from uqsonet.runs.functions import Functions

ROWS = 100  # fields that go through the network at once
LIFT = 2  # hidden channels of the first and the last map, relative to those of a layer


class SpectralLayer(nn.Module):
    """Channels of each cosine and sine mixed, a convolution beside it, and a way around both.

    Parameters
    ----------
    shape : tuple of int
        Patches along each axis.
    channels, frequencies : int
        Frequencies along each axis.
    """

    def __init__(self, shape: tuple[int, ...], channels: int, frequencies: int) -> None:
        super().__init__()
        self._axes, self._channels = len(shape), channels
        for axis, points in enumerate(shape):
            count = min(frequencies, points)
            x = (torch.arange(points) + 0.5)[:, None] * (math.pi / points)
            k = torch.arange(count)
            cosines = torch.cos(x * k) * torch.where(k > 0, math.sqrt(2 / points), points**-0.5)
            sines = torch.sin(x * (k + 1)) * math.sqrt(2 / points)
            self.register_buffer(f"cosines_{axis}", cosines, persistent=False)
            self.register_buffer(f"sines_{axis}", sines, persistent=False)
        modes = math.prod(min(frequencies, points) for points in shape)
        size = (2, modes, channels, channels)
        self.weight = nn.Parameter(torch.randn(size) / (2 * channels))
        convolution = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[self._axes - 1]
        self.near = convolution(channels, channels, 3, padding=1)

    def forward(self, h: Tensor) -> Tensor:
        """Map (B, channels, patches, ...) to the same shape."""
        total = self.near(h)
        for weight, kind in zip(self.weight, ("cosines", "sines"), strict=True):
            basis = [getattr(self, f"{kind}_{axis}") for axis in range(self._axes)]
            z = h
            for one in basis:  # each product takes the first axis and puts its own last
                z = z.movedim(2, -1) @ one
            shape = z.shape
            z = torch.bmm(z.flatten(2).permute(2, 0, 1), weight).permute(1, 2, 0).reshape(shape)
            for one in basis:
                z = z.movedim(2, -1) @ one.T
            total = total + z
        return h + nn.functional.gelu(total)


class FieldNetwork(nn.Module):
    """A neural operator to a field from others on its grid, zero at first.

    Parameters
    ----------
    shape : tuple of int
        Points of the grid along each axis.
    fields : int
        That are read.
    """

    places: Tensor

    def __init__(
        self, shape: tuple[int, ...], config: KarhunenLoeveFieldNetwork, fields: int = 1
    ) -> None:
        super().__init__()
        self._shape, self._patch, axes = shape, config.patch, len(shape)
        self._patches = tuple(-(-points // config.patch) for points in shape)
        size, channels = config.patch**axes, config.branch[0]
        x = [(torch.arange(points) + 0.5) / points for points in self._patches]
        grids = torch.meshgrid(*x, indexing="ij")
        places = [
            f(g) for g in grids for f in (lambda t: 2 * t - 1, lambda t: torch.sin(math.pi * t))
        ]
        self.register_buffer("places", torch.stack(places), persistent=False)
        wide = LIFT * channels
        self.lift = nn.Sequential(
            nn.Linear(fields * size + 2 * axes, wide), nn.GELU(), nn.Linear(wide, channels)
        )
        self.layers = nn.ModuleList(
            SpectralLayer(self._patches, channels, config.frequencies) for _ in config.branch
        )
        last = nn.Linear(wide, size)
        self.project = nn.Sequential(nn.Linear(channels, wide), nn.GELU(), last)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, field: Tensor) -> Tensor:
        """Map fields (B, n), or several at once (B, k, n), to fields (B, n)."""
        read = field.reshape(len(field), -1, *self._shape).unbind(1)
        places = self.places.expand(len(field), *self.places.shape)
        h = self.lift(torch.cat([*map(self._gathered, read), places], 1).movedim(1, -1)).movedim(
            -1, 1
        )
        for layer in self.layers:
            h = layer(h)
        return self._spread(self.project(h.movedim(1, -1)).movedim(-1, 1))

    def _gathered(self, field: Tensor) -> Tensor:
        """Return the points of each patch as channels (B, size, patches, ...)."""
        pairs = zip(self._patches, self._shape, strict=True)
        missing = [patches * self._patch - points for patches, points in pairs]
        if any(missing):  # the last points again
            ends = [side for left in reversed(missing) for side in (0, left)]
            field = nn.functional.pad(field[:, None], ends, mode="replicate")[:, 0]
        axes = range(len(self._shape))
        split = field.reshape(-1, *(part for n in self._patches for part in (n, self._patch)))
        order = [2 + 2 * axis for axis in axes] + [1 + 2 * axis for axis in axes]
        return split.permute(0, *order).flatten(1, len(self._shape))

    def _spread(self, h: Tensor) -> Tensor:
        """Return fields (B, n) for channels that are the points of patches."""
        count = len(self._shape)
        h = h.reshape(len(h), *[self._patch] * count, *self._patches)
        order = [place for axis in range(count) for place in (1 + count + axis, 1 + axis)]
        h = h.permute(0, *order).reshape(-1, *(n * self._patch for n in self._patches))
        for axis, points in enumerate(self._shape):
            h = h.narrow(1 + axis, 0, points)
        return h.flatten(1)


@register("karhunen_loeve_field")
class KarhunenLoeveFieldModel(KarhunenLoeveModel):
    """Fields from the law of the input, and a neural operator on them."""

    method = "uqsonet"
    config_type = KarhunenLoeveFieldNetwork
    latent_dim = 1  # what image of a pair training shows, where it has symmetries

    turned: Tensor

    def __init__(
        self, fields: OperatorFields, config: KarhunenLoeveFieldNetwork, noise_std: float
    ) -> None:
        self._own_config = config
        super().__init__(fields, config, noise_std)
        # If there is a linear part at all, it stays what least squares found: steps that suit the
        # network shake its 100,000 numbers.
        self.linear = None
        if config.symmetries == "square":
            self.register_buffer("turned", square_images(fields.input.grid), persistent=False)

    def _learned_part(self) -> nn.Module:
        """Return the neural operator in place of a perceptron."""
        grid, out = self.fields.input.grid, self.fields.training_grid()[0]
        if not isinstance(grid, Grid) or grid.points().shape != out.points().shape:
            raise ConfigError(
                "network.architecture: karhunen_loeve_field needs input and output on one grid; "
                f"found {grid.size} points of the input and {out.size} of the output in training"
            )
        return FieldNetwork(grid.shape, self._own_config)

    def of_fields(self, field: Tensor, a: Tensor | None = None) -> Tensor:
        """Map transformed inputs (B, n), and their coefficients, to coefficients (B, p)."""
        added = self._added(field)
        if not self.config.linear_skip:
            return added
        return self.straight_answers(self.bases.coefficients_of(field) if a is None else a) + added

    def _added(self, field: Tensor) -> Tensor:
        """Return the network's part (B, p) of the output's coefficients."""
        bases = self.bases
        scale = bases.input_factor.square().sum(1).mean().sqrt()
        x = (field - bases.input_mean.float()) / scale
        assert self.network is not None
        return self.network(x) @ bases.output_modes / len(bases.output_modes) ** 0.5

    def branch(self, a: Tensor) -> Tensor:
        """Map coefficients (..., r), without what they leave out, to those of the output."""
        field = torch.matmul(a, self.bases.input_factor.T) + self.bases.input_mean.float()
        rows = zip(field.flatten(0, -2).split(ROWS), a.flatten(0, -2).split(ROWS), strict=True)
        return torch.cat([self.of_fields(*row) for row in rows]).reshape(*a.shape[:-1], -1)

    def drawn(
        self, given: Given, size: int, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """Return samples of both parts of b, from whole fields of the law."""
        straight, added = [], []
        for field in self.fields_of(given, size, generator or fixed()):
            field = field.to(self.bases.linear_weight.device)
            added.append(torch.cat([self._added(some) for some in field.split(ROWS)]))
            a = self.bases.coefficients_of(field) if self.config.linear_skip else None
            straight.append(torch.zeros_like(added[-1]) if a is None else self.straight_answers(a))
        return torch.stack(straight), torch.stack(added)

    def fields_of(self, given: Given, size: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Yield transformed inputs (size, n) of each set: whole ones where the law has them."""
        if given.functions is not None:
            yield from given.functions(size, generator)
            return
        for a in given.sample(size, generator):
            yield torch.addmm(self.bases.input_mean.float(), a.float(), self.bases.input_factor.T)

    def answers_to(self, functions: Functions, a: Tensor) -> Tensor:
        """Return answers (N, p) to functions with coefficients a (N, r), from whole fields."""
        field = functions.transformed_inputs().whole().float()
        pairs = zip(field.split(ROWS), a.float().split(ROWS), strict=True)
        return torch.cat([self.of_fields(*pair) for pair in pairs])

    def targets(self, functions: Functions) -> dict[str, Tensor]:
        """Return transformed inputs `x` (N, n) and outputs `y` (N, n) less their mean."""
        x = functions.transformed_inputs().whole().float()
        return {"x": x, "y": functions.u_rows.whole().float()}

    def loss(self, batch: Batch, normals: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the error of a pair, in the mean, relative to the output's standard deviation."""
        x, y, bases = batch["x"], batch["y"], self.bases
        if self._own_config.symmetries == "square":
            # Which image of each pair: a uniform number from a normal one.
            uniform = torch.special.ndtr(normals[:, 0])
            image = self.turned[(uniform * len(self.turned)).long().clamp_max(7)]
            x, y = x.gather(1, image), y.gather(1, image)
        c = (y - bases.output_mean.float()) @ bases.output_modes / bases.output_scale
        error = (self.of_fields(x) - c).square().sum(-1).sqrt().mean()
        return error, {"reconstruction": error}


def square_images(grid: object) -> Tensor:
    """Return the eight symmetries of a square grid as permutations (8, n) of its points."""
    if not isinstance(grid, Grid) or grid.dim != 2 or grid.shape[0] != grid.shape[1]:
        raise ConfigError(
            "network.symmetries: square needs a grid of two axes with as many points; "
            f"found {getattr(grid, 'shape', 'points without a grid')}"
        )
    index = torch.arange(grid.size).reshape(grid.shape)
    turns = [index.rot90(quarter) for quarter in range(4)]
    return torch.stack([turn.flatten() for one in turns for turn in (one, one.T)])

"""Learned steps: from the coefficients of one instant to those of the next.

Coefficients are standardised modes of the fields over time, and then of what stays the same in a
run. A step is ``s + W x + b + network(x)`` with x the coefficients, each as large as it is in the
fields. The network is a kernel in closed form (`uqsonet.operator.kernel_branch`), or on a
periodic grid convolutions, which treat all points alike; a linear step has none.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from uqsonet.fields.grid import Grid
from uqsonet.gauss.gaussian import covariance_root
from uqsonet.gauss.seeds import torch_generator
from uqsonet.networks.settings import TrainingConfig
from uqsonet.networks.train import Optimiser
from uqsonet.operator.kernel_branch import (
    LENGTHS,
    LINEAR,
    MAX_CENTRES,
    KernelBranch,
    least_left_out,
    solved,
    spaced,
)

LOG = logging.getLogger("uqsonet")

TRAINING = TrainingConfig(iterations=2500, learning_rate=4e-3, schedule="cosine", gradient_clip=1.0)
BATCH_CELLS, MIN_BATCH = 4096, 4  # grid points in a batch of a convolution; pairs at least
CHANNELS, REACH, DEPTH = 32, 2, 4  # of a convolution: width, neighbours on each side, layers
WITH_ERRORS = 0.7
WELL = 0.003  # share of the fields that a kernel may leave over, and no network is trained
FIRST_PAIRS = 5000  # that tell how large a kernel's errors are
MIN_TRAINED_PAIRS = 1000  # fewer teach a network nothing that a kernel does not know
ROWS = 1 << 14  # coefficients that are led through a network at a time


class Pairs(NamedTuple):
    """Coefficients (P, r) of instants, and changing ones (P, q) a step later, float64."""

    before: Tensor
    after: Tensor


class Fields(NamedTuple):
    """The fields on a periodic grid: mean (cells, fields), and of modes (cells, fields, r)."""

    mean: Tensor
    factor: Tensor
    grid: Grid


class Step(nn.Module):
    """A step from coefficients (..., r) to the changing ones (..., q) among them, the first.

    Parameters
    ----------
    std : Tensor, shape (r,)
        Standard deviation of the fields along each mode.
    changing : int
        Number q of modes that change over time.
    network : nn.Module, optional
        What is added to the linear part, of inputs scaled by `scale`.
    """

    scale: Tensor
    weight: Tensor
    offset: Tensor
    size: Tensor

    def __init__(self, std: Tensor, changing: int, network: nn.Module | None = None) -> None:
        super().__init__()
        self.register_buffer("scale", (std / std.square().mean().sqrt()).double())
        self.register_buffer("weight", torch.zeros(changing, len(std), dtype=torch.float64))
        self.register_buffer("offset", torch.zeros(changing, dtype=torch.float64))
        # Of a change in one step, in the units of `scale`: outputs of a network are of order one.
        self.register_buffer("size", torch.ones((), dtype=torch.float64))
        self.network = network

    @property
    def changing(self) -> int:
        """Number of modes that change."""
        return len(self.offset)

    def scaled(self, s: Tensor) -> Tensor:
        """Return coefficients as networks see them, float32."""
        return (s * self.scale).float()

    @torch.no_grad()
    def forward(self, s: Tensor) -> Tensor:
        """Return the changing coefficients (..., q), float64, a step later."""
        q = self.changing
        found = s[..., :q] + s @ self.weight.T + self.offset
        if self.network is not None:
            rows = self.scaled(s).flatten(0, -2)
            added = torch.cat([self.network(some) for some in rows.split(ROWS)])
            found = found + added.double().view(found.shape) * self.size / self.scale[:q]
        return found

    @property
    def matrix(self) -> Tensor | None:
        """The linear map (r, r) of all coefficients, where there is no more than that."""
        if self.network is not None:
            return None
        found = torch.eye(len(self.scale), dtype=torch.float64)
        found[: self.changing] += self.weight
        return found

    def error(self, held: Pairs) -> float:
        """Return how large what it leaves over of pairs is, as a share of the fields."""
        scale = self.scale[: self.changing]
        left = (held.after - self(held.before)) * scale
        return float(left.norm() / (held.after * scale).norm())

    def loss(self, batch: dict[str, Tensor], normals: object) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean square error of a batch, in the units of `size`."""
        assert self.network is not None
        return (self.network(batch["x"]) - batch["y"]).square().mean(), {}


def linear(pairs: Pairs, std: Tensor, lengths: Sequence[float] = LINEAR) -> Step:
    """Return the ridge regression of changes on coefficients, or with a kernel of some length."""
    step = Step(std, pairs.after.shape[1])
    q, x = step.changing, pairs.before * step.scale
    change = (pairs.after - pairs.before[:, :q]) * step.scale[:q]
    centre, mean = x.mean(0), change.mean(0)
    x, c = x - centre, change - mean
    length, slope, ridge, _ = least_left_out(x, torch.ones_like(std), c, lengths, (1.0,))
    near = math.isfinite(length)
    unit = len(std) ** 0.5 * (length if near else 1)
    some = x[spaced(len(x), MAX_CENTRES if near else 0)] / unit
    weight, weights = solved(x / len(std) ** 0.5, x / unit, some, c, slope, ridge)
    weight = weight / len(std) ** 0.5
    step.weight.copy_(weight.T * step.scale / step.scale[:q, None])
    step.offset.copy_((mean - centre @ weight) / step.scale[:q])
    if near:
        kernel = KernelBranch(len(std), q, len(some))
        kernel.scale.fill_(1 / unit)
        kernel.centres.copy_(some + centre / unit)
        kernel.weights.copy_(weights)
        step.network = kernel
    return step.eval()


class Circular(nn.Module):
    """Convolutions around a periodic grid, from coefficients to coefficients through the fields.

    Parameters
    ----------
    mean : Tensor, shape (cells, fields)
        Of the fields on the grid. What differs from point to point in it would tell these apart.
    factor : Tensor, shape (cells, fields, r)
        Fields of unit coefficients, as a network sees them.
    changing : int
        Number q of outputs.
    grid : Grid
    """

    factor: Tensor
    mean: Tensor
    back: Tensor

    def __init__(self, mean: Tensor, factor: Tensor, changing: int, grid: Grid) -> None:
        super().__init__()
        _, fields, _ = factor.shape
        self.grid, self.shape = grid, list(grid.shape)
        flat = factor.flatten(0, 1)
        self.register_buffer("factor", flat.float())
        self.register_buffer("mean", mean.flatten().float())
        self.register_buffer("back", torch.linalg.pinv(flat[:, :changing].double()).float())
        kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[len(self.shape) - 1]

        def around(inputs: int) -> nn.Module:
            return kind(inputs, CHANNELS, 2 * REACH + 1, padding=REACH, padding_mode="circular")

        self.first, self.last = around(fields), kind(CHANNELS, fields, 1)
        self.middle = nn.ModuleList(around(CHANNELS) for _ in range(DEPTH))
        self.mixed = nn.ModuleList(kind(CHANNELS, CHANNELS, 1) for _ in range(DEPTH))

    def forward(self, x: Tensor) -> Tensor:
        """Map scaled coefficients (n, r) to scaled changes (n, q)."""
        fields = (self.mean + x @ self.factor.T).view(len(x), math.prod(self.shape), -1)
        h = self.first(fields.transpose(1, 2).reshape(len(x), -1, *self.shape))
        for layer, mixed in zip(self.middle, self.mixed, strict=True):
            h = h + mixed(nn.functional.silu(layer(h)))
        return self.last(h).flatten(2).transpose(1, 2).flatten(1) @ self.back.T


def left_over(step: Step, held: Pairs) -> Tensor:
    """Return a root (q, q) of the covariance of what a step leaves over of held-out pairs."""
    left = held.after - step(held.before)
    return covariance_root(left.T @ left / len(left))


def blurred(before: Tensor, root: Tensor, generator: torch.Generator) -> Tensor:
    """Return coefficients (P, r) with errors of a covariance in those that change."""
    z = torch.randn(len(before), len(root), generator=generator, dtype=torch.float64)
    return torch.cat([before[:, : len(root)] + z @ root.T, before[:, len(root) :]], 1)


def kernel(pairs: Pairs, held: Pairs, std: Tensor, seed: int) -> Step:
    """Return the regression with a kernel beside the linear part.

    Its inputs have errors as large as it makes itself. Without these it is exact along the runs,
    and sends away what is a little beside them.
    """
    some = torch.arange(0, len(pairs.before), max(1, len(pairs.before) // FIRST_PAIRS))
    first = linear(Pairs(*(one[some] for one in pairs)), std, LENGTHS)
    generator = torch_generator(seed, "dynamics", "errors")
    inputs = blurred(pairs.before, left_over(first, held), generator)
    return linear(pairs._replace(before=inputs), std, LENGTHS)


def circular(pairs: Pairs, held: Pairs, std: Tensor, seed: int, fields: Fields) -> Step:
    """Return a step with convolutions around a periodic grid, trained by Adam.

    From `WITH_ERRORS` of the iterations on inputs have errors as large as it makes itself then.
    """
    q = pairs.after.shape[1]
    step = Step(std, q)
    with torch.random.fork_rng(devices=[]):
        # torch.nn draws initial weights from the global generator: fork it and seed it here.
        start = torch_generator(seed, "dynamics", "initialisation").initial_seed()
        torch.default_generator.manual_seed(start)
        step.network = Circular(fields.mean, fields.factor / step.scale, q, fields.grid)
    change = (pairs.after - pairs.before[:, :q]) * step.scale[:q]
    step.size.copy_(change.square().mean().sqrt())
    optimiser: Any = Optimiser(step, TRAINING)  # type: ignore[arg-type]
    order = torch_generator(seed, "dynamics", "order")
    count, root = (
        max(MIN_BATCH, BATCH_CELLS // fields.grid.size),
        torch.zeros(q, q, dtype=torch.float64),
    )
    for iteration in range(TRAINING.iterations):
        if iteration == int(WITH_ERRORS * TRAINING.iterations):
            root = left_over(step, held)
        rows = torch.randint(len(change), (count,), generator=order)
        before, after = blurred(pairs.before[rows], root, order), pairs.after[rows]
        change = (after - before[:, :q]) * (step.scale[:q] / step.size)
        terms = optimiser.step(iteration, {"x": step.scaled(before), "y": change.float()}, None)
        if iteration % 500 == 0:
            LOG.info("convolution: %d of %d, loss %.3g", iteration, TRAINING.iterations,
                     float(terms["loss"]))  # fmt: skip
    return step.eval()


def candidates(
    pairs: Pairs, held: Pairs, std: Tensor, seed: int, fields: Fields | None
) -> Iterator[tuple[str, Step]]:
    """Yield the steps that can be learned from pairs, from simple to rich.

    A convolution needs the fields on a periodic grid.
    """
    yield "linear", linear(pairs, std)
    near = kernel(pairs, held, std, seed)
    yield "kernel", near
    enough = len(pairs.before) >= MIN_TRAINED_PAIRS and near.error(held) >= WELL
    if fields is not None and enough:
        yield "convolution", circular(pairs, held, std, seed, fields)

"""An input of two values from sensors of the output: what the linear answer gets wrong is learned.

The mean of a joint Gaussian law knows nothing of jumps, and nothing of an operator that is not
linear. A network (`uqsonet_study.field_operator.FieldNetwork`) reads that mean of the input,
that of the output and its second differences, and says for each point how probable the higher
value is. It is trained on the pairs themselves with sensors drawn for each, by the logarithmic
score, so what it says is a probability. Samples cut a Gaussian field at these probabilities; its
length is the one with the least energy score on held-out pairs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from uqsonet.errors import DataError
from uqsonet.fields.cloud import Grid
from uqsonet.gauss.metrics import energy_score
from uqsonet.gauss.seeds import torch_generator
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.runs.functions import Functions
from uqsonet_study.config import CorrectionConfig
from uqsonet_study.config.networks import KarhunenLoeveFieldNetwork
from uqsonet_study.field_operator import FieldNetwork, square_images

LOG = logging.getLogger("uqsonet")

TOGETHER = 16  # pairs of a batch, and sets that are conditioned at once
RATE, DECAY = 2e-3, 1e-4  # largest step, and weight decay
STEEP = 4.0
"""Log-odds at the start for a standard deviation of the linear mean's distance from the middle."""

FARTHEST = 4.0  # standard deviations beyond which second differences say no more
LENGTHS = (0.01, 0.02, 0.04, 0.08, 0.16)
"""Tried for the field that samples are cut from, relative to the box."""

TRIED, DRAWS = 24, 32  # held-out pairs and samples that lengths are compared on
LOGGED = 250  # iterations between log lines
Layout = Callable[[int], Tensor]  # maps the number of a pair to flat indices of its sensors


class LinearMeans:
    """Means of both fields given sensors of the output without noise, by a linear joint law.

    Parameters
    ----------
    model : KarhunenLoeveModel
        Without a network.
    grid : Grid
        Of both fields.
    """

    def __init__(self, model: KarhunenLoeveModel, grid: Grid) -> None:
        bases, points = model.bases, grid.points()
        (self._input, factor), (self._output, basis) = (
            bases.input_basis(points),
            bases.output_basis(points),
        )
        weight = bases.linear_weight.double()
        covariance = weight @ weight.T + model.residual_covariance.double()
        self._basis, self._covaried = basis, basis @ covariance
        self._crossed = weight.T
        self._bases = factor.float(), basis.float()
        self._remainder = float(model.output_remainder) ** 2
        self._covariance = covariance

    def __call__(self, index: Tensor, values: Tensor) -> Tensor:
        """Return means (B, 2, n), float32, for sensors at grid points (B, m)."""
        seen = self._basis[index]
        gram = self._covaried[index] @ seen.mT
        gram.diagonal(dim1=-2, dim2=-1).add_(self._remainder)
        left = (values.double() - self._output[index])[..., None]
        told = seen.mT @ torch.cholesky_solve(left, torch.linalg.cholesky(gram))
        coefficients = self._crossed @ told, self._covariance @ told
        offsets = self._input.float(), self._output.float()
        parts = zip(offsets, coefficients, self._bases, strict=True)
        return torch.stack([o + c[..., 0].float() @ basis.T for o, c, basis in parts], 1)


class Correction:
    """The law of an input of two values given sensors of the output, as answers.

    Parameters
    ----------
    values : tuple of float
        Of the input, ascending.
    examples : Tensor, shape (N, 2, n)
        Means that show how large they are.
    """

    length = LENGTHS[0]

    def __init__(
        self, means: LinearMeans, grid: Grid, values: tuple[float, float], examples: Tensor
    ) -> None:
        self._means, self._grid, self.values = means, grid, values
        middle = (values[0] + values[1]) / 2
        self._middle = torch.tensor([middle, float(examples[:, 1].mean()), 0.0])[:, None]
        sizes = (self._channels(examples) - self._middle).square().mean((0, 2))
        self._scale = sizes.sqrt()[:, None]
        self.network = FieldNetwork(grid.shape, KarhunenLoeveFieldNetwork(), fields=3)
        self.steep = nn.Parameter(torch.tensor(STEEP))

    def _channels(self, means: Tensor) -> Tensor:
        """Return means (B, 2, n) and second differences of the output's (B, 3, n)."""
        u = means[:, 1].reshape(-1, *self._grid.shape)
        return torch.cat([means, second_differences(u).flatten(1)[:, None]], 1)

    def log_odds(self, means: Tensor, image: Tensor | None = None) -> Tensor:
        """Return the log-odds (B, n) of the higher value, of an image (n,) of the points."""
        x = (self._channels(means) - self._middle) / self._scale
        x[:, 2].clamp_(-FARTHEST, FARTHEST)
        x = x if image is None else x[..., image]
        return self.steep * x[:, 0] + self.network(x)

    def probability(self, index: Tensor, values: Tensor) -> Tensor:
        """Return the probability (B, n) of the higher value given sensors of the output (B, m)."""
        with torch.no_grad():
            return torch.sigmoid(self.log_odds(self._means(index, values)))

    def __call__(self, where: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> Corrected:
        """Condition on sensors of the output without noise."""
        if len(where["input"]):
            raise DataError(f"found {len(where['input'])} sensors of the input; none is allowed")
        found = self.probability(where["output"][None], values["output"][None])[0].double()
        return Corrected(found, self._grid, self.values, self.length)


class Corrected:
    """A probability of the higher value at each point."""

    def __init__(
        self, probability: Tensor, grid: Grid, values: tuple[float, float], length: float
    ) -> None:
        self._probability, self._grid = probability, grid
        self._values, self._length = values, length

    def mean(self, side: str) -> Tensor:
        """Return the mean (n,) of the input."""
        low, high = self._values
        return low + (high - low) * self._probability

    def sample(self, side: str, size: int, seed: int) -> Tensor:
        """Return samples (size, n) of the input."""
        generator = torch.Generator().manual_seed(seed)
        g = torch.randn(size, *self._grid.shape, generator=generator, dtype=torch.float64)
        for points in self._grid.shape:  # each product takes the first axis and puts its own last
            x = torch.arange(points, dtype=torch.float64) / (points - 1)
            near = torch.exp(-(((x[:, None] - x) / self._length) ** 2))
            g = g.movedim(1, -1) @ (near / near.norm(dim=1, keepdim=True)).T
        higher = torch.special.ndtr(g.flatten(1)) < self._probability
        return self._values[0] + (self._values[1] - self._values[0]) * higher.double()


def second_differences(u: Tensor) -> Tensor:
    """Return the sum of second differences along the axes (B, ...); at ends those beside them."""
    total = torch.zeros_like(u)
    for axis in range(1, u.ndim):
        inner = u.diff(n=2, dim=axis)
        ends = inner.narrow(axis, 0, 1), inner.narrow(axis, inner.shape[axis] - 1, 1)
        total += torch.cat([ends[0], inner, ends[1]], axis)
    return total


def fit_correction(
    model: KarhunenLoeveModel,
    functions: Functions,
    held: Functions,
    layouts: tuple[Layout, Layout],
    config: CorrectionConfig,
    seed: int,
) -> Correction:
    """Train the correction of a linear law.

    Parameters
    ----------
    model : KarhunenLoeveModel
        The linear joint law of the training pairs.
    functions, held : Functions
        Training pairs, and others that the length of samples is chosen on.
    layouts : tuple of callable
        Sensors of each training pair, and of each held-out one.

    Raises
    ------
    DataError
        If inputs have other than two values.
    """
    grid = functions.fields.input.grid
    found = functions.kappa.unique().tolist()
    if len(found) != 2 or not isinstance(grid, Grid):
        raise DataError(f"training inputs have {len(found)} values; a correction is for two")
    start, name = time.monotonic(), functions.fields.name
    linear = LinearMeans(model, grid)
    means = torch.empty(functions.size, 2, grid.size)
    for rows in torch.arange(functions.size).split(TOGETHER):
        index = torch.stack([layouts[0](int(i)) for i in rows])
        means[rows] = linear(index, functions.u[rows].gather(1, index))
    LOG.info("means of %d pairs: %.0f s", functions.size, time.monotonic() - start)
    higher = functions.kappa > sum(found) / 2

    with torch.random.fork_rng([]):
        torch.manual_seed(torch_generator(seed, name, "correction", "weights").initial_seed())
        correction = Correction(linear, grid, (found[0], found[1]), means[: held.size])
    generator = torch_generator(seed, name, "correction", "batches")
    images = torch.arange(grid.size)[None]
    if config.symmetries == "square":
        images = square_images(grid)
    parameters = [*correction.network.parameters(), correction.steep]
    iterations = config.iterations
    steps = torch.optim.AdamW(parameters, lr=RATE, weight_decay=DECAY)
    rates = torch.optim.lr_scheduler.OneCycleLR(steps, RATE, iterations, pct_start=0.05)
    waiting, total = torch.empty(0, dtype=torch.long), 0.0
    for iteration in range(1, iterations + 1):
        if len(waiting) < TOGETHER:
            waiting = torch.randperm(functions.size, generator=generator)
        rows, waiting = waiting[:TOGETHER], waiting[TOGETHER:]
        image = images[int(torch.randint(len(images), (1,), generator=generator))]
        odds = correction.log_odds(means[rows], image)
        loss = nn.functional.binary_cross_entropy_with_logits(odds, higher[rows][:, image].float())
        steps.zero_grad()
        loss.backward()
        steps.step()
        rates.step()
        total += float(loss.detach())
        if iteration % LOGGED == 0 or iteration == iterations:
            every = (iteration - 1) % LOGGED + 1
            seconds = time.monotonic() - start
            LOG.info("iteration %d: score %.4f, %.0f s", iteration, total / every, seconds)
            total = 0.0
    correction.length = _best_length(correction, grid, held, layouts[1])
    return correction


def _best_length(correction: Correction, grid: Grid, held: Functions, layout: Layout) -> float:
    rows = range(min(TRIED, held.size))
    index = torch.stack([layout(i) for i in rows])
    known = correction.probability(index, held.u[: len(rows)].gather(1, index)).double()
    truths = held.kappa[: len(rows)].double()
    weights = torch.full((grid.size,), 1 / grid.size, dtype=torch.float64)
    scores = {}
    for length in LENGTHS:
        laws = (Corrected(one, grid, correction.values, length) for one in known)
        scores[length] = sum(
            energy_score(law.sample("input", DRAWS, 0), truth, weights)
            for law, truth in zip(laws, truths, strict=True)
        )
    LOG.info("energy scores by length: %s", scores)
    return min(scores, key=lambda length: scores[length])

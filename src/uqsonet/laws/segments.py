"""Classes that inputs do not name: points of a grid whose values belong to one smooth field.

Along each axis a hidden Markov model: a point has the class of the one before, and a value near the
value there; or, rarely, another class, and any value of that. A smooth field that crosses the range
of another class thus stays one piece, and a jump ends it. Parameters by expectation maximisation
(Baum et al. 1970) on some inputs; a point's class is the one of largest probability, over all axes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from uqsonet.fields.grid import Grid

SEEN = 300
"""Number of inputs that parameters are estimated from."""

STEPS = 12
"""Number of steps of expectation maximisation."""

LEAST = 1e-3
"""Minimum standard deviation of values and of their steps, as a share of that of all values."""

MIN_JUMPS = 0.1
"""Minimum number of changes of class in an input, on average over inputs."""

MIN_SHARE = 0.01
"""Minimum share of points of a class."""

JUMP = 3.0
"""Steps between classes are so many times as large as those within, in root mean square."""


def segmented(grid: Grid, fields: Tensor, count: int) -> Tensor | None:
    """Return numbers (N, n) of classes, by their mean; None where inputs have no such classes.

    Parameters
    ----------
    grid : Grid
    fields : Tensor, shape (N, n)
    count : int
    """
    shape = [-1, *grid.shape]
    some = fields[:SEEN].double().reshape(shape)
    level = torch.quantile(some.flatten()[:: max(1, some.numel() // 100_000)],
                           (torch.arange(count).double() + 0.5) / count)  # fmt: skip
    spread, steps = some.std(), [line.diff(dim=1).std() / 3 for line in _lines(some)]
    least = LEAST * float(spread)
    law = _Chain(level, spread.expand(count) / count, torch.stack(steps))
    for _ in range(STEPS):
        law = law.improved(some, least)
    if not bool((law.mean.diff() > 0).all()):
        return None
    labels = torch.cat([law.shares(part.double().reshape(shape)).argmax(-1).flatten(1)
                        for part in fields.split(SEEN)])  # fmt: skip
    steps = torch.cat([one.diff(dim=1).flatten() for one in _lines(fields.reshape(shape))])
    change = torch.cat([one.diff(dim=1).flatten() for one in _lines(labels.reshape(shape))]) != 0
    shares = labels.flatten().bincount(minlength=count) / labels.numel()
    if float(change.sum()) <= MIN_JUMPS * len(fields) or float(shares.amin()) <= MIN_SHARE:
        return None
    between, within = (float(steps[one].square().mean()) for one in (change, ~change))
    return labels if between > JUMP**2 * within else None


def _lines(fields: Tensor) -> list[Tensor]:
    """Return fields (N, k_1, ..., k_d) as lines (L, k) along each axis."""
    return [fields.movedim(axis, -1).flatten(0, -2) for axis in range(1, fields.dim())]


class _Chain:
    """The hidden Markov model.

    Parameters
    ----------
    mean, std : Tensor, shape (K,)
        Of the values of each class.
    steps : Tensor, shape (d,)
        Standard deviation of the steps within classes, along each axis. Classes share it: else they
        become places where one field is steep, and where it is flat.
    change : float
        Probability that the class changes from a point to the next.
    """

    def __init__(self, mean: Tensor, std: Tensor, steps: Tensor, change: float = 0.02) -> None:
        self.mean, self.std, self.steps, self.change = mean, std, steps, change

    def _log(self, off: Tensor, std: Tensor) -> Tensor:
        return -0.5 * (off / std).square() - std.log()

    def line(self, values: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        """Return log probabilities (L, k, K) of classes, and those (L, k - 1, K) of no change."""
        count = len(self.mean)
        anew = self._log(values[..., None] - self.mean, self.std)
        stay = self._log(values.diff(dim=1)[..., None], self.steps[axis]) + math.log1p(-self.change)
        jump = anew + math.log(self.change / max(count - 1, 1))
        same = torch.eye(count, dtype=torch.bool)

        def moves(t: int) -> Tensor:
            """Return log probabilities (L, from, to) of the step to point t."""
            return torch.where(same, stay[:, t - 1, None, :], jump[:, t, None, :])

        ahead = [anew[:, 0]]
        for t in range(1, values.shape[1]):
            ahead.append((ahead[-1][..., None] + moves(t)).logsumexp(1))
        back = [torch.zeros_like(anew[:, 0])]
        for t in range(values.shape[1] - 1, 0, -1):
            back.append((moves(t) + back[-1][:, None]).logsumexp(2))
        first, last = torch.stack(ahead, 1), torch.stack(back[::-1], 1)
        total = ahead[-1].logsumexp(1)[:, None, None]
        return first + last - total, first[:, :-1] + stay + last[:, 1:] - total

    def shares(self, fields: Tensor) -> Tensor:
        """Return log probabilities (N, k_1, ..., k_d, K) of classes, summed over the axes."""
        found = fields.new_zeros(*fields.shape, len(self.mean))
        for axis, line in enumerate(_lines(fields)):
            moved = found.movedim(axis + 1, -2)
            moved += self.line(line, axis)[0].view_as(moved)
        return found

    def improved(self, fields: Tensor, least: float) -> _Chain:
        """Return the model after a step of expectation maximisation."""
        weight = self.shares(fields).softmax(-1).flatten(0, -2)
        values = fields.flatten()[:, None]
        total = weight.sum(0).clamp_min(1e-9)
        mean = (weight * values).sum(0) / total
        std = ((weight * (values - mean).square()).sum(0) / total).sqrt().clamp_min(least)
        steps, stays, size = [], 0.0, 0
        for axis, line in enumerate(_lines(fields)):
            stay = self.line(line, axis)[1].exp().sum(-1)
            square = (stay * line.diff(dim=1).square()).sum()
            steps.append((square / stay.sum().clamp_min(1e-9)).sqrt().clamp_min(least))
            stays, size = stays + float(stay.sum()), size + stay.numel()
        return _Chain(mean, std, torch.stack(steps), min(max(1 - stays / size, 1e-6), 0.5))

"""Gaussian laws under inequalities: cut off outside a box, or outside one of several boxes.

**A box** (`truncated_samples`). Many independent chains, each of them started inside the box and
then moved by the exact Hamiltonian Monte Carlo of Pakman and Paninski (2014, J. Comput. Graph.
Stat. 23, 518): between walls a chain moves on the ellipse ``mean + a sin t + b cos t``, at a wall
its velocity is reflected in the metric of the covariance, so that no step has an error and no move
is refused. The mass is the inverse covariance: velocities are draws of the law itself, a reflection
at wall i is ``v -= 2 v_i / C_ii C[:, i]``, and singular covariances are allowed.

**Latent fields given what sensors say of them.** Latent values at the sensors come first, then the
rest of the field by kriging (`kriged`). They are between ends, or known (`between`). Where a
reading may come from one of several boxes (`among_choices`), particles draw box and values of one
sensor after another, given those before, and are resampled; Gibbs sampling then moves them.

Everything is float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from uqsonet.errors import ObservationError
from uqsonet.gauss.gaussian import covariance_root

TRAJECTORIES = 8
"""Number of moves of a chain: twice as many as chains in an orthant of 500 correlated coordinates
need to be within the noise of sampling (docs/data.md)."""

MAX_BOUNCES = 10_000  # reflections in one trajectory: beyond it, the law cannot reach the box

MIN_VARIANCE = 1e-9
"""Minimum conditional variance that is assumed for starts, relative to a coordinate's own variance.
The first trajectory moves starts back onto the support of a singular law."""

TAIL = 4.0  # starts farther from the mean than this, in std, use a formula for tails
MIN_LATENT_VARIANCE = 1e-6  # least variance of what a reading adds to the latent field
MOVES = 3  # trajectories of the latent values at the sensors
SWEEPS = 10  # sweeps of Gibbs sampling


def truncated_samples(
    mean: Float[Tensor, " n"], covariance: Float[Tensor, "n n"], lower: Float[Tensor, " n"],
    upper: Float[Tensor, " n"], size: int, generator: torch.Generator,
    trajectories: int = TRAJECTORIES,
) -> Float[Tensor, "{size} n"]:  # fmt: skip
    """Draw from ``N(mean, covariance)`` given that every coordinate lies within its bounds.

    Mean (n,), covariance (n, n), which may be singular, and bounds (n,), infinite where there is
    none, give samples (size, n), float64: the ends of as many independent chains, of so many moves
    of a quarter of the period. The generator is on the CPU.

    It raises `ObservationError` if a lower bound is not below its upper bound, or no sample can be
    within them.
    """
    n = len(mean)
    if n == 0:
        return mean.new_zeros(size, 0, dtype=torch.float64)
    mean, covariance = mean.double(), covariance.double()
    lower, upper = lower.double() - mean, upper.double() - mean
    still = covariance.diagonal() <= 0
    if bool(((lower >= upper) | (still & ((lower > 0) | (upper < 0)))).any()):
        raise ObservationError("no sample of a Gaussian law lies within these bounds")
    position = _starts(covariance, lower, upper, size, generator)
    walls, root = Walls(covariance, lower, upper), covariance_root(covariance)
    for _ in range(trajectories):
        normals = torch.randn(size, n, dtype=torch.float64, generator=generator)
        position = walls.move(position, normals @ root)
    return position + mean


def _starts(
    covariance: Tensor, lower: Tensor, upper: Tensor, size: int, generator: torch.Generator
) -> Tensor:
    """Return points (size, n) within bounds about a mean of zero, near the law.

    Coordinates are drawn one after another, each within its bounds given those before (the GHK
    simulator), the least determined first: none then moves another by more than it moved itself.
    Starts are kept in proportion to the probability that the bounds had on their way.
    """
    n = len(lower)
    scale = covariance.diagonal().sqrt()
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    left = covariance / scale[:, None] / scale
    lower, upper = lower / scale, upper / scale
    point = torch.zeros(size, n, dtype=torch.float64)
    weight = torch.zeros(size, dtype=torch.float64)
    fresh = torch.ones_like(lower, dtype=torch.bool)
    for step in range(n):
        variance, i = left.diagonal().masked_fill(~fresh, -1.0).max(0)
        variance, fresh[i] = variance.clamp_min(MIN_VARIANCE), False
        mean, std = point[:, i].clone(), variance.sqrt()
        uniform = torch.rand(size, dtype=torch.float64, generator=generator)
        ends = (lower[i] - mean) / std, (upper[i] - mean) / std
        score, probability = truncated_normal(*ends, uniform)
        value = torch.maximum(torch.minimum(mean + std * score, upper[i]), lower[i])
        slope = left[:, i] / variance * fresh
        point += (value - mean)[:, None] * slope
        point[:, i] = value
        left = left - left[:, i, None] * slope
        weight += probability
        if step % 8 == 7 or step == n - 1:
            point = point[resampled(weight[None], generator)[0]]
            weight = torch.zeros_like(weight)
    return point * scale


def truncated_normal(below: Tensor, above: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Return a standard normal between bounds for each uniform, and the log of their probability.

    Beyond `TAIL` the density is taken as ``x exp(-x^2 / 2)``, whose quantiles have a formula.
    """
    mirrored, low, high = _in_lower_half(below, above)
    log_low, log_high = torch.special.log_ndtr(low), torch.special.log_ndtr(high)
    inner = torch.special.ndtri(torch.lerp(log_low.exp(), log_high.exp(), uniform))
    span = 0.5 * (low**2 - high**2)
    outer = -torch.sqrt(high**2 - 2 * torch.log1p(uniform * torch.expm1(-span)))
    score = torch.where(high < -TAIL, outer, inner).clamp(low, high)
    return torch.where(mirrored, -score, score), _log_difference(log_low, log_high)


def log_share(below: Tensor, above: Tensor) -> Tensor:
    """Return the log of the probability that a standard normal lies between bounds."""
    _, low, high = _in_lower_half(below, above)
    return _log_difference(torch.special.log_ndtr(low), torch.special.log_ndtr(high))


def _in_lower_half(below: Tensor, above: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return which bounds are mirrored, and bounds of which the lower is the farther from zero."""
    mirrored = below + above > 0  # probabilities near one lose digits
    return mirrored, torch.where(mirrored, -above, below), torch.where(mirrored, -below, above)


def _log_difference(log_low: Tensor, log_high: Tensor) -> Tensor:
    share = log_high + torch.log1p(-torch.exp(log_low - log_high))
    return share.nan_to_num(nan=-math.inf)


def resampled(weight: Tensor, generator: torch.Generator) -> Tensor:
    """Return indices (B, size) in proportion to log weights (B, size), spread systematically."""
    size = weight.shape[1]
    total = torch.softmax(weight, 1).cumsum(1)
    offset = torch.rand(len(weight), 1, dtype=torch.float64, generator=generator)
    places = (torch.arange(size) + offset) / size
    return torch.searchsorted(total, places).clamp_max(size - 1)


class Walls:
    """The walls of chains and the motion between them, relative to the mean.

    Coordinates are turned over where needed, so that each wall but a second one is an upper bound;
    second walls are held only where some coordinate has two.
    """

    def __init__(self, covariance: Tensor, lower: Tensor, upper: Tensor) -> None:
        self._signs = torch.where(upper.isfinite(), 1.0, -1.0).double()  # (n,)
        heights = [torch.where(upper.isfinite(), upper, -lower)]
        both = upper.isfinite() & lower.isfinite()
        if bool(both.any()):
            heights.append(torch.where(both, -lower, math.inf))
        self._heights = torch.cat(heights)
        self._second, self._below_mean = len(heights) == 2, bool((self._heights < 0).any())
        variance = covariance.diagonal()
        turns = covariance / torch.where(variance > 0, variance, 1.0)[:, None]
        # Row i is the change of the velocity at a wall of coordinate i.
        self._turns = turns * self._signs[:, None] * self._signs

    def move(self, position: Tensor, velocity: Tensor) -> Tensor:
        """Return positions (K, n) a quarter of a period later."""
        position, velocity = position * self._signs, velocity * self._signs
        n, end = position.shape[1], position.clone()
        active = torch.arange(len(position))
        left = torch.full((len(position),), 0.5 * math.pi, dtype=torch.float64)
        for _ in range(MAX_BOUNCES):
            time, wall = self._first(position, velocity)
            done = time >= left
            step = torch.minimum(time, left)[:, None]
            cos, sin = torch.cos(step), torch.sin(step)
            position, velocity = position * cos + velocity * sin, velocity * cos - position * sin
            if bool(done.any()):
                end[active[done]] = position[done]
                go = ~done
                if not bool(go.any()):
                    return end * self._signs
                active, wall, left, step = active[go], wall[go], left[go], step[go]
                position, velocity = position[go], velocity[go]
            left = left - step[:, 0]
            each, i = torch.arange(len(active)), wall % n
            position[each, i] = torch.where(wall < n, 1.0, -1.0) * self._heights[wall]
            velocity -= 2 * velocity[each, i, None] * self._turns[i]
        raise ObservationError("no sample of a Gaussian law lies within these bounds")

    def _first(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return when each chain crosses its first wall, within half a period, and which that is.

        With ``s = tan(t / 2)`` the motion ``x cos t + v sin t`` meets the height h where
        ``(h + x) s^2 - 2 v s + (h - x) = 0``.
        """
        if self._second:
            x, v = torch.cat([x, -x], 1), torch.cat([v, -v], 1)
        below, above = self._heights - x, self._heights + x
        root = (v * v - below * above).sqrt_()  # not a number where the wall is out of reach
        half = torch.where(v > 0, below / (v + root), math.inf)
        if self._below_mean:  # away from such a wall and back onto it
            half = torch.where((v <= 0) & (above < 0), (v - root) / above, half)
        first, wall = half.nan_to_num_(nan=math.inf).min(1)
        return 2 * torch.atan(first.clamp_min(0)), wall


def kriged(
    xi: Tensor, rows: Tensor, values: Tensor, variance: Tensor, generator: torch.Generator
) -> Tensor:
    """Return normals xi (S, q), moved so that they agree with values (Matheron's rule).

    Sensors see ``rows xi`` (m, q); values are (S, m) or (m,), their noise has this variance (m,).
    """
    error = torch.randn(len(xi), len(rows), generator=generator, dtype=torch.float64)
    off = values - xi @ rows.T - error * variance.sqrt()
    return xi + torch.linalg.solve(rows @ rows.T + variance.diag(), off.T).T @ rows


def between(
    covariance: Tensor, lower: Tensor, upper: Tensor, size: int, generator: torch.Generator,
    law: str,
) -> Tensor:  # fmt: skip
    """Return latent values (size, m) of mean zero between ends (m,), or at them where both agree.

    If there are none, an `ObservationError` names the law.
    """
    exact = lower == upper
    seen, hidden = covariance[exact], covariance[~exact]
    weights = torch.linalg.solve(seen[:, exact], seen[:, ~exact]).T
    left = hidden[:, ~exact] - weights @ seen[:, ~exact]
    # Fields through these values are within the ends, too, though the nugget moves them.
    inset = ((upper - lower) / 4).clamp_max(3 * MIN_LATENT_VARIANCE**0.5)
    ends = (lower + inset)[~exact], (upper - inset)[~exact]
    values, mean = lower.repeat(size, 1), weights @ lower[exact]
    try:
        values[:, ~exact] = truncated_samples(mean, left, *ends, size, generator, MOVES)
    except ObservationError:
        raise ObservationError(
            "these readings contradict one another under the model's law of the input "
            f"({law!r}): no latent field has them; state their noise"
        ) from None
    return values


@dataclass(frozen=True)
class Choices:
    """The boxes of latent values that one reading may come from.

    Attributes
    ----------
    low, high : Tensor, shape (F, P)
    given : callable
        Maps mean (F, S, 1) and std (F, 1, 1) of the values before the reading to mean and std
        (F, S, P) given the reading, and its log density (S, P), in each box.
    """

    low: Tensor
    high: Tensor
    given: Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]

    def drawn(self, mean: Tensor, std: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return values (F, S) for means (F, S), and the log density (S,) of the reading."""
        mean, std, density = self.given(mean[..., None], std[:, None, None])
        shape = len(self.low), mean.shape[1], self.low.shape[1]
        ends = [((end[:, None] - mean) / std).expand(shape) for end in (self.low, self.high)]
        weight = density + log_share(*ends).sum(0)
        total = weight.logsumexp(1, keepdim=True)
        uniform = torch.rand(1 + shape[0], shape[1], 1, generator=generator, dtype=torch.float64)
        box = ((weight - total).exp().cumsum(1) < uniform[0]).sum(1, keepdim=True)
        box = box.clamp_max(shape[2] - 1).expand(shape[0], -1, 1)
        low, high, mean, std = (t.expand(shape).gather(2, box) for t in (*ends, mean, std))
        values = mean + std * truncated_normal(low, high, uniform[1:])[0]
        return values[..., 0], total[:, 0]


@dataclass(frozen=True)
class Told:
    """What m readings say of F latent fields at the sensors."""

    lower: Tensor  # (F, m), ends of latent values, which are known where both agree
    upper: Tensor  # (F, m)
    level: Tensor  # (m,), variance of a latent value that the field does not have
    choices: Sequence[Choices] | None  # in place of the ends, where these are in doubt
    tail: Tensor  # (1,), probability of readings as far from the law


def among_choices(
    covariances: Sequence[Tensor], choices: Sequence[Choices], size: int,
    generator: torch.Generator,
) -> Tensor:  # fmt: skip
    """Return latent values (F, size, m) at m sensors.

    Latent fields have mean zero, and the covariances (m, m) at the sensors.
    """
    covariance = torch.stack(list(covariances))
    root, precision = torch.linalg.cholesky(covariance), torch.linalg.inv(covariance)
    xi = torch.zeros(len(covariance), size, len(choices), dtype=torch.float64)
    for i, one in enumerate(choices):
        mean, std = (xi[..., :i] @ root[:, i, :i, None])[..., 0], root[:, i, i]
        value, weight = one.drawn(mean, std, generator)
        xi[..., i] = (value - mean) / std[:, None]
        xi = xi[:, resampled(weight[None], generator)[0]]
    values = xi @ root.transpose(1, 2)
    for _ in range(SWEEPS):
        for i, one in enumerate(choices):
            variance = precision[:, i, i].reciprocal()
            pull = (values @ precision[:, i, :, None])[..., 0]
            mean = values[..., i] - variance[:, None] * pull
            values[..., i], _ = one.drawn(mean, variance.sqrt(), generator)
    return values

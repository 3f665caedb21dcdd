"""Filter, smoother and forecast of coefficients, given what sensors read at each instant.

A step with a linear map and a Gaussian law of what it leaves over has a closed form: the Kalman
filter, and the smoother of Rauch, Tung and Striebel (AIAA J. 3, 1965). Elsewhere an ensemble stands
for the law. Readings change it by the symmetric square root (Hunt and others, Physica D 230, 2007),
and the last instants with it (Evensen and van Leeuwen, Mon. Weather Rev. 128, 2000). It starts from
pieces of the runs that agree with the first readings.

Letters: T instants, B cases with readings of their own, m sensors, N members, r coefficients, of
which the first q change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from uqsonet.dynamics.steps import ROWS, Step
from uqsonet.gauss.gaussian import condition, covariance_root
from uqsonet.gauss.given import Gaussian, Given, Sampled
from uqsonet.operator.kernel_branch import spaced

MEMBERS = 300  # of an ensemble
SMOOTHED = 20  # instants back that a reading changes
WINDOW = 4  # instants that a piece of a run is compared with readings on
MAX_PIECES = 10_000  # pieces of runs to start from, at most
MIN_EFFECTIVE = 60  # pieces that an ensemble starts from, effectively; and two for each mode
BEYOND = 1.5  # times the largest coefficients of the runs are the largest of members
NEAR = 5  # held-out pairs one of which shows what a step leaves over there
BLURRED = 0.2  # share of the variance of pieces that is drawn anew: members all differ
LOST = 16.0  # mean square of readings' distance, in its own unit, beyond which members start anew
MIN_BEGINNINGS = 50  # runs that begin together have a law of their own there if they are so many


class Readings(NamedTuple):
    """What sensors read: ``values = rows s + noise``, in the transformed fields less their mean."""

    rows: Tensor  # (T, B or 1, m, r)
    values: Tensor  # (T, B, m)
    noise: Tensor  # (T, B or 1, m), standard deviation
    mask: Tensor  # (T, B or 1, m)

    def at(self, t: int) -> Readings:
        """Return those of an instant, (B, m); without sensors that nobody reads there."""
        used = self.mask[t].any(0)
        return Readings(*(one[t][:, used] for one in self))

    def case(self, b: int) -> Readings:
        """Return those of one case at an instant."""
        return Readings(*(one[b % len(one)][None] for one in self))


@dataclass(frozen=True)
class Library:
    """Coefficients (S, r) of all snapshots of the runs: the law of an instant without readings.

    Of runs that calibrate bands they are encoded fields (S, n). Snapshots of a run follow each
    other; `run` and `instant` (S,) say which they are.
    """

    states: Tensor
    run: Tensor
    instant: Tensor

    @cached_property
    def ends(self) -> Tensor:
        """How far from zero (r,) members may be: somewhat beyond all snapshots."""
        return BEYOND * self.states.abs().amax(0).double()

    def starts(self, length: int) -> Tensor:
        """Return where pieces of so many instants that follow each other begin."""
        last = max(0, len(self.run) - length + 1)
        end = slice(length - 1, length - 1 + last)  # instants of a run rise
        ahead = self.instant[end] - self.instant[:last]
        return ((self.run[end] == self.run[:last]) & (ahead == length - 1)).nonzero()[:, 0]

    def pieces(self, length: int, first: int | None) -> Tensor:
        """Return coefficients (P, length, r) of pieces of runs.

        They begin at the instant `first` where so many runs begin there that these have a law of
        their own; else anywhere.
        """
        starts = self.starts(length)
        if first is not None:
            begin = torch.ones_like(self.run, dtype=torch.bool)
            begin[1:] = self.run[1:] != self.run[:-1]
            here = starts[begin[starts] & (self.instant[starts] == first)]
            starts = here if len(here) >= MIN_BEGINNINGS else starts
        starts = starts[spaced(len(starts), MAX_PIECES)]
        return self.states[starts[:, None] + torch.arange(length)].double()


@dataclass(frozen=True)
class LeftOver:
    """What a step leaves over: Gaussian, or as it was left over of held-out pairs nearby.

    `states` (V, r) are scaled as networks see them, what was left over (V, q) is of standardised
    coefficients; of no pairs it is Gaussian with the root (q, q) of the covariance.
    """

    root: Tensor
    states: Tensor
    left: Tensor

    def drawn(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Return draws (B, N, q) at scaled coefficients (B, N, r)."""
        shape = x.shape[:-1]
        if not len(self.states):
            z = torch.randn(*shape, len(self.root), generator=generator, dtype=torch.float64)
            return z @ self.root.T
        found = torch.empty(*shape, len(self.root), dtype=torch.float64).flatten(0, -2)
        signs = torch.randint(2, (len(found), 1), generator=generator) * 2.0 - 1
        count = min(NEAR, len(self.states))
        which = torch.randint(count, (len(found), 1), generator=generator)
        half = self.states.square().sum(1) / 2
        for rows in torch.arange(len(found)).split(ROWS):
            near = torch.topk(x.flatten(0, -2)[rows] @ self.states.T - half, count, 1).indices
            found[rows] = self.left[near.gather(1, which[rows])[:, 0]]
        return (found * signs).view(*shape, -1)


@dataclass(frozen=True)
class Model:
    """What filters know: a step, what it leaves over, and the runs."""

    step: Step
    left: LeftOver
    library: Library

    def advanced(self, s: Tensor, generator: torch.Generator) -> Tensor:
        """Return members (B, N, r) a step later, with what the step leaves over drawn anew."""
        error = self.left.drawn(self.step.scaled(s), generator)
        error = error - error.mean(-2, keepdim=True)
        q, ends = self.step.changing, self.library.ends
        ahead = (self.step(s) + error).clamp(-ends[:q], ends[:q])
        return torch.cat([ahead, s[..., q:]], -1)

    def followed(self, readings: Readings, first: int, seed: int) -> Path:
        """Return the law of each instant from number `first` on."""
        linear = self.step.matrix is not None
        path = GaussianPath(self, first) if linear else EnsemblePath(self, first, seed)
        return path.going_on(readings)


class Moments(NamedTuple):
    """Mean (B, r) and covariance (B, r, r) of an instant before its readings, and after them."""

    before: tuple[Tensor, Tensor]
    after: tuple[Tensor, Tensor]


class GaussianPath:
    """The laws of instants that follow each other: Kalman filter, Rauch-Tung-Striebel smoother."""

    effective = math.inf
    """Independent samples that the answer is worth."""

    def __init__(self, model: Model, first: int, found: Sequence[Moments] = ()) -> None:
        self.model, self.first, self._found = model, first, list(found)
        matrix = model.step.matrix
        assert matrix is not None
        q = model.step.changing
        self._matrix, self._offset = matrix, torch.zeros(len(matrix), dtype=torch.float64)
        self._offset[:q] = model.step.offset
        self._left = torch.zeros_like(matrix)
        self._left[:q, :q] = model.left.root @ model.left.root.T

    def __len__(self) -> int:
        return len(self._found)

    def going_on(self, readings: Readings) -> GaussianPath:
        """Return the path with more instants and their readings."""
        found, cases = list(self._found), readings.values.shape[1]
        for t in range(len(readings.values)):
            if found:
                mean, covariance = found[-1].after
                mean = mean @ self._matrix.T + self._offset
                covariance = self._matrix @ covariance @ self._matrix.T + self._left
            else:
                pieces = self.model.library.pieces(1, self.first)[:, 0]
                mean = pieces.mean(0).expand(cases, -1)
                covariance = torch.cov(pieces.T).expand(cases, -1, -1)
            found.append(Moments((mean, covariance), _analysed(mean, covariance, readings.at(t))))
        return GaussianPath(self.model, self.first, found)

    @cached_property
    def _gains(self) -> list[Tensor]:
        """The smoother's gains (B, r, r) from each instant but the last to the next."""
        found = []
        for one, after in zip(self._found[:-1], self._found[1:], strict=True):
            ahead = one.after[1] @ self._matrix.T
            found.append(ahead @ torch.linalg.pinv(after.before[1], rtol=1e-13, hermitian=True))
        return found

    def law(self, case: int, smooth: bool) -> Given:
        """Return the law of a case; samples of a smooth one are whole trajectories."""
        found = [(one.after[0][case], one.after[1][case]) for one in self._found]
        if not smooth:
            means, covariances = zip(*found, strict=True)
            return Gaussian(torch.stack(means), covariance_root(torch.stack(covariances)))
        gains, later = [one[case] for one in self._gains], found[-1]
        alone, wholes = [later[1]], [later]
        for t in range(len(gains) - 1, -1, -1):
            (mean, covariance), gain, before = found[t], gains[t], self._found[t + 1].before
            off, more = later[0] - before[0][case], later[1] - before[1][case]
            later = mean + gain @ off, covariance + gain @ more @ gain.mT
            left = covariance - gain @ self._matrix @ covariance
            alone, wholes = [(left + left.mT) / 2, *alone], [later, *wholes]
        means, covariances = (torch.stack(one) for one in zip(*wholes, strict=True))
        roots = covariance_root(covariances), covariance_root(torch.stack(alone))
        return _Backwards(means, roots[0], gains, roots[1])


class _Backwards(Gaussian):
    """A smoothed law whose samples are trajectories: the last instant, then each given the next.

    ``s_t = mean_t + G_t (s_{t+1} - mean_{t+1}) + root_t z``.
    """

    def __init__(self, mean: Tensor, root: Tensor, gains: list[Tensor], steps: Tensor) -> None:
        super().__init__(mean, root)
        self._gains, self._steps = gains, steps

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Return coefficients (T, size, r)."""
        count, r = self._mean.shape
        z = torch.randn(count, size, r, generator=generator, dtype=torch.float64)
        off = [z[-1] @ self._steps[-1].mT]
        for t in range(count - 2, -1, -1):
            off.append(off[-1] @ self._gains[t].mT + z[t] @ self._steps[t].mT)
        return self._mean[:, None] + torch.stack(off[::-1])


def _analysed(mean: Tensor, covariance: Tensor, read: Readings) -> tuple[Tensor, Tensor]:
    """Return mean and covariance given the readings of an instant."""
    if not read.mask.any():
        return mean, covariance
    root = covariance_root(covariance)
    off = read.values - (read.rows @ mean[..., None])[..., 0]
    shape = off.shape
    law = condition(read.rows @ root, off, read.noise.expand(shape), read.mask.expand(shape))
    mean = mean + (root @ law.mean[..., None])[..., 0]
    narrowed = law.spread(root)
    return mean, narrowed @ narrowed.mT


@dataclass(frozen=True)
class EnsemblePath:
    """Members (B, N, r) at each instant, given readings until then; and given all."""

    model: Model
    first: int
    seed: int
    filtered: list[Tensor] = field(default_factory=list)
    smoothed: list[Tensor] = field(default_factory=list)
    recent: tuple[Readings, ...] = ()
    """Readings of the last instants, in case the ensemble has lost the track."""

    effective = float(MEMBERS)

    def __len__(self) -> int:
        return len(self.filtered)

    def going_on(self, readings: Readings) -> EnsemblePath:
        """Return the path with more instants and their readings."""
        # Random numbers of an instant are its own, so that going on is as having known at once.
        filtered, smoothed, recent = list(self.filtered), list(self.smoothed), list(self.recent)
        for t in range(len(readings.values)):
            generator = torch.Generator().manual_seed(self.seed + len(filtered))
            read = readings.at(t)
            recent = [*recent, read][-WINDOW:]
            if len(filtered) < WINDOW:
                pieces = self.model.library.pieces(len(recent), self.first)
                if len(pieces):
                    smoothed = list(_begun(pieces, recent, generator))
                    filtered.append(smoothed[-1])
                    continue
            members = self.model.advanced(filtered[-1], generator)
            history = torch.stack([*smoothed[-SMOOTHED:], members])
            if read.mask.any():
                history = self._found_again(_changed(history, -1, read), members, recent,
                                            read, generator)  # fmt: skip
            smoothed[len(smoothed) + 1 - len(history) :] = history[:-1]
            filtered.append(history[-1])
            smoothed.append(history[-1])
        return EnsemblePath(self.model, self.first, self.seed, filtered, smoothed, tuple(recent))

    def _found_again(
        self, history: Tensor, before: Tensor, recent: Sequence[Readings], read: Readings,
        generator: torch.Generator,
    ) -> Tensor:  # fmt: skip
        """Return the history, of cases whose readings are impossible begun anew from pieces."""
        for b in (_distance(before, read) > LOST).nonzero()[:, 0].tolist():
            library = self.model.library  # runs may be shorter than what has been read
            length = next(k for k in range(len(recent), 0, -1) if len(library.starts(k)))
            cases = [one.case(b) for one in recent[-length:]]
            found = _begun(library.pieces(length, None), cases, generator)
            history[len(history) - len(found) :, b] = found[-len(history) :, 0]
        return history

    def law(self, case: int, smooth: bool) -> Given:
        """Return the law of a case; members of a smooth one are whole trajectories."""
        members = self.smoothed if smooth else self.filtered
        return Sampled(torch.stack([one[case] for one in members]))


Path = GaussianPath | EnsemblePath
"""The laws of coefficients at instants that follow each other, given readings until then.

Both go on with more readings, and state the law of all instants, as one of T sets: of a case, and
knowing later readings, too, where it is smooth.
"""


def _changed(history: Tensor, at: int, read: Readings) -> Tensor:
    """Return a history (L, B, N, r) given readings of one of its instants.

    Of N members every coefficient seems tied to what is read: of one that is not, the square root
    takes the share ``trace(reduction) / (N - 1)`` of the variance. Changes are smaller by the part
    that chance explains, and variances fall by the rest alone (Anderson, Physica D 230, 2007, on
    errors of sampled regressions). Without that, many readings narrow what they know nothing of:
    earlier instants, and what stays the same in a run.
    """
    mean = history.mean(2, keepdim=True)
    apart, size = history - mean, history.shape[2] - 1
    off = read.values - (read.rows @ mean[at].mT)[..., 0]
    rows, shape = read.rows @ apart[at].mT / size**0.5, off.shape
    law = condition(rows, off, read.noise.expand(shape), read.mask.expand(shape))
    seen, before = law.directions @ apart, apart.square().sum(-2, keepdim=True)
    before = before.clamp_min(1e-300)
    taken = (law.variance_reduction[..., None] * seen.square()).sum(-2, keepdim=True) / before
    chance = law.variance_reduction.sum(-1)[:, None, None] / size
    told = (taken - chance).clamp_min(0)
    share = told / taken.clamp_min(1e-300)
    mean = mean + share * (law.mean[:, None] @ apart) / size**0.5
    apart = apart - share * (law.directions.mT @ (seen * law.std_reduction[..., None]))
    left = apart.square().sum(-2, keepdim=True).clamp_min(1e-300)
    return mean + apart * ((1 - told) * before / left).sqrt().clamp_min(1)


def _distance(members: Tensor, read: Readings) -> Tensor:
    """Return the mean square (B,) of readings' distance, in units of what is expected of it."""
    mean = members.mean(1, keepdim=True)
    off = (read.values - (read.rows @ mean.mT)[..., 0]) * read.mask
    rows = read.rows @ (members - mean).mT / (members.shape[1] - 1) ** 0.5 * read.mask[..., None]
    whole = rows @ rows.mT + torch.diag_embed(read.noise.square() + (~read.mask).double())
    solved = torch.linalg.solve(whole, off[..., None])[..., 0]
    return (off * solved).sum(-1) / read.mask.sum(-1).clamp_min(1)


def _begun(pieces: Tensor, recent: Sequence[Readings], generator: torch.Generator) -> Tensor:
    """Return members (L, B, N, r) at the instants of readings, from pieces (P, L, r) of runs.

    Pieces are drawn with the likelihood of the readings to a power for which enough of them count,
    and blurred. The rest of the likelihood changes them as it does an ensemble.
    """
    distance = torch.zeros(len(recent[0].values), len(pieces), dtype=torch.float64)
    for k, read in enumerate(recent):
        off = read.values[..., None] - read.rows @ pieces[:, k].T
        square = (off / read.noise[..., None]).square() * read.mask[..., None]
        distance += square.sum(-2)
    share = _tempered(distance, max(MIN_EFFECTIVE, 2 * pieces.shape[2]))
    weights = torch.softmax(-distance * share[:, None] / 2, 1)
    drawn = torch.multinomial(weights, MEMBERS, replacement=True, generator=generator)
    members = pieces[drawn].permute(2, 0, 1, 3)
    mean = members.mean(2, keepdim=True)
    apart = members - mean
    z = torch.randn(MEMBERS, MEMBERS, generator=generator, dtype=torch.float64)
    blurred = (z - z.mean(0)) @ apart / (MEMBERS - 1) ** 0.5
    members = mean + (1 - BLURRED) ** 0.5 * apart + BLURRED**0.5 * blurred
    left = float((1 - share).max())
    for k, read in enumerate(recent):
        if left > 1e-6 and read.mask.any():
            noise = read.noise / (1 - share).clamp_min(1e-6).sqrt()[:, None]
            members = _changed(members, k, read._replace(noise=noise))
    return members


def _tempered(distance: Tensor, enough: int) -> Tensor:
    """Return the largest powers (B,) of likelihoods, up to 1, that leave enough pieces, or half."""
    enough = min(enough, distance.shape[1] // 2)
    low, high = torch.full((2, len(distance)), -30.0, dtype=torch.float64)
    high = torch.zeros_like(high)

    def effective(power: Tensor) -> Tensor:
        logs = torch.log_softmax(-distance * power.exp()[:, None] / 2, 1)
        return torch.exp(-torch.logsumexp(2 * logs, 1))

    whole = effective(high) >= enough
    for _ in range(40):
        middle = (low + high) / 2
        fits = effective(middle) >= enough
        low, high = torch.where(fits, middle, low), torch.where(fits, high, middle)
    return torch.where(whole, 1.0, low.exp())

"""Markov chains with the real solver: posteriors given sensors of the input and of the output.

Where u is not affine in the input, sensors of u leave no closed form. Sensors of the input do. So
that law comes first, and chains move in its coordinates ``z ~ N(0, I)``, where sensors of u are the
likelihood. They see few directions Q of z. A proposal draws everything else from its law, moves
along Q to the best fit by Gauss-Newton, and draws from the Laplace approximation there, with the
tails of a Student-t law. As no proposal depends on a state, thousands are made together, and the
chains then accept or refuse them (independence sampler: Tierney, Ann. Stat. 22, 1994). So curved
likelihoods are followed, which leave preconditioned Crank-Nicolson steps of a few percent, and
Gauss-Newton takes differences of solutions, no derivatives of the solver.

Chains start in other modes than the proposals' where there are any. The largest rank-normalised
split R-hat and the least bulk effective size over points of both fields decide whether they go on
(Vehtari et al., Bayesian Anal. 16, 2021).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from uqsonet.errors import ConfigError, ObservationError
from uqsonet.gauss.gaussian import GaussianLaw, condition
from uqsonet_study.problems import Problem
from uqsonet_study.reference.linear import GridSensors

CHAINS = 8

KEPT = 3  # states that are kept for each independent draw that is asked for
MOST_THINNED = 128  # chains that have not mixed when every so many-th state is kept are given up
WARM_UP = 5  # one part in so many of the first states is left out
R_HAT = 1.01  # largest R-hat of chains that count as mixed
WATCHED = 32  # points of each field at which R-hat and effective sizes are taken
ROWS = 256  # functions solved at a time: they stay in the processor's cache
PROPOSALS = 512  # proposals made together
DIFFERENCE = 1e-4  # step in z of a difference quotient. Its error costs acceptance and no accuracy.
SEEN = 0.3, 1.0, 3.0
"""Q holds the directions of z in which u's sensors see so many times their noise at least; which of
these levels serves best is tried."""

TRIED = 2048  # proposals that it is tried on
START = 64.0, 10
"""Noise of the first fit, relative to the sensors', halved at each of so many iterations."""

REFIT = 16.0, 4  # the same of a proposal's fit, quartered at each iteration
TAIL = 8  # degrees of freedom of a proposal along Q
WIDTH = 1.1  # its scale, relative to the Laplace approximation's


@dataclass(frozen=True)
class ChainSample:
    """Draws from a posterior by several chains."""

    # (chains, kept, n), pairs: both belong to one state
    kappa: Tensor
    u: Tensor
    r_hat: float  # largest rank-normalised split R-hat over points of kappa and u
    effective_size: float  # least bulk effective sample size over these points
    accepted: float  # share of the proposals
    solves: int  # solutions of the equation that all this took


def chain_posterior(
    problem: Problem,
    sensors_in: GridSensors,
    sensors_out: GridSensors,
    *,
    draws: int = 1000,
    generator: np.random.Generator,
) -> ChainSample:
    """Sample input and output of an operator given sensors of both.

    Chains that do not mix are returned with their R-hat and effective size.

    Parameters
    ----------
    problem : Problem
        With a Gaussian input and no unobserved one.
    sensors_in, sensors_out : GridSensors
        Of kappa and of u; either may be empty.
    draws : int
        Independent draws that the least known point has to be worth.

    Raises
    ------
    ConfigError
        If the problem has another input.
    ObservationError
        If a sensor of u has no noise, or a value of the input is impossible.
    """
    if problem.unobserved is not None:
        raise ConfigError(
            f"problem {problem.name}: chains need a solver without an unobserved input; "
            "estimators monte_carlo and reduced are possible"
        )
    law = _input_law(problem, sensors_in)
    seen = GridSensors(sensors_out.place, sensors_out.values.double(), sensors_out.noise)
    if bool((seen.noise <= 0).any()):
        raise ObservationError(
            f"sensors of {problem.output_symbol}: noise_std must be positive: chains cannot meet a "
            f"value exactly, found {float(seen.noise.min())}"
        )
    target = _Target(problem, law, seen, generator)
    moves = _Chains(target, generator)
    every, kept = 1, -(-KEPT * draws // CHAINS)
    moves.advance(max(1, kept // WARM_UP), 1)
    states = moves.advance(kept, every)
    while True:
        kappa, u = target.pairs(states.reshape(-1, law.mean.shape[-1]))
        kappa, u = (field.reshape(CHAINS, kept, -1) for field in (kappa, u))
        r_hat, size = _mixing(problem, kappa, u)
        every *= 2
        if (r_hat <= R_HAT and size >= draws) or every > MOST_THINNED:
            return ChainSample(kappa, u, r_hat, size, moves.accepted, target.solves)
        half = states[:, 1::2]
        states = torch.cat([half, moves.advance(kept - half.shape[1], every)], dim=1)


def _input_law(problem: Problem, sensors: GridSensors) -> GaussianLaw:
    """Return the law of the input's coordinates given its own sensors."""
    mean, rows = problem.gaussian_prior.rows(problem.grid.points()[sensors.place])
    residuals = problem.transform.forward(sensors.values.double()) - mean
    if not bool(residuals.isfinite().all()):
        raise ObservationError(
            f"sensors of {problem.input_symbol}: values must be positive, found "
            f"{float(sensors.values.min())}"
        )
    return condition(rows, residuals, sensors.noise, None)


class _Target:
    """The law of z, given u's sensors, and proposals for it; `directions` (r, q) are Q."""

    def __init__(
        self,
        problem: Problem,
        law: GaussianLaw,
        sensors: GridSensors,
        generator: np.random.Generator,
    ) -> None:
        self._problem, self._law, self._sensors = problem, law, sensors
        self.solves = 0
        self.rank = law.mean.shape[-1]
        centre, response = self._fitted()
        _, seen, right = torch.linalg.svd(response / sensors.noise[:, None], full_matrices=False)
        counts = sorted({int((seen > level).sum()) for level in SEEN})
        shares = []
        for count in counts:
            self._look_along(right[:count].T, centre)
            if len(counts) > 1:
                _, weights = self.propose(generator, TRIED)
                shares.append(torch.softmax(weights, 0).square().sum())
        if len(counts) > 1:  # the most even weights
            best = counts[int(torch.stack(shares).argmin())]
            self._look_along(right[:best].T, centre)

    def _look_along(self, directions: Tensor, centre: Tensor) -> None:
        self.directions, self._centre = directions.contiguous(), centre @ directions

    def pairs(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return kappa and u (B, n) of states (B, r)."""
        kappa, u = (torch.cat(part) for part in zip(*self._solved(z), strict=True))
        return kappa, u

    def _solved(self, z: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        self.solves += len(z)
        for block in z.split(min(ROWS, self._problem.block)):
            yield self._problem.pairs(self._law.coordinates(block))

    def _read(self, z: Tensor) -> Tensor:
        """Return what u's sensors would read without noise (B, m)."""
        return torch.cat([u[:, self._sensors.place] for _, u in self._solved(z)])

    def _responses(self, z: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
        """Return readings (B, m) at z and their difference quotients (B, m, q)."""
        moved = z[:, None] + DIFFERENCE * directions.T
        every = torch.cat([z[:, None], moved], dim=1).flatten(0, 1)
        read = self._read(every).unflatten(0, (len(z), -1))
        change = (read[:, 1:] - read[:, :1]) / DIFFERENCE
        return read[:, 0], change.transpose(1, 2)

    def _step(
        self, read: Tensor, response: Tensor, at: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the next (B, q) of Gauss-Newton, and the root (B, q, q) of its precision."""
        response = response / noise[:, None]
        wanted = (self._sensors.values - read) / noise + (response @ at[..., None])[..., 0]
        precision = response.transpose(1, 2) @ response + torch.eye(at.shape[-1]).double()
        root = torch.linalg.cholesky(precision)
        right = response.transpose(1, 2) @ wanted[..., None]
        return torch.cholesky_solve(right, root)[..., 0], root

    def _fitted(self) -> tuple[Tensor, Tensor]:
        """Return the best fit z (r,) and the response (m, r) there, of noise that falls."""
        z, noise = torch.zeros(1, self.rank, dtype=torch.float64), self._sensors.noise
        response, every = torch.zeros(len(noise), self.rank).double(), torch.eye(self.rank).double()
        factor, count = START
        for k in range(count if len(noise) else 0):
            read, response = self._responses(z, every)
            z, _ = self._step(read, response, z, noise * max(1.0, factor / 2**k))
            response = response[0]
        return z[0], response

    def _laplace(self, rest: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best fit along Q (B, q), given the rest of z, and its precision's root."""
        factor, count = REFIT
        root = torch.eye(at.shape[-1]).double().expand(len(rest), -1, -1)
        for k in range(count if self.directions.shape[1] else 0):
            z = rest + at @ self.directions.T
            read, response = self._responses(z, self.directions)
            noise = self._sensors.noise * max(1.0, factor / 4**k)
            at, root = self._step(read, response, at, noise)
        return at, root

    def _log_density(self, z: Tensor) -> Tensor:
        """Return the log density of the target along Q, given the rest, but for a constant."""
        misfit = (self._read(z) - self._sensors.values) / self._sensors.noise
        return -0.5 * (misfit.square().sum(1) + (z @ self.directions).square().sum(1))

    def propose(self, generator: np.random.Generator, size: int) -> tuple[Tensor, Tensor]:
        """Return proposals (size, r) and the logs of target over proposal density (size,)."""
        rest, normals = self._rest(generator, size)
        centre, root = self._laplace(rest, self._centre.expand(size, -1))
        scale = np.sqrt(TAIL / generator.chisquare(TAIL, size))
        steps = normals * torch.from_numpy(scale)[:, None]
        z = rest + (centre + _spread(root, steps)) @ self.directions.T
        return z, self._log_density(z) - _log_student(steps, root)

    def starts(self, generator: np.random.Generator, size: int) -> tuple[Tensor, Tensor]:
        """Return the same of starts whose fits begin at draws of z's prior, not near one fit.

        One in a mode that proposals do not reach has a huge ratio, and its chain stays there.
        """
        rest, normals = self._rest(generator, size)
        begin = torch.from_numpy(generator.standard_normal(normals.shape))
        centre, root = self._laplace(rest, begin)
        z = rest + (centre + _spread(root, normals)) @ self.directions.T
        centre, root = self._laplace(rest, self._centre.expand(size, -1))
        away = (z @ self.directions - centre)[..., None]
        steps = (root.transpose(1, 2) @ away)[..., 0] / WIDTH
        return z, self._log_density(z) - _log_student(steps, root)

    def _rest(self, generator: np.random.Generator, size: int) -> tuple[Tensor, Tensor]:
        """Draw what u's sensors do not see of z (size, r), and normals for Q (size, q)."""
        z = torch.from_numpy(generator.standard_normal((size, self.rank)))
        along = z @ self.directions
        normals = torch.from_numpy(generator.standard_normal(along.shape))
        return z - along @ self.directions.T, normals


def _spread(root: Tensor, steps: Tensor) -> Tensor:
    """Return steps (B, q) in units of the scale ``WIDTH root^-T``."""
    found = torch.linalg.solve_triangular(root.transpose(1, 2), steps[..., None], upper=True)
    return WIDTH * found[..., 0]


def _log_student(steps: Tensor, root: Tensor) -> Tensor:
    """Return the log density (B,) of a Student-t law but for a constant."""
    size = root.diagonal(dim1=1, dim2=2).log().sum(1)
    return size - 0.5 * (TAIL + steps.shape[1]) * torch.log1p(steps.square().sum(1) / TAIL)


class _Chains:
    """Chains side by side."""

    def __init__(self, target: _Target, generator: np.random.Generator) -> None:
        self._target, self._generator = target, generator
        self._state, self._weight = target.starts(generator, CHAINS)
        self.steps = self._taken = 0

    @property
    def accepted(self) -> float:
        """Share of proposals that were accepted."""
        return self._taken / max(1, self.steps * CHAINS)

    def advance(self, kept: int, every: int) -> Tensor:
        """Go on for ``kept * every`` steps; returns every so many-th state (chains, kept, r)."""
        found = []
        most = max(1, PROPOSALS // CHAINS)
        for start in range(0, kept * every, most):
            size = min(most, kept * every - start)
            proposed, weights = self._target.propose(self._generator, size * CHAINS)
            proposed = proposed.unflatten(0, (size, CHAINS))
            weights = weights.unflatten(0, (size, CHAINS))
            draws = np.log1p(-self._generator.random((size, CHAINS)))
            levels = torch.from_numpy(draws)
            for t in range(size):
                taken = levels[t] < weights[t] - self._weight
                self._state = torch.where(taken[:, None], proposed[t], self._state)
                self._weight = torch.where(taken, weights[t], self._weight)
                self._taken += int(taken.sum())
                if (start + t) % every == every - 1:
                    found.append(self._state)
            self.steps += size
        return torch.stack(found, dim=1)


def _mixing(problem: Problem, kappa: Tensor, u: Tensor) -> tuple[float, float]:
    """Return the largest R-hat and the least effective size over points of both fields."""
    points = torch.linspace(0, problem.grid.size - 1, WATCHED).round().long().unique()
    watched = torch.cat([problem.transform.forward(kappa)[..., points], u[..., points]], dim=-1)
    # Where a sensor says it all, or on a boundary, there is nothing to mix.
    spread = watched.flatten(0, 1).std(0)
    watched = watched[..., spread > 1e-9 * watched.abs().amax((0, 1)).clamp_min(1e-300)]
    return float(r_hat(watched).max()), float(effective_size(watched).min())


def r_hat(draws: Tensor) -> Tensor:
    """Return rank-normalised split R-hat of each quantity, of its bulk or tails, the larger.

    Parameters
    ----------
    draws : Tensor, shape (chains, N, k)
        Four draws a chain at least.

    Returns
    -------
    Tensor, shape (k,)
        Equations 3, 4 and 14 of Vehtari et al. (Bayesian Anal. 16, 2021).
    """
    halves = _split(draws)
    folded = (halves - halves.flatten(0, 1).quantile(0.5, dim=0)).abs()
    found = []
    for some in (halves, folded):
        z = _rank_normalised(some)
        between, within = z.mean(1).var(0), z.var(1).mean(0)
        found.append(((z.shape[1] - 1) / z.shape[1] + between / within).sqrt())
    return torch.maximum(*found)


def effective_size(draws: Tensor) -> Tensor:
    """Return the bulk effective sample size of each quantity.

    Parameters
    ----------
    draws : Tensor, shape (chains, N, k)
        Four draws a chain at least.

    Returns
    -------
    Tensor, shape (k,)
        Of rank-normalised split chains, with Geyer's initial monotone sequence (sections 3.2 and
        4.3 of Vehtari et al.), at most the number of draws times its logarithm to base 10.
    """
    z = _rank_normalised(_split(draws))
    chains, size, _ = z.shape
    centred = z - z.mean(1, keepdim=True)
    spectrum = torch.fft.rfft(centred, 2 * size, dim=1)
    covariance = torch.fft.irfft(spectrum.abs().square(), 2 * size, dim=1)[:, :size] / size
    within = centred.square().sum(1).mean(0) / (size - 1)
    total = within * (size - 1) / size + z.mean(1).var(0)
    correlation = 1 - (within - covariance.mean(0) * size / (size - 1)) / total
    correlation[0] = 1.0
    even = correlation[: size - size % 2]
    pairs = even[0::2] + even[1::2]
    positive = (pairs > 0).cumprod(0)
    time = 2 * (pairs.cummin(0).values * positive).sum(0) - 1
    count = chains * size
    return count / time.clamp_min(1 / math.log10(count))


def _split(draws: Tensor) -> Tensor:
    """Return the halves of chains (chains, N, k) as chains of their own (2 chains, N // 2, k)."""
    half = draws.shape[1] // 2
    return torch.cat([draws[:, :half], draws[:, -half:]])


def _rank_normalised(draws: Tensor) -> Tensor:
    """Return normal scores of ranks over all chains; equal values share their mean rank."""
    columns = draws.flatten(0, 1)
    ranks = torch.from_numpy(rankdata(columns.numpy(), axis=0))
    return torch.special.ndtri((ranks - 0.375) / (len(columns) + 0.25)).reshape(draws.shape)

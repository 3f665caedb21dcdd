"""Reference moments from conditioned samples: plain, with a control variate, Rao-Blackwellised.

Plain Monte Carlo is the paper's way (appendix A.2). Two exact devices take most of its noise:

- control variate: a quadratic map of the input's coordinates, fitted once on prior samples, whose
  moments under every posterior are known in closed form; only what it leaves is sampled. Whatever
  the map is, an estimate with it stays unbiased. It is ``mean + B C' f(xi)`` with output modes B
  and the features f: the leading coordinates themselves, and all products of two of the few
  directions in which u varies most. Under a Gaussian law of the coordinates (every posterior is
  one) mean and covariance of f follow from Isserlis' theorem;
- Rao-Blackwell: where u is affine in a second, unobserved Gaussian input, its law given the first
  is Gaussian, so mean and variance over the second are taken in closed form.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import ConfigError
from uqsonet.gauss.blocks import RunningMoments, least_squares
from uqsonet.gauss.gaussian import GaussianLaw
from uqsonet_study.priors.gaussian_process import GaussianField
from uqsonet_study.priors.law import Law
from uqsonet_study.problems import Problem
from uqsonet_study.reference.affine import Directions
from uqsonet_study.reference.moments import Moments, SampleMoments, gaussian_moments

COORDINATES = 200  # coordinates of the input that the map reads: the leading ones
DIRECTIONS = 30  # directions whose products are features: 465 of them
OUTPUT_MODES = 64  # principal components of u that are predicted; what they leave out is sampled
PER_FEATURE = 8  # fewer samples for each feature would fit noise: then there are fewer features
MODE_SAMPLES = 500  # samples that these components come from, or one block if that has more


class Features:
    """Coordinates, and products of some linear combinations of them.

    Parameters
    ----------
    index : Tensor of int, shape (c,)
        The coordinates read.
    directions : Tensor, shape (c, q)
        Orthonormal columns.
    """

    def __init__(self, index: Tensor, directions: Tensor) -> None:
        self._index, self._directions = index, directions
        self._pairs = torch.triu_indices(directions.shape[1], directions.shape[1])

    def of(self, xi: Tensor) -> Tensor:
        """Return the features (B, c + q (q + 1) / 2) of coordinates (B, r)."""
        some = xi[:, self._index]
        along = some @ self._directions
        first, second = self._pairs
        return torch.cat([some, along[:, first] * along[:, second]], dim=1)

    def moments(self, law: GaussianLaw) -> tuple[Tensor, Tensor]:
        """Return their mean (f,) and covariance (f, f) under a law of the coordinates."""
        # The covariance of some coordinates is that of all, restricted.
        seen, mean = law.directions[:, self._index], law.mean[self._index]
        taken = law.variance_reduction[:, None] * seen
        covariance = torch.eye(len(mean), dtype=mean.dtype) - seen.T @ taken
        with_along = covariance @ self._directions
        m, c = mean @ self._directions, self._directions.T @ with_along
        i, j = self._pairs
        products = m[i] * m[j] + c[i, j]
        cross = with_along[:, i] * m[j] + with_along[:, j] * m[i]
        square = m[:, None] * m
        four = sum(
            c[p][:, r] * (square[s][:, t] + 0.5 * c[s][:, t])
            for p, s in ((i, j), (j, i))
            for r, t in ((i, j), (j, i))
        )
        assert isinstance(four, Tensor)
        whole = torch.cat([torch.cat([covariance, cross], 1), torch.cat([cross.T, four], 1)])
        return torch.cat([mean, products]), whole


class Control:
    """The map, fitted to samples by least squares.

    Parameters
    ----------
    samples : iterable of (Tensor, Tensor)
        Blocks of coordinates (B, r) and functions u (B, n); the first `MODE_SAMPLES` of them give
        the output modes.
    index : Tensor of int, shape (c,)
        The coordinates read, by falling variance.
    vectors : Tensor, shape (n, k)
        Test vectors of the modes whose moments are wanted.
    """

    def __init__(
        self, samples: Iterable[tuple[Tensor, Tensor]], index: Tensor, vectors: Tensor
    ) -> None:
        blocks, first = iter(samples), []
        while sum(len(xi) for xi, _ in first) < MODE_SAMPLES and (block := next(blocks, None)):
            first.append(block)
        u = torch.cat([functions for _, functions in first])
        self._vectors, self._mean = vectors, u.mean(0)
        right = torch.linalg.svd(u - self._mean, full_matrices=False)[2]
        self._modes = right[:OUTPUT_MODES].T.contiguous()
        kept = [(xi, self._coordinates(functions)) for xi, functions in chain(first, blocks)]
        inputs, outputs = (torch.cat(parts) for parts in zip(*kept, strict=True))
        most = max(1, len(inputs) // PER_FEATURE)
        index = index[: max(1, most // 2)]
        weight = least_squares([(_with_one(inputs[:, index]), outputs)])[1:]
        # Combinations of coordinates in the order in which they move u.
        left = torch.linalg.svd(weight, full_matrices=False)[0]
        products = [q * (q + 1) // 2 for q in range(DIRECTIONS + 1)]
        count = bisect_right(products, most - len(index)) - 1
        self._features = Features(index, left[:, :count])
        features = _with_one(self._features.of(inputs))
        self._offset, *weights = least_squares([(features, outputs)])
        self._weights = torch.stack(weights)

    def _coordinates(self, u: Tensor) -> Tensor:
        return (u - self._mean) @ self._modes

    def of(self, xi: Tensor) -> Tensor:
        """Return the control (B, c) of coordinates (B, r), in coefficients of its output modes."""
        return self._offset + self._features.of(xi) @ self._weights

    def functions(self, coefficients: Tensor) -> Tensor:
        """Return functions (B, n) with these coefficients (B, c)."""
        return self._mean + coefficients @ self._modes.T

    def sampled(self, coefficients: RunningMoments) -> Moments:
        """Return moments of functions from those of their coefficients."""
        return self._moments(coefficients.mean, coefficients.covariance)

    def exact(self, law: GaussianLaw) -> Moments:
        """Return its moments under a law of the coordinates, in closed form."""
        mean, covariance = self._features.moments(law)
        return self._moments(
            self._offset + mean @ self._weights, self._weights.T @ covariance @ self._weights
        )

    def _moments(self, mean: Tensor, covariance: Tensor) -> Moments:
        """Return moments of functions whose coefficients have these."""
        values, vectors = torch.linalg.eigh(covariance)
        factor = self._modes @ (vectors * values.clamp_min(0).sqrt())
        return gaussian_moments(self._mean + self._modes @ mean, factor, self._vectors)


def _with_one(inputs: Tensor) -> Tensor:
    """Return inputs (B, c) with a leading column of ones, whose weights are the offset."""
    return torch.cat([torch.ones(len(inputs), 1, dtype=inputs.dtype), inputs], dim=1)


CONTROL_SAMPLES = 1000, 20_000  # prior samples that the control is fitted on: at least and at most
CONTROL_SHARE = 4  # it takes as many as a quarter of the posterior samples, within these bounds
DRAWN_VALUES = 2**23  # values of inputs that are drawn together: 64 MiB


def control_samples(samples: int) -> int:
    """Return how many prior samples the control takes if posteriors take so many in all."""
    least, most = CONTROL_SAMPLES
    return min(max(least, samples // CONTROL_SHARE), most)


def posterior_law(
    problem: Problem, locations: Tensor, values: Tensor, noise_std: float
) -> GaussianLaw:
    """Return the law of the input's coordinates given one observation set."""
    observed = problem.transform.forward(values)
    return problem.gaussian_prior.condition(locations, observed, noise_std)


def posterior(
    problem: Problem, locations: Tensor, values: Tensor, noise_std: float
) -> GaussianLaw | Law:
    """Return what `plain_draws` samples given one observation set.

    The law of the coordinates where the input is a Gaussian field, else that of the fields.

    Raises
    ------
    ConfigError
        If nobody knows the posterior of this input.
    """
    if isinstance(problem.prior, GaussianField):
        return posterior_law(problem, locations, values, noise_std)
    observed = problem.transform.forward(values)
    law = problem.prior.posterior(locations, observed, noise_std)
    if law is None:
        raise ConfigError(
            f"problem {problem.name}: its input has no posterior that is known; only references "
            "of estimator none are possible"
        )
    return law


def plain_draws(
    problem: Problem, law: GaussianLaw | Law, generator: np.random.Generator, size: int
) -> Iterator[Tensor]:
    """Yield blocks of posterior samples of u, `size` rows in all."""
    if isinstance(law, GaussianLaw):
        for normals, unobserved in _normals(problem, generator, size):
            yield problem.pairs(law.coordinates(normals), unobserved)[1]
        return
    most = max(1, DRAWN_VALUES // problem.grid.size)
    for start in range(0, size, most):
        fields, unobserved = problem.inputs(law, generator, min(most, size - start))
        for begin in range(0, len(fields), problem.block):
            block = slice(begin, begin + problem.block)
            yield problem.outcomes(
                fields[block], None if unobserved is None else unobserved[block]
            )[1]


def _normals(
    problem: Problem, generator: np.random.Generator, size: int
) -> Iterator[tuple[Tensor, Tensor | None]]:
    for start in range(0, size, problem.block):
        yield problem.normals(generator, min(problem.block, size - start))


class ControlledSampler:
    """Moments of posteriors of one problem by sampling with both devices.

    Parameters
    ----------
    vectors : Tensor, shape (n, k)
        Test vectors of the modes.
    generator : numpy.random.Generator
        Stream of the prior samples that the control is fitted on.
    samples : int
        That all posteriors will take together.
    """

    def __init__(
        self, problem: Problem, vectors: Tensor, generator: np.random.Generator, samples: int
    ) -> None:
        self._problem, self._vectors = problem, vectors
        self._directions = Directions(problem) if problem.affine == "unobserved" else None
        index = problem.gaussian_prior.leading(COORDINATES)
        self._known: tuple[GaussianLaw, Moments] | None = None
        self._control = Control(self._samples(generator, control_samples(samples)), index, vectors)

    def moments(self, law: GaussianLaw, generator: np.random.Generator, size: int) -> Moments:
        """Return moments of u under a law of the coordinates from `size` samples."""
        outcome, control = SampleMoments(self._vectors), RunningMoments(lambda rows: rows.T @ rows)
        within: Moments | None = None
        for normals, unobserved in self._blocks(generator, size):
            xi = law.coordinates(normals)
            u, given = self._outcome(xi, unobserved)
            outcome.add(u)
            control.add(self._control.of(xi))
            if given is not None:
                part = given * (len(xi) / size)
                within = part if within is None else within + part
        found = outcome.finish() - self._control.sampled(control) + self._exact(law)
        return found if within is None else found + within

    def _exact(self, law: GaussianLaw) -> Moments:
        """Return the control's moments, kept for the next part of the same law."""
        if self._known is None or self._known[0] is not law:
            self._known = law, self._control.exact(law)
        return self._known[1]

    def _blocks(
        self, generator: np.random.Generator, size: int
    ) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Yield blocks of normals: those of the second input only where it is sampled."""
        if self._directions is None:
            yield from _normals(self._problem, generator, size)
            return
        block = max(1, self._problem.block // self._directions.size)
        for start in range(0, size, block):
            shape = (min(block, size - start), self._problem.gaussian_prior.rank)
            yield torch.from_numpy(generator.standard_normal(shape)), None

    def _outcome(self, xi: Tensor, unobserved: Tensor | None) -> tuple[Tensor, Moments | None]:
        """Return u, or its mean given the first input with the average of the spread around it."""
        if self._directions is None:
            return self._problem.pairs(xi, unobserved)[1], None
        problem = self._problem
        kappa = problem.transform.inverse(problem.gaussian_prior.field(xi))
        responses = self._directions.responses(kappa)  # (B, 1 + J, n)
        spread = responses[:, 1:]
        modes = (spread @ self._vectors).flatten(0, 1)
        n, k = self._vectors.shape
        within = Moments(
            torch.zeros(n).double(),
            torch.linalg.vector_norm(spread, dim=(0, 1)).square() / len(kappa),
            torch.zeros(k).double(),
            modes.T @ modes / len(kappa),
        )
        return responses[:, 0], within

    def _samples(
        self, generator: np.random.Generator, size: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield blocks of prior samples that the control is fitted on."""
        for xi, unobserved in self._blocks(generator, size):
            yield xi, self._outcome(xi, unobserved)[0]

"""Reference moments from conditioned samples: plain, with a control variate, Rao-Blackwellised.

Plain Monte Carlo is the paper's way (appendix A.2). Two exact devices take most of its noise:

- control variate: a quadratic map of the input's coordinates, fitted once on prior samples, whose
  moments under every posterior are known in closed form (`reference.control`); only what it leaves
  is sampled;
- Rao-Blackwell: where u is affine in a second, unobserved Gaussian input, its law given the first
  is Gaussian, so mean and variance over the second are taken in closed form.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import ConfigError
from uqsonet.gauss.blocks import RunningMoments
from uqsonet.gauss.gaussian import GaussianLaw
from uqsonet_study.priors.beyond import Law
from uqsonet_study.priors.gaussian_process import GaussianField
from uqsonet_study.problems import Problem
from uqsonet_study.reference.control import COORDINATES, Control
from uqsonet_study.reference.directions import Directions
from uqsonet_study.reference.moments import Moments, SampleMoments

CONTROL_SAMPLES = 1000, 20_000
"""Prior samples that the control is fitted on: at least and at most."""

CONTROL_SHARE = 4
"""It takes as many as a quarter of the posterior samples, within these bounds."""


DRAWN_VALUES = 2**23
"""Values of inputs that are drawn together: 64 MiB."""


def control_samples(samples: int) -> int:
    """Return how many prior samples the control takes if posteriors take so many in all."""
    least, most = CONTROL_SAMPLES
    return min(max(least, samples // CONTROL_SHARE), most)


def posterior_law(
    problem: Problem, locations: Tensor, values: Tensor, mask: Tensor, noise_std: float
) -> GaussianLaw:
    """Return the law of the input's coordinates given one (padded) observation set."""
    observed = problem.transform.forward(values[mask])
    return problem.gaussian_prior.condition(locations[mask], observed, noise_std)


def posterior(
    problem: Problem, locations: Tensor, values: Tensor, mask: Tensor, noise_std: float
) -> GaussianLaw | Law:
    """Return what `plain_draws` samples given one (padded) observation set.

    The law of the coordinates where the input is a Gaussian field, else that of the fields.

    Raises
    ------
    ConfigError
        If nobody knows the posterior of this input.
    """
    if isinstance(problem.prior, GaussianField):
        return posterior_law(problem, locations, values, mask, noise_std)
    observed = problem.transform.forward(values[mask])
    law = problem.prior.posterior(locations[mask], observed, noise_std)
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
    problem : Problem
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

"""Control variate and Rao-Blackwell: unbiased, and exact for linear and quadratic problems."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.conftest import ToyLinear
from tests.reference.coarse import check_equal_to_plain, modes_of, plain_samples, posterior
from uqsonet.gauss.gaussian import GaussianLaw, condition
from uqsonet_study.problems import get_problem
from uqsonet_study.reference.sampling import ControlledSampler, Features

PLACES = torch.arange(20, 400, 36)


class ToySquare(ToyLinear):
    """``u = kappa^2``, a quadratic function of the two coordinates."""

    name = "toy_square"

    def solve(self, kappa: Tensor) -> Tensor:
        return kappa.square()


def nodes(law: GaussianLaw) -> tuple[Tensor, Tensor]:
    """Return coordinates (k, r) and weights of Gauss-Hermite quadrature, exact to degree 9."""
    x, w = np.polynomial.hermite_e.hermegauss(5)
    rank = law.mean.shape[-1]
    z = torch.tensor(list(product(x, repeat=rank))).double()
    weights = torch.tensor([np.prod(some) for some in product(w, repeat=rank)]).double()
    return law.coordinates(z), weights / weights.sum()


def averages(values: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    mean = weights @ values
    centred = values - mean
    return mean, (centred * weights[:, None]).T @ centred


@pytest.mark.parametrize("noise_std", [0.0, 0.4])
@pytest.mark.parametrize("count", [1, 2])
def test_moments_of_features_are_those_of_quadrature(noise_std, count):
    generator = torch.Generator().manual_seed(count)
    rows = torch.randn(count, 4, generator=generator, dtype=torch.float64)
    law = condition(rows, torch.tensor([0.7, -1.2]).double()[:count], noise_std, None)
    index = torch.tensor([3, 0, 2])
    directions = torch.linalg.qr(torch.randn(3, 2, generator=generator).double()).Q
    features = Features(index, directions)
    xi, weights = nodes(law)
    found = features.moments(law)
    for ours, theirs in zip(found, averages(features.of(xi), weights), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    assert found[0].shape == (6,) and torch.linalg.eigvalsh(found[1]).min() > -1e-12


@pytest.mark.parametrize("noise_std", [0.0, 0.3])
@pytest.mark.parametrize("kind", [ToyLinear, ToySquare])
def test_a_linear_or_quadratic_problem_is_exact_from_any_two_samples(kind, noise_std):
    toy = kind()
    vectors = modes_of(toy.sample(np.random.default_rng(0), 50)[1], 2)
    sampler = ControlledSampler(toy, vectors, np.random.default_rng(0), 100)
    x, y = toy.grid.points()[[5]], torch.tensor([1.8]).double()
    law = toy.prior.condition(x, y, noise_std)
    found = sampler.moments(law, np.random.default_rng(1), 2)
    xi, weights = nodes(law)
    mean, covariance = averages(toy.pairs(xi, None)[1], weights)
    assert mean.std() > 0.1 and covariance.diagonal().max() > 0.1
    if kind is ToyLinear:
        exact = toy.exact_posterior(x, y, noise_std, toy.grid.points())
        torch.testing.assert_close(mean, exact[0], rtol=0, atol=1e-9)
        torch.testing.assert_close(covariance, exact[1], rtol=0, atol=1e-9)
    modal = vectors.T @ covariance @ vectors
    for ours, theirs in (
        (found.mean, mean),
        (found.variance, covariance.diagonal()),
        (found.mode_mean, vectors.T @ mean),
        (found.mode_covariance, modal),
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)


@pytest.fixture(scope="module", params=["diffusion1d", "elliptic_sde1d"])
def case(request):
    """A problem with its sampler and test vectors."""
    problem = get_problem(request.param)
    vectors = modes_of(problem.sample(np.random.default_rng(1), 300)[1], 3)
    return problem, ControlledSampler(problem, vectors, np.random.default_rng(2), 20_000), vectors


@pytest.mark.parametrize(("noise_std", "count"), [(0.0, 2), (0.5, 4)])
def test_it_equals_plain_samples_within_standard_errors(case, noise_std, count):
    problem, sampler, vectors = case
    law = posterior(problem, noise_std, count)
    repeats = [sampler.moments(law, np.random.default_rng(50 + i), 100) for i in range(16)]
    u = plain_samples(problem.name, law, 7, 8000)
    check_equal_to_plain(repeats, u, vectors, PLACES)


def test_given_the_coefficient_mean_and_spread_are_those_of_the_gaussian_u():
    """One coefficient, exactly: Rao-Blackwell against all coordinates of the source."""
    problem = get_problem("elliptic_sde1d")
    vectors = modes_of(problem.sample(np.random.default_rng(1), 100)[1], 3)
    sampler = ControlledSampler(problem, vectors, np.random.default_rng(2), 4000)
    xi = torch.from_numpy(np.random.default_rng(3).standard_normal((2, problem.prior.rank)))
    u, within = sampler._outcome(xi, None)
    assert within is not None
    kappa = problem.transform.inverse(problem.prior.field(xi))
    source = problem.unobserved
    torch.testing.assert_close(u, problem.solve(kappa, source.mean), rtol=0, atol=1e-12)
    root = problem.solve_affine(kappa, source.factor.T)  # (2, r, n)
    variance = root.square().sum(1).mean(0)
    assert (within.variance - variance).norm() < 2e-4 * variance.norm()
    covariance = (root @ vectors).transpose(1, 2) @ (root @ vectors)
    difference = within.mode_covariance - covariance.mean(0)
    assert difference.norm() < 2e-4 * covariance.mean(0).norm()
    assert (within.mean == 0).all() and (within.mode_mean == 0).all()

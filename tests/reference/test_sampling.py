"""Control variate and Rao-Blackwell: unbiased, and exact for linear problems."""

import numpy as np
import pytest
import torch

from tests.reference.coarse import check_equal_to_plain, modes_of, plain_samples, posterior
from uqsonet.problems import get_problem
from uqsonet.reference.directions import Directions
from uqsonet.reference.sampling import ControlledSampler

TOY = get_problem("toy_linear")
KEYS = ("mean", "variance", "mode_mean", "mode_covariance")
NAMES = ["diffusion1d", "elliptic_sde1d"]
PLACES = torch.arange(20, 400, 36)


@pytest.fixture(scope="module", params=NAMES)
def case(request):
    """A problem with its sampler and test vectors."""
    problem = get_problem(request.param)
    vectors = modes_of(problem.sample(np.random.default_rng(1), 300)[1], 3)
    return problem, ControlledSampler(problem, vectors, np.random.default_rng(2), 20_000), vectors


@pytest.mark.parametrize("noise_std", [0.0, 0.3])
def test_a_linear_problem_is_exact_from_any_two_samples(noise_std):
    points = TOY.grid.points()
    x, y = points[[3, 20]], torch.tensor([1.4, 0.3]).double()
    vectors = modes_of(TOY.sample(np.random.default_rng(0), 50)[1], 2)
    sampler = ControlledSampler(TOY, vectors, np.random.default_rng(0), 100)
    found = sampler.moments(TOY.prior.condition(x, y, noise_std), np.random.default_rng(1), 2)
    if noise_std == 0:  # two exact readings settle both coordinates
        assert found.variance.abs().max() < 1e-12
        mean = TOY.responses(points[:, 0]) @ torch.linalg.solve(TOY.shapes(x[:, 0]), y)
        covariance = torch.zeros(33, 33).double()
    else:
        mean, covariance = TOY.exact_posterior(x, y, noise_std, points)
    torch.testing.assert_close(found.mean, mean, rtol=0, atol=1e-10)
    torch.testing.assert_close(found.variance, covariance.diagonal(), rtol=0, atol=1e-10)
    torch.testing.assert_close(found.mode_mean, vectors.T @ mean, rtol=0, atol=1e-10)
    projected = vectors.T @ covariance @ vectors
    torch.testing.assert_close(found.mode_covariance, projected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("noise_std", "count"), [(0.0, 2), (0.5, 4)])
def test_it_equals_plain_samples_within_standard_errors(case, noise_std, count):
    problem, sampler, vectors = case
    law = posterior(problem, noise_std, count)
    repeats = [sampler.moments(law, np.random.default_rng(50 + i), 100) for i in range(16)]
    u = plain_samples(problem.name, law, 7, 8000)
    check_equal_to_plain(repeats, u, vectors, PLACES)


def test_moments_do_not_depend_on_how_samples_are_cut_into_blocks(case, monkeypatch):
    problem, sampler, _ = case
    law = posterior(problem, 0.3)
    whole = sampler.moments(law, np.random.default_rng(0), 100)
    monkeypatch.setattr(type(problem), "block", 77)
    parts = sampler.moments(law, np.random.default_rng(0), 100)
    for key in KEYS:
        expected = getattr(whole, key)
        torch.testing.assert_close(getattr(parts, key), expected, rtol=1e-9, atol=1e-12)


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


@pytest.mark.parametrize("neglected", [1e-2, 1e-6])
@pytest.mark.parametrize("name", ["elliptic_sde1d", "toy_sde2d"])
def test_directions_leave_out_no_more_than_the_stated_share_and_are_as_few_as_that_allows(
    name, neglected
):
    problem = get_problem(name)
    directions = Directions(problem, neglected)
    field, other = problem.unobserved, problem.transform.inverse(problem.prior.mean)
    if problem.affine == "kappa":
        field, other = problem.prior, problem.unobserved_transform.inverse(problem.unobserved.mean)
    assert directions.field is field
    total = problem.solve_affine(other[None], field.factor.T)[0].square().sum()
    kept = directions.responses(other[None])[0, 1:].square().sum(1)
    assert -1e-12 < 1 - kept.sum() / total <= neglected
    assert 1 - kept[:-1].sum() / total > neglected  # one direction fewer would not do
    assert (kept[1:] <= kept[:-1] * (1 + 1e-9)).all()
    size = directions.size - 1
    identity = torch.eye(size).double()
    torch.testing.assert_close(directions.basis.T @ directions.basis, identity)
    torch.testing.assert_close(directions.sources[0], field.mean)
    expected = field.fluctuation(directions.basis.T.contiguous())
    torch.testing.assert_close(directions.sources[1:], expected, rtol=0, atol=1e-10)

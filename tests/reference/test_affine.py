"""Where u is affine in the observed input: closed forms against the textbook and plain samples."""

from functools import partial

import numpy as np
import pytest
import torch

from tests.reference.coarse import (
    ToySDE2D,
    modes_of,
    posterior,
)
from uqsonet_study.priors.gaussian_process import squared_exponential
from uqsonet_study.problems import Problem, get_problem
from uqsonet_study.reference import affine
from uqsonet_study.reference.affine import NEGLECTED, ClosedForm, Directions, OperatorMoments

POISSON = get_problem("poisson2d")
SDE = get_problem("toy_sde2d")
AXIS = POISSON.grid.axes()[0][:, None]
ALONG = squared_exponential(1.0, 0.1, halved=True)(AXIS, AXIS)
SENSORS = torch.tensor([20 * 101 + 30, 50 * 101 + 51, 88 * 101 + 13])
READINGS = torch.tensor([3.0, -1.5, 0.4]).double()


def printed_covariance(functions):
    """``K w`` for columns w (k, n) on the 101 x 101 grid, with the kernel as printed."""
    return (ALONG @ functions.reshape(-1, 101, 101) @ ALONG).flatten(1)


@pytest.fixture(scope="module")
def vectors():
    return modes_of(POISSON.sample(np.random.default_rng(1), 64)[1], 4)


@pytest.fixture(scope="module")
def closed_form(vectors):
    return ClosedForm(POISSON, vectors)


@pytest.mark.parametrize("noise_std", [0.0, 0.5])
def test_the_closed_form_is_the_textbook_posterior_mapped_through_poisson(
    closed_form, vectors, noise_std
):
    """Mean and covariance of functionals ``w . u``, with K printed and ``G w`` solved (G = G^T)."""
    places = torch.tensor([5 * 101 + 7, 50 * 101 + 50, 30 * 101 + 80])
    unit = torch.zeros(3, 10201).double()
    unit[torch.arange(3), places] = 1.0
    responses = POISSON.solve(torch.cat([unit, vectors.T]))
    sensors = torch.zeros(3, 10201).double()
    sensors[torch.arange(3), SENSORS] = 1.0
    mean = POISSON.prior.mean
    gram = printed_covariance(sensors)[:, SENSORS] + noise_std**2 * torch.eye(3).double()
    cross = printed_covariance(sensors) @ responses.T
    gain = torch.linalg.solve(gram, cross)
    expected_mean = responses @ mean + gain.T @ (READINGS - mean[SENSORS])
    expected = responses @ printed_covariance(responses).T - cross.T @ gain
    law = POISSON.prior.condition(POISSON.grid.points()[SENSORS], READINGS, noise_std)
    found = closed_form.moments(law)
    values = torch.cat([found.mean[places], found.mode_mean])
    torch.testing.assert_close(values, expected_mean, rtol=1e-9, atol=1e-12)
    variance = expected.diagonal()[:3]
    torch.testing.assert_close(found.variance[places], variance, rtol=1e-9, atol=1e-15)
    torch.testing.assert_close(found.mode_covariance, expected[3:, 3:], rtol=1e-9, atol=1e-12)


def brute_force(law, vectors, seed, size):
    """Average over coefficients and their eight images, moved and solved one by one."""
    xi = torch.from_numpy(np.random.default_rng(seed).standard_normal((size, SDE.unobserved.rank)))
    coefficients = SDE.unobserved.field(xi).exp()
    factor = law.spread(SDE.prior.factor).T
    sources = torch.cat([SDE.prior.field(law.mean)[None], factor])
    means, seconds = [], []
    for places in SDE.symmetries():
        u = SDE.solve_affine(coefficients[:, places], sources)
        means.append(u[:, 0])
        seconds.append(u.transpose(1, 2) @ u)  # E[u u^T | k]: mean and factor
    mean = torch.cat(means).mean(0)
    covariance = torch.cat(seconds).mean(0) - torch.outer(mean, mean)
    return mean, covariance.diagonal(), vectors.T @ mean, vectors.T @ covariance @ vectors


@pytest.mark.parametrize(
    ("noise_std", "neglected", "dtype", "bound"),
    [
        pytest.param(0.0, 1e-10, torch.float64, 1e-8, id="exact"),
        pytest.param(0.5, 1e-10, torch.float64, 1e-8, id="noise"),
        pytest.param(0.5, NEGLECTED, torch.float32, 1e-3, id="as_used"),
    ],
)
def test_symmetrised_moments_equal_brute_force_over_moved_coefficients(
    noise_std, neglected, dtype, bound, monkeypatch
):
    """The permutations act as claimed: to rounding, but for neglected directions and float32."""
    monkeypatch.setattr(affine, "Directions", partial(Directions, neglected=neglected))
    monkeypatch.setattr(affine, "SOLVE_DTYPE", dtype)
    monkeypatch.setattr(affine, "BATCH", 2)  # nine coefficients are five batches
    monkeypatch.setattr(affine, "FLUSH", 2)
    vectors = modes_of(SDE.sample(np.random.default_rng(0), 200)[1], 5)
    law = posterior(SDE, noise_std)
    (found,) = OperatorMoments(SDE, vectors, np.random.default_rng(3), 9).moments([law])
    expected = brute_force(law, vectors, 3, 9)
    parts = found.mean, found.variance, found.mode_mean, found.mode_covariance
    for part, exact in zip(parts, expected, strict=True):
        assert (part - exact).norm() < bound * exact.norm()
    # Without the images the nine coefficients say something else.
    monkeypatch.setattr(ToySDE2D, "symmetries", Problem.symmetries)
    (alone,) = OperatorMoments(SDE, vectors, np.random.default_rng(3), 9).moments([law])
    assert (alone.mean - found.mean).norm() > 0.02 * found.mean.norm()

"""What conditioning returns: coherent moments, samples and quantiles, checked queries."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

import uqsonet
from uqsonet.errors import ObservationError
from uqsonet.fields.grid import Grid
from uqsonet.gauss.given import MOMENT_SAMPLES, Drawn, Gaussian
from uqsonet.gauss.posterior import Posterior, levels_of

GRID = Grid((-1.0,), (1.0,), (21,))
MEAN = torch.tensor([[1.0, -0.5], [0.0, 2.0], [3.0, 3.0]]).double()
ROOT = torch.tensor([[1.0, 0.3], [0.3, 0.5]]).double().expand(3, 2, 2) * torch.tensor(
    [[[1.0]], [[2.0]], [[0.1]]]
)


def basis(queries):
    x = queries[:, 0].double()
    return 10 + x, torch.stack([torch.ones_like(x), x**2], dim=-1)


def gaussian(single=False):
    keep = slice(0, 1) if single else slice(None)
    return Posterior(GRID, basis, single, Gaussian(MEAN[keep], ROOT[keep]))


def latent(single=False):
    keep = slice(0, 1) if single else slice(None)

    def draw(size, generator):
        z = torch.randn((len(MEAN[keep]), size, 2), generator=generator, dtype=torch.float64)
        return MEAN[keep][:, None] + z @ ROOT[keep].transpose(-1, -2)

    return Posterior(GRID, basis, single, Drawn(draw))


def exact(queries):
    x = queries[:, 0].double()
    rows = torch.stack([torch.ones_like(x), x**2], dim=-1)
    covariance = rows @ (ROOT @ ROOT.transpose(1, 2)) @ rows.T
    return 10 + x + MEAN @ rows.T, covariance, covariance.diagonal(dim1=1, dim2=2).sqrt()


both = pytest.mark.parametrize("make", [gaussian, latent])


def test_the_gaussian_posterior_is_exact_on_and_off_the_grid():
    queries = torch.tensor([[-1.0], [0.0123], [0.7]])
    mean, _, std = exact(queries)
    torch.testing.assert_close(gaussian().mean(queries), mean)
    torch.testing.assert_close(gaussian(True).mean(queries), mean[0])
    torch.testing.assert_close(gaussian().std(queries), std)
    flat = gaussian().mean(queries[:, 0].tolist())  # (M,) is taken as (M, 1)
    torch.testing.assert_close(flat, mean, rtol=1e-6, atol=0)


@both
def test_samples_have_the_moments_of_the_law_including_correlations(make):
    size = 20_000
    queries = torch.tensor([[-1.0], [0.0], [0.7]])
    mean, covariance, std = exact(queries)
    sample = make().sample(size, queries, torch.Generator().manual_seed(1))
    z = (sample.mean(1) - mean) / (std / size**0.5)
    assert z.abs().max() < norm.isf(1e-3 / (2 * 9))
    centred = sample - sample.mean(1, keepdim=True)
    found = centred.transpose(1, 2) @ centred / (size - 1)
    error = ((covariance**2 + std[:, :, None] ** 2 * std[:, None] ** 2) / size).sqrt()
    assert ((found - covariance) / error).abs().max() < norm.isf(1e-3 / (2 * 18))


def test_answers_of_a_latent_posterior_are_those_of_its_samples_and_match_the_law():
    sample, (mean, _, std) = latent().sample(MOMENT_SAMPLES), exact(GRID.points())
    assert torch.equal(latent(True).sample(5), latent(True).sample(5))
    torch.testing.assert_close(latent().mean(), sample.mean(1))
    torch.testing.assert_close(latent().std(), sample.std(1))
    assert ((latent().mean() - mean) / std).abs().max() < 5 / MOMENT_SAMPLES**0.5
    assert (latent().std() / std - 1).abs().max() < 5 / (2 * MOMENT_SAMPLES) ** 0.5
    levels = [0.05, 0.25, 0.5, 0.75, 0.95]
    queries = torch.tensor([[0.0], [0.7]])
    drawn = latent().sample(20_000, queries)
    found = drawn.quantile(torch.tensor(levels).to(drawn), 1).movedim(0, 1)
    assert (found.diff(dim=1) > 0).all()
    mean, _, std = exact(queries)
    expected = mean[:, None] + std[:, None] * torch.from_numpy(norm.ppf(levels))[:, None]
    assert ((found - expected) / std[:, None]).abs().max() < 0.06


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        ([[0.1], [1.2]], r"query 1 at \[1.2\] lies outside the domain"),
        ([[float("nan")]], "finite"),
        ([[0.1, 0.2]], r"shape \(M, 1\), found \(1, 2\)"),
        (0.5, r"shape \(M, 1\), found \(\)"),
    ],
)
def test_bad_queries_are_refused(queries, message):
    for ask, first in (("mean", []), ("std", []), ("sample", [3])):
        with pytest.raises(ObservationError, match=message):
            getattr(latent(), ask)(*first, queries)


def test_bad_sizes_and_levels_are_refused():
    with pytest.raises(ObservationError, match=r"whole number from 1 to .*, found 0"):
        latent().sample(0)
    for levels in ([1.5], [-0.1], [[0.5]], [], [float("nan")]):
        with pytest.raises(ObservationError, match=r"levels must be numbers in \[0, 1\]"):
            levels_of(levels)
    for size in (1, 1.5, "3", None, 1e30):
        with pytest.raises(ObservationError, match="whole number from 2 to"):
            latent().law.moments(size)


@pytest.mark.parametrize("name", ["diffusion1d", "elliptic_sde1d"])
def test_answers_do_not_depend_on_the_default_dtype(name):
    def answers():
        posterior = uqsonet.load(name).condition([[0.2], [0.7]], [1.0, 1.2])
        both = uqsonet.load(name).condition([[0.2]], [1.0])["u"]
        return [posterior.mean(), posterior.std(), posterior.sample(3), both.quantile([0.1, 0.5])]

    expected = answers()
    torch.set_default_dtype(torch.float64)
    try:
        found = answers()
    finally:
        torch.set_default_dtype(torch.float32)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("noise", [0.1, 1e-9])
def test_the_std_of_a_linear_operator_is_that_of_its_covariance(noise):
    """Also where sensors leave next to nothing, which a difference of variances would lose."""
    model = uqsonet.load("poisson2d")
    model.operator.network = None
    model.operator.bases.input_remainder.zero_()
    places = torch.rand(2, 40, 2, generator=torch.Generator().manual_seed(0)).numpy()
    answer = model.condition(places, np.zeros((2, 40)), noise_std=noise)
    points = np.random.default_rng(0).random((50, 2))
    between = answer.covariance(points)
    expected = np.sqrt(np.diagonal(between, axis1=1, axis2=2))
    np.testing.assert_allclose(answer.std(points), expected, rtol=1e-6)

"""What conditioning returns: coherent moments, samples and quantiles, checked queries."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

import uqsonet
from uqsonet.errors import NoUncertaintyError, ObservationError
from uqsonet.fields import Grid
from uqsonet.posterior import (
    GaussianPosterior,
    LatentPosterior,
    PointPosterior,
    moments_of,
    spread,
)

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
    return GaussianPosterior(GRID, basis, single, MEAN[keep], ROOT[keep])


def latent(single=False):
    keep = slice(0, 1) if single else slice(None)

    def draw(size, generator):
        z = torch.randn((len(MEAN[keep]), size, 2), generator=generator, dtype=torch.float64)
        return MEAN[keep][:, None] + z @ ROOT[keep].transpose(-1, -2)

    return LatentPosterior(GRID, basis, single, draw)


def exact(queries):
    x = queries[:, 0].double()
    rows = torch.stack([torch.ones_like(x), x**2], dim=-1)
    covariance = rows @ (ROOT @ ROOT.transpose(1, 2)) @ rows.T
    return 10 + x + MEAN @ rows.T, covariance


@pytest.mark.parametrize("make", [gaussian, latent])
def test_shapes_of_one_set_and_of_a_batch(make):
    queries = torch.tensor([[0.1], [0.25], [-0.9]])
    for single, lead in ((True, ()), (False, (3,))):
        posterior = make(single)
        assert posterior.mean().shape == (*lead, 21)
        assert posterior.mean(queries).shape == posterior.std(queries).shape == (*lead, 3)
        assert posterior.sample(7, queries).shape == (*lead, 7, 3)
        assert posterior.quantile([0.1, 0.5], queries, 50).shape == (*lead, 2, 3)


@pytest.mark.parametrize("make", [gaussian, latent])
def test_the_first_of_a_batch_is_that_set_alone(make):
    torch.testing.assert_close(gaussian(True).mean(), gaussian().mean()[0])
    alone, batch = make(True).quantile([0.2]), make().quantile([0.2])[0]
    assert (alone - batch).abs().max() < 0.3  # other random numbers, the same law


def test_the_gaussian_posterior_is_exact():
    queries = torch.tensor([[-1.0], [0.123], [0.7]])
    mean, covariance = exact(queries)
    torch.testing.assert_close(gaussian().mean(queries), mean)
    std = covariance.diagonal(dim1=1, dim2=2).sqrt()
    torch.testing.assert_close(gaussian().std(queries), std)


@pytest.mark.parametrize("make", [gaussian, latent])
def test_samples_have_the_moments_of_the_law_including_correlations(make):
    size = 20_000
    queries = torch.tensor([[-1.0], [0.0], [0.7]])
    mean, covariance = exact(queries)
    sample = make().sample(size, queries, torch.Generator().manual_seed(1))
    std = covariance.diagonal(dim1=1, dim2=2).sqrt()
    bound = norm.isf(1e-3 / (2 * 9))
    z = (sample.mean(1) - mean) / (std / size**0.5)
    assert z.abs().max() < bound
    centred = sample - sample.mean(1, keepdim=True)
    found = centred.transpose(1, 2) @ centred / (size - 1)
    error = ((covariance**2 + std[:, :, None] ** 2 * std[:, None] ** 2) / size).sqrt()
    assert ((found - covariance) / error).abs().max() < norm.isf(1e-3 / (2 * 18))


def test_mean_and_std_of_a_latent_posterior_are_those_of_its_samples():
    posterior = latent()
    sample = posterior.sample(4096)
    torch.testing.assert_close(posterior.mean(), sample.mean(1))
    torch.testing.assert_close(posterior.std(), sample.std(1))
    mean, covariance = exact(GRID.points())
    std = covariance.diagonal(dim1=1, dim2=2).sqrt()
    assert ((posterior.mean() - mean) / std).abs().max() < 5 / 64
    assert (posterior.std() / std - 1).abs().max() < 5 / 90


def test_quantiles_rise_with_the_level_and_match_the_law():
    levels = [0.05, 0.25, 0.5, 0.75, 0.95]
    queries = torch.tensor([[0.0], [0.7]])
    found = latent().quantile(levels, queries, size=20_000)
    assert (found.diff(dim=1) > 0).all()
    mean, covariance = exact(queries)
    std = covariance.diagonal(dim1=1, dim2=2).sqrt()
    expected = mean[:, None] + std[:, None] * torch.from_numpy(norm.ppf(levels))[:, None]
    assert ((found - expected) / std[:, None]).abs().max() < 0.06
    extremes = latent().quantile([0, 1], queries, size=100)
    sample = latent().sample(100, queries)
    torch.testing.assert_close(extremes, torch.stack([sample.amin(1), sample.amax(1)], 1))


def test_asking_twice_gives_the_same_answer_and_a_generator_another():
    posterior = latent()
    assert torch.equal(posterior.sample(5), posterior.sample(5))
    assert torch.equal(posterior.std(), latent().std())
    generator = torch.Generator().manual_seed(1)
    first, second = posterior.sample(5, None, generator), posterior.sample(5, None, generator)
    assert not torch.equal(first, second)


def test_queries_off_the_grid_agree_with_the_formula():
    queries = torch.tensor([[0.0123], [-0.9876]])
    torch.testing.assert_close(gaussian().mean(queries), exact(queries)[0])
    flat = gaussian().mean([0.0123, -0.9876])  # (M,) is taken as (M, 1)
    torch.testing.assert_close(flat, gaussian().mean(queries), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        ([[0.1], [1.2]], r"query 1 at \[1.2\] lies outside the domain"),
        ([[float("nan")]], "finite"),
        ([[0.1, 0.2]], r"shape \(M, 1\), found \(1, 2\)"),
        (0.5, r"shape \(M, 1\), found \(\)"),
    ],
)
@pytest.mark.parametrize("ask", ["mean", "std", "sample", "quantile"])
def test_bad_queries_are_refused(queries, message, ask):
    first = {"sample": [3], "quantile": [[0.5]]}.get(ask, [])
    with pytest.raises(ObservationError, match=message):
        getattr(latent(), ask)(*first, queries)


def test_bad_sizes_and_levels_are_refused():
    with pytest.raises(ObservationError, match=r"whole number from 1 to .*, found 0"):
        latent().sample(0)
    for levels in ([1.5], [-0.1], 0.5, [float("nan")]):
        with pytest.raises(ObservationError, match=r"levels must be numbers in \[0, 1\]"):
            latent().quantile(levels)


@pytest.mark.parametrize("size", [0, 1, 1.5, "3", None, 1e30])
def test_moments_need_two_samples(size):
    with pytest.raises(ObservationError, match="whole number from 2 to"):
        latent().coefficient_moments(size)


@pytest.mark.parametrize("call", ["values", "locations", "noise_std", "queries"])
@pytest.mark.parametrize(("kind", "message"), [("grad", "detach"), ("complex", "real numbers")])
def test_an_operator_cuts_nothing_off_in_silence(call, kind, message):
    given = {name: torch.full((1,), 0.5) for name in ("values", "locations", "noise_std")}
    given["queries"] = torch.zeros(1, 1)
    changed = given[call].requires_grad_() if kind == "grad" else given[call] * (1 + 1j)
    given[call] = changed
    queries = given.pop("queries")
    with pytest.raises(ObservationError, match=f"{call}.*{message}"):
        uqsonet.load("diffusion1d").operator.condition(**given).mean(queries)


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


def test_a_point_posterior_has_a_mean_only():
    posterior = PointPosterior(GRID, basis, True, MEAN[:1], "somebody")
    torch.testing.assert_close(posterior.mean(), gaussian(True).mean())
    with pytest.raises(NoUncertaintyError, match="somebody is deterministic"):
        posterior.std()


def test_moments_of_and_spread_equal_numpy():
    samples = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 50, 3))).float()
    mean, covariance = moments_of(samples)
    for i in range(2):
        np.testing.assert_allclose(mean[i], samples[i].double().mean(0), rtol=1e-12)
        np.testing.assert_allclose(covariance[i], np.cov(samples[i].double().numpy().T), rtol=1e-10)
    rows = torch.from_numpy(np.random.default_rng(1).standard_normal((7, 3)))
    expected = (samples.double() @ rows.T).std(1)
    torch.testing.assert_close(spread(rows, covariance), expected)

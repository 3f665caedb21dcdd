"""Chains with the real solver: exact laws, brute force, and diagnostics of known draws."""

import numpy as np
import pytest
import torch
from scipy.stats import norm, rankdata

from uqsonet.errors import ConfigError, ObservationError
from uqsonet.gauss.gaussian import condition
from uqsonet_study.problems import get_problem
from uqsonet_study.reference import chains
from uqsonet_study.reference.chains import ChainSample, chain_posterior, effective_size, r_hat
from uqsonet_study.reference.linear import GridSensors

TOY, DIFFUSION = get_problem("toy_linear"), get_problem("diffusion1d")
NONE = GridSensors(torch.zeros(0).long(), torch.zeros(0), torch.zeros(0))


def sensors(index: list[int], values: list[float], noise_std: float) -> GridSensors:
    found = torch.tensor(values, dtype=torch.float64)
    return GridSensors(torch.tensor(index), found, torch.full_like(found, noise_std))


KAPPA, U = sensors([4], [1.8], 0.4), sensors([10, 25], [1.5, 0.9], 0.2)


def sample(problem=TOY, k=KAPPA, u=U, draws=2000, seed=1, **more) -> ChainSample:
    return chain_posterior(
        problem, k, u, draws=draws, generator=np.random.default_rng(seed), **more
    )


@pytest.mark.parametrize("k, u", [(KAPPA, U), (NONE, U), (NONE, NONE)])
def test_a_linear_problem_has_its_exact_posterior(k, u):
    x = TOY.grid.points()[:, 0]
    shapes, responses = TOY.shapes(x), TOY.responses(x)
    rows = torch.cat([shapes[k.place], responses[u.place]])
    values = torch.cat([k.values - 1, u.values - responses[u.place, 0]])
    law = condition(rows, values, torch.cat([k.noise_std, u.noise_std]), None)
    found = sample(k=k, u=u)
    assert found.effective_size >= 2000 and found.r_hat <= 1.01
    bound = norm.isf(1e-4)
    for field, mean, basis in (
        (found.kappa, torch.ones(33).double(), shapes),
        (found.u, responses[:, 0], responses),
    ):
        field, basis = field.flatten(0, 1)[:, 1:-1], basis[1:-1]
        std = law.spread(basis).square().sum(1).sqrt()
        z = (field.mean(0) - mean[1:-1] - basis @ law.mean) / std * 2000**0.5
        assert z.abs().max() < bound
        assert ((field.std(0) / std - 1) * 4000**0.5).abs().max() < bound


def test_pairs_belong_together_and_the_same_seed_gives_the_same_draws():
    one, other = sample(draws=100), sample(draws=100)
    assert torch.equal(one.u, other.u) and torch.equal(one.kappa, other.kappa)
    assert not torch.equal(sample(draws=100, seed=2).u, one.u)
    assert one.u.shape == one.kappa.shape == (8, 38, 33)
    torch.testing.assert_close(TOY.solve(one.kappa.flatten(0, 1)), one.u.flatten(0, 1))


def test_a_curved_posterior_is_that_of_brute_force():
    """One sensor of k and one of u against 40,000 weighted draws of the law given k."""
    generator = np.random.default_rng(5)
    k, u = sensors([140], [1.3], 0.0), sensors([250], [0.7], 0.03)
    field = DIFFUSION.gaussian_prior
    law = field.condition(DIFFUSION.grid.points()[k.place], k.values.log(), 0.0)
    places = torch.arange(10, 400, 20)
    parts = []
    for _ in range(40):
        normals = torch.from_numpy(generator.standard_normal((1000, field.rank)))
        kappa, solution = DIFFUSION.pairs(law.coordinates(normals))
        misfit = (solution[:, u.place] - u.values) / u.noise_std
        parts.append((kappa[:, places].log(), solution[:, places], -0.5 * misfit.square().sum(1)))
    *wanted, weights = (torch.cat(part) for part in zip(*parts, strict=True))
    weights = torch.softmax(weights, 0)
    size = 1 / weights.square().sum()
    assert size > 2000
    found = sample(DIFFUSION, k, u, draws=1000)
    assert found.effective_size >= 1000
    bound = norm.isf(1e-3 / 80)
    error = (1 / 1000 + 1 / size) ** 0.5
    for ours, theirs in zip((found.kappa.log(), found.u), wanted, strict=True):
        ours = ours.flatten(0, 1)[:, places]
        mean = weights @ theirs
        std = (weights @ (theirs - mean).square()).sqrt()
        assert ((ours.mean(0) - mean) / std / error).abs().max() < bound
        assert ((ours.std(0) / std - 1) / error).abs().max() < bound  # tails of u are not Gaussian


def test_chains_that_have_not_mixed_go_on(monkeypatch):
    monkeypatch.setattr(chains, "R_HAT", 1.0)
    monkeypatch.setattr(chains, "MOST_THINNED", 4)
    longer = sample(draws=100)
    monkeypatch.setattr(chains, "MOST_THINNED", 1)
    shorter = sample(draws=100)
    assert longer.r_hat > 1 and longer.u.shape == shorter.u.shape
    assert longer.solves > shorter.solves


class _Random(type(TOY)):
    unobserved = TOY.gaussian_prior


def test_impossible_sensors_are_refused():
    with pytest.raises(ObservationError, match=r"of u: noise_std must be positive.*found 0\.0"):
        sample(k=KAPPA, u=sensors([3], [1.0], 0.0))
    with pytest.raises(ObservationError, match=r"of k: values must be positive, found -1\.0"):
        sample(DIFFUSION, k=sensors([4], [-1.0], 0.1), u=NONE)
    with pytest.raises(ConfigError, match="toy_linear: chains need a solver without an unobserved"):
        sample(_Random())


def autoregressive(correlation: float) -> torch.Tensor:
    normals = np.random.default_rng(3).standard_normal((4000, 4, 5))
    found = [normals[0]]
    for step in normals[1:]:
        found.append(correlation * found[-1] + (1 - correlation**2) ** 0.5 * step)
    return torch.from_numpy(np.stack(found, 1))


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9, -0.5])
def test_the_effective_size_of_an_autoregression_is_known(correlation):
    exact = 16_000 * (1 - correlation) / (1 + correlation)
    found = effective_size(autoregressive(correlation))
    assert (found / exact - 1).abs().max() < 0.3  # its own error, at 0.9 from a time of 19
    assert r_hat(autoregressive(correlation)).max() < 1.01


def test_r_hat_is_that_of_the_formula():
    """Four chains of six draws with ties, by hand with NumPy and SciPy."""
    draws = np.random.default_rng(0).integers(0, 5, (4, 6)).astype(float)

    def classic(x):
        z = norm.ppf((rankdata(x).reshape(x.shape) - 0.375) / (x.size + 0.25))
        within, between = z.var(1, ddof=1).mean(), 3 * z.mean(1).var(ddof=1)
        return ((2 / 3 * within + between / 3) / within) ** 0.5

    halves = np.concatenate([draws[:, :3], draws[:, 3:]])
    expected = max(classic(halves), classic(np.abs(halves - np.median(halves))))
    assert float(r_hat(torch.from_numpy(draws)[..., None])) == pytest.approx(expected, rel=1e-12)

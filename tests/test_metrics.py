"""Metrics against closed forms and against other implementations."""

import numpy as np
import ot
import pytest
import scoringrules
import torch
from scipy.stats import norm, wasserstein_distance

from uqsonet.gauss.metrics import (
    ascending,
    coverage,
    crps,
    energy_score,
    rank_shares,
    relative_error,
)
from uqsonet_study.beyond.distances import marginal_w1, mass_within, quantile_bins
from uqsonet_study.distances import bures_wasserstein2, expected_crps, wasserstein2


def covariance(seed: int, k: int = 4) -> torch.Tensor:
    a = torch.from_numpy(np.random.default_rng(seed).standard_normal((k, k)))
    return a @ a.T + 0.1 * torch.eye(k).double()


def normals(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def even(size: int) -> torch.Tensor:
    """Return a normal law without chance: its quantiles at the middles of equal steps."""
    return torch.from_numpy(norm.ppf((np.arange(size) + 0.5) / size))


def test_relative_error_is_the_ratio_of_norms_along_the_last_axis():
    predicted = torch.tensor([[3.0, 4.0], [2.0, 0.0]])
    reference = torch.tensor([[0.0, 5.0], [1.0, 0.0]])
    expected = torch.tensor([10**0.5 / 5, 1.0])
    torch.testing.assert_close(relative_error(predicted, reference), expected)
    assert (relative_error(reference, reference) == 0).all()


def test_w2_of_gaussians_equals_the_closed_form_and_pot():
    m, s, n, t = (torch.tensor([v]).double() for v in (1.0, 4.0, -0.5, 0.25))
    found = bures_wasserstein2(m, s[:, None], n, t[:, None])
    assert float(found) == pytest.approx((1.5**2 + (2 - 0.5) ** 2) ** 0.5, abs=1e-12)
    for seed in range(3):
        m, n = normals(2, 4, seed=seed)
        s, t = covariance(2 * seed), covariance(2 * seed + 1)
        expected = ot.gaussian.bures_wasserstein_distance(
            m.numpy(), n.numpy(), s.numpy(), t.numpy()
        )
        assert float(bures_wasserstein2(m, s, n, t)) == pytest.approx(float(expected), rel=1e-8)


def test_w2_of_gaussians_with_singular_covariances_and_in_batches():
    m, zero = torch.zeros(2, 4).double(), torch.zeros(2, 4, 4).double()
    s = torch.stack([covariance(1), covariance(2)])
    found = bures_wasserstein2(m, s, m + 1, zero)  # to a point mass: |shift|^2 + trace
    expected = (4 + s.diagonal(dim1=1, dim2=2).sum(1)).sqrt()
    torch.testing.assert_close(found, expected)
    assert bures_wasserstein2(m, s, m, s).max() < 1e-6
    low, high = (torch.diag(torch.tensor([v, 0, 0, 0])).double() for v in (1.0, 9.0))
    assert float(bures_wasserstein2(m[0], low, m[0], high)) == pytest.approx(2.0)


def test_w2_of_a_shifted_sample_is_the_l2_norm_of_the_shift():
    sample, shift = normals(60, 11), 3 * torch.linspace(0, 1, 11).double()
    weights = torch.full((11,), 0.1).double()
    weights[[0, -1]] = 0.05
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    expected = float((weights * shift**2).sum().sqrt())
    found = wasserstein2(sample, (sample + shift)[order], weights)
    assert found == pytest.approx(expected, rel=1e-9)
    assert wasserstein2(sample, sample[order], weights) < 1e-6
    a, b = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [0.0], [1.0], [1.0]])
    assert wasserstein2(a, b, torch.ones(1)) < 1e-7  # of another size
    assert wasserstein2(a, torch.tensor([[0.5]]), torch.tensor([4.0])) == pytest.approx(1.0)


def test_crps_of_an_ensemble_is_unbiased_and_near_the_closed_form():
    truth = torch.zeros(40_000).double()
    expected = float(scoringrules.crps_normal(0.0, 0.0, 1.0))
    # A biased estimator is off by E|X - X'| / (2 n) = 0.19 at three members.
    assert abs(crps(ascending(normals(3, 40_000, seed=3)), truth) - expected) < 0.01
    truth = np.random.default_rng(2).uniform(-2, 3, 400)
    samples = 0.5 + 1.5 * normals(200, 400, seed=2)
    exact = scoringrules.crps_normal(truth, 0.5, 1.5)
    singles = scoringrules.crps_ensemble(truth, samples.numpy().T, estimator="pwm")
    error = np.std(singles - exact) / 400**0.5
    found = crps(ascending(samples), torch.from_numpy(truth))
    assert abs(found - np.mean(exact)) < 4 * error < 0.08 * np.mean(exact)
    assert found == pytest.approx(np.mean(singles), rel=1e-9)
    mass, truth = torch.full((5, 2), 1.0).double(), torch.tensor([3.0, 0.5]).double()
    assert crps(ascending(mass), truth) == pytest.approx(1.25)  # the absolute error


def test_expected_scores_are_means_over_outcomes():
    samples, outcomes = normals(30, 5, seed=8), normals(20, 5, seed=9).exp()
    quadrature = normals(5, seed=10).square()
    ordered = ascending(1e3 + samples)
    mean = sum(crps(ordered, 1e3 + outcome) for outcome in outcomes) / 20
    assert expected_crps(ordered, ascending(1e3 + outcomes)) == pytest.approx(mean, rel=1e-10)
    mean = sum(energy_score(samples, outcome, quadrature) for outcome in outcomes) / 20
    assert energy_score(samples, outcomes, quadrature) == pytest.approx(mean, rel=1e-12)
    expected = scoringrules.es_ensemble(outcomes[0].numpy(), samples.numpy(), estimator="fair")
    found = energy_score(samples, outcomes[0], torch.ones(5).double())
    assert found == pytest.approx(float(expected), rel=1e-8)


def test_ends_of_bands_are_quantiles_of_the_samples():
    """Whatever their order: those of torch, which sorts for itself."""
    samples = normals(37, 200, seed=11)
    for level in (0.5, 0.9):
        edges = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
        low, high = torch.quantile(samples, edges, dim=0)
        ordered = ascending(samples)
        for end, inward in ((low, 1e-9), (high, -1e-9)):
            assert coverage(ordered, end + inward, [level]) == [1.0]
            assert coverage(ordered, end - inward, [level]) == [0.0]


def test_bands_at_a_boundary_do_not_count():
    """All samples are zero there, so a band of any level holds a truth of zero."""
    samples, outcomes = normals(400, 50, seed=12), normals(300, 50, seed=13)
    inside = coverage(ascending(samples), outcomes, [0.5])
    assert inside == [pytest.approx(0.5, abs=0.02)]  # many outcomes of the same law
    walled = torch.cat([torch.zeros(400, 10).double(), samples], 1)
    outcomes = torch.cat([torch.full((300, 10), 1e-18).double(), outcomes], 1)
    assert coverage(ascending(walled), outcomes, [0.5]) == inside


def test_ranks_of_a_calibrated_law_fill_all_bins_and_of_a_narrow_one_the_outer_ones():
    truth, samples = normals(10_000, seed=2), normals(199, 10_000, seed=3)
    flat = rank_shares(ascending(samples), truth, 10)
    assert sum(flat) == pytest.approx(1) and max(abs(share - 0.1) for share in flat) < 0.012
    narrow = rank_shares(ascending(0.5 * samples), truth, 10)
    assert narrow[0] > 0.2 and narrow[-1] > 0.2 and narrow[4] < 0.06
    with_boundary = torch.cat([torch.zeros(199, 1).double(), samples], dim=1)
    boundary_truth = torch.cat([torch.zeros(1).double(), truth])
    assert rank_shares(ascending(with_boundary), boundary_truth, 10) == flat


def normal_bins(mean=0.0, std=1.0, points=3):
    return quantile_bins((mean + std * even(20_000)).expand(points, 20_000), 200)


def test_w1_of_shifted_and_of_stretched_normal_laws():
    unit = torch.ones(3).double()
    assert marginal_w1(normal_bins(0.7), normal_bins(), unit) == pytest.approx(0.7, rel=1e-9)
    # |c - 1| E|Z| with E|Z| = sqrt(2 / pi): bins lose nothing where quantiles do not cross.
    for stretch in (0.4, 1.5):
        expected = abs(stretch - 1) * (2 / np.pi) ** 0.5
        found = marginal_w1(normal_bins(0, stretch), normal_bins(), unit)
        assert found == pytest.approx(expected, rel=1e-3)
    first, second = normal_bins(0.5, 2.0), normal_bins(0.0, 2.0)
    second[:, 0] -= 1.0  # shifts of 1.5, 0.5 and 0.5 where the reference has std 4, 1 and 1
    std = torch.tensor([4.0, 1.0, 1.0]).double()
    assert marginal_w1(first, second, std) == pytest.approx(2.5 / 6, rel=1e-9)


@pytest.mark.parametrize("n", [1, 199, 200, 500])
def test_bins_share_samples_in_any_number(n):
    ordered = ascending(normals(n, 2, seed=n) + 1e6)
    repeated = np.repeat(ordered.numpy(), 200, axis=1).reshape(2, 200, n).mean(2)
    found = quantile_bins(ordered.float(), 200)
    np.testing.assert_allclose(quantile_bins(ordered, 200).numpy(), repeated.T, rtol=0, atol=1e-8)
    assert found.dtype == torch.float64 and found.shape == (200, 2)
    other = ascending(normals(600, 2, seed=3).exp() + 1e6)
    w1 = marginal_w1(quantile_bins(ordered, 200), quantile_bins(other, 200), torch.ones(2).double())
    exact = [wasserstein_distance(ordered[i], other[i]) for i in range(2)]
    assert w1 == pytest.approx(np.mean(exact), rel=0.02)


@pytest.mark.parametrize(("bins", "error"), [(50, 6e-3), (200, 2e-3)])
def test_mass_of_a_normal_law_in_the_bands_of_another(bins, error):
    z = even(20_000).expand(2, -1)
    theirs, levels = quantile_bins(z, bins), (0.5, 0.9, 0.95)
    assert mass_within(z, theirs, levels) == pytest.approx(levels, abs=error)
    wide = [2 * norm.cdf(2 * norm.ppf((1 + level) / 2)) - 1 for level in levels]
    assert mass_within(2 * z, theirs, levels) == pytest.approx(wide, abs=2 * error)
    beside = norm.cdf(1 + norm.ppf(0.75)) - norm.cdf(1 - norm.ppf(0.75))
    assert mass_within(z + 1, theirs, (0.5,)) == pytest.approx([beside], abs=error)
    assert mass_within(z + 99, theirs, levels) == [0, 0, 0]
    assert mass_within(99 * z, theirs, levels) == [1, 1, 1]
    walled = torch.stack([z[0], 0 * z[0]])  # counted where samples differ
    found = mass_within(walled, quantile_bins(walled, bins), levels)
    assert found == pytest.approx(levels, abs=error)
    rare = torch.stack([z[0] > norm.ppf(0.98), z[0] > norm.ppf(0.7)]).float()  # zeros and ones
    found = mass_within(rare, quantile_bins(rare, bins), (0.9,))
    assert found == pytest.approx([(0.98 + 1) / 2], abs=1 / bins)  # [0, 0] and [0, 1]

"""Metrics against closed forms and against other implementations."""

import numpy as np
import ot
import pytest
import scoringrules
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm, wasserstein_distance

from uqsonet.metrics import (
    ascending,
    bures_wasserstein2,
    coverage,
    crps,
    energy_score,
    expected_crps,
    marginal_w1,
    mass_within,
    quantile_bins,
    rank_shares,
    relative_error,
    wasserstein2,
)


def covariance(seed: int, k: int = 4) -> torch.Tensor:
    a = torch.from_numpy(np.random.default_rng(seed).standard_normal((k, k)))
    return a @ a.T + 0.1 * torch.eye(k).double()


def test_relative_error_is_the_ratio_of_norms_along_the_last_axis():
    predicted = torch.tensor([[3.0, 4.0], [2.0, 0.0]])
    reference = torch.tensor([[0.0, 5.0], [1.0, 0.0]])
    expected = torch.tensor([10**0.5 / 5, 1.0])
    torch.testing.assert_close(relative_error(predicted, reference), expected)
    assert (relative_error(reference, reference) == 0).all()


def test_w2_of_gaussians_in_one_dimension():
    m, s, n, t = (torch.tensor([v]).double() for v in (1.0, 4.0, -0.5, 0.25))
    found = bures_wasserstein2(m, s[:, None], n, t[:, None])
    assert float(found) == pytest.approx((1.5**2 + (2 - 0.5) ** 2) ** 0.5, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_w2_of_gaussians_equals_pot(seed):
    generator = np.random.default_rng(seed)
    m, n = generator.standard_normal((2, 4))
    s, t = covariance(2 * seed), covariance(2 * seed + 1)
    expected = ot.gaussian.bures_wasserstein_distance(m, n, s.numpy(), t.numpy())
    found = bures_wasserstein2(torch.from_numpy(m), s, torch.from_numpy(n), t)
    assert float(found) == pytest.approx(float(expected), rel=1e-8)


def test_w2_of_gaussians_with_singular_covariances_and_in_batches():
    m, zero = torch.zeros(2, 4).double(), torch.zeros(2, 4, 4).double()
    s = torch.stack([covariance(1), covariance(2)])
    found = bures_wasserstein2(m, s, m + 1, zero)  # to a point mass: |shift|^2 + trace
    expected = (4 + s.diagonal(dim1=1, dim2=2).sum(1)).sqrt()
    torch.testing.assert_close(found, expected)
    assert bures_wasserstein2(m, s, m, s).max() < 1e-6
    low = torch.diag(torch.tensor([1.0, 0, 0, 0])).double()
    high = torch.diag(torch.tensor([9.0, 0, 0, 0])).double()
    assert float(bures_wasserstein2(m[0], low, m[0], high)) == pytest.approx(2.0)


def test_w2_of_a_shifted_sample_is_the_l2_norm_of_the_shift():
    sample = torch.from_numpy(np.random.default_rng(0).standard_normal((60, 11)))
    x = torch.linspace(0, 1, 11).double()
    weights = torch.full((11,), 0.1).double()
    weights[[0, -1]] = 0.05
    shift = 3 * x
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    expected = float((weights * shift**2).sum().sqrt())
    found = wasserstein2(sample, (sample + shift)[order], weights)
    assert found == pytest.approx(expected, rel=1e-9)
    assert wasserstein2(sample, sample[order], weights) < 1e-6


def test_w2_in_one_dimension_is_the_distance_of_sorted_samples():
    a, b = torch.from_numpy(np.random.default_rng(1).standard_normal((2, 80, 1)))
    expected = float((a[:, 0].sort()[0] - b[:, 0].sort()[0]).square().mean().sqrt())
    assert wasserstein2(a, b, torch.ones(1)) == pytest.approx(expected, rel=1e-9)


def test_w2_takes_samples_of_different_size():
    a = torch.tensor([[0.0], [1.0]])
    assert wasserstein2(a, torch.tensor([[0.0], [0.0], [1.0], [1.0]]), torch.ones(1)) < 1e-7
    assert wasserstein2(a, torch.tensor([[0.5]]), torch.tensor([4.0])) == pytest.approx(1.0)


def test_crps_of_a_gaussian_ensemble_equals_the_closed_form_within_its_error():
    size, points = 200, 400
    generator = np.random.default_rng(2)
    truth = generator.uniform(-2, 3, points)
    samples = 0.5 + 1.5 * generator.standard_normal((size, points))
    expected = np.mean(scoringrules.crps_normal(truth, 0.5, 1.5))
    singles = scoringrules.crps_ensemble(truth, samples.T, estimator="pwm")
    error = np.std(singles - scoringrules.crps_normal(truth, 0.5, 1.5)) / points**0.5
    found = crps(ascending(torch.from_numpy(samples)), torch.from_numpy(truth))
    assert abs(found - expected) < 4 * error
    assert error < 0.02 * expected


def test_crps_is_unbiased_in_the_ensemble_size():
    generator = np.random.default_rng(3)
    truth = torch.zeros(40_000).double()
    samples = torch.from_numpy(generator.standard_normal((3, 40_000)))
    expected = float(scoringrules.crps_normal(0.0, 0.0, 1.0))
    # a biased estimator is off by E|X - X'| / (2 n) = 0.19 at three members
    assert abs(crps(ascending(samples), truth) - expected) < 0.01


def test_crps_of_a_point_mass_is_the_absolute_error():
    samples, truth = torch.full((5, 2), 1.0).double(), torch.tensor([3.0, 0.5]).double()
    assert crps(ascending(samples), truth) == pytest.approx(1.25)


def test_the_expected_crps_is_the_mean_over_outcomes():
    generator = torch.Generator().manual_seed(8)
    samples = 1e3 + torch.randn(30, 5, generator=generator).double()
    outcomes = 1e3 + torch.randn(20, 5, generator=generator).double().exp()
    ordered = ascending(samples)
    mean = sum(crps(ordered, outcome) for outcome in outcomes) / len(outcomes)
    assert expected_crps(ordered, ascending(outcomes)) == pytest.approx(mean, rel=1e-10)


def test_the_expected_energy_score_is_the_mean_over_outcomes():
    generator = torch.Generator().manual_seed(9)
    samples = torch.randn(30, 5, generator=generator).double()
    outcomes = torch.randn(20, 5, generator=generator).double().exp()
    quadrature = torch.rand(5, generator=generator).double()
    singles = [energy_score(samples, outcome, quadrature) for outcome in outcomes]
    expected = energy_score(samples, outcomes, quadrature)
    assert expected == pytest.approx(sum(singles) / 20, rel=1e-12)


@given(st.floats(-1, 1), st.floats(0.3, 3))
@settings(max_examples=20)
def test_the_expected_crps_is_least_for_the_law_of_the_outcomes(shift, factor):
    """Between Gaussians the excess is the Cramer distance, here to the error of both samples."""
    normal = torch.special.ndtri((torch.arange(4000) + 0.5).double() / 4000)[None]
    own = expected_crps(normal, normal)
    assert own == pytest.approx(1 / np.pi**0.5, rel=2e-3)
    axis = torch.linspace(-20, 20, 40_001).double()
    apart = torch.special.ndtr((axis - shift) / factor) - torch.special.ndtr(axis)
    distance = float(torch.trapezoid(apart.square(), axis))
    assert expected_crps(shift + factor * normal, normal) - own == pytest.approx(distance, abs=3e-3)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_coverage_of_exact_quantiles_is_the_level(level):
    n = 4001
    quantiles = torch.from_numpy(norm.ppf((np.arange(n) + 0.5) / n))
    samples = quantiles[:, None].expand(-1, 2000)
    truth = torch.from_numpy(norm.ppf((np.arange(2000) + 0.5) / 2000))
    assert coverage(ascending(samples), truth, [level]) == [pytest.approx(level, abs=2e-3)]


def test_coverage_tells_too_narrow_from_too_wide():
    generator = np.random.default_rng(4)
    truth = torch.from_numpy(generator.standard_normal(500))
    samples = torch.from_numpy(generator.standard_normal((500, 500)))
    (narrow,), (wide,) = (
        coverage(ascending(samples * factor), truth, [0.9]) for factor in (0.5, 2)
    )
    assert narrow < 0.7 < 0.97 < wide


def test_the_energy_score_agrees_with_an_independent_implementation():
    generator = np.random.default_rng(3)
    samples, truth = generator.standard_normal((60, 7)), generator.standard_normal(7)
    expected = scoringrules.es_ensemble(truth, samples, estimator="fair")
    ones = torch.ones(7, dtype=torch.float64)
    found = energy_score(torch.from_numpy(samples), torch.from_numpy(truth), ones)
    assert found == pytest.approx(float(expected), rel=1e-8)


def test_the_energy_score_sees_wrong_correlations_that_the_crps_does_not():
    generator = torch.Generator().manual_seed(1)
    points, size, sets = 12, 200, 300
    ones = torch.ones(points, dtype=torch.float64) / points

    def coherent(count):
        level = torch.randn(count, 1, generator=generator, dtype=torch.float64)
        return level.expand(count, points).contiguous()

    right, wrong = [], []
    for truth in coherent(sets):
        right.append(energy_score(coherent(size), truth, ones))
        noise = torch.randn(size, points, generator=generator, dtype=torch.float64)
        wrong.append(energy_score(noise, truth, ones))
    difference = np.array(wrong) - np.array(right)
    assert difference.mean() > 4 * difference.std() / sets**0.5


def test_ranks_of_a_calibrated_law_fill_all_bins_and_of_a_narrow_one_the_outer_ones():
    generator = torch.Generator().manual_seed(2)
    truth = torch.randn(20_000, generator=generator, dtype=torch.float64)
    samples = torch.randn(199, 20_000, generator=generator, dtype=torch.float64)
    flat = rank_shares(ascending(samples), truth, 10)
    assert sum(flat) == pytest.approx(1) and max(abs(share - 0.1) for share in flat) < 0.01
    narrow = rank_shares(ascending(0.5 * samples), truth, 10)
    assert narrow[0] > 0.2 and narrow[-1] > 0.2 and narrow[4] < 0.06
    with_boundary = torch.cat([torch.zeros(199, 1).double(), samples], dim=1)
    boundary_truth = torch.cat([torch.zeros(1).double(), truth])
    assert rank_shares(ascending(with_boundary), boundary_truth, 10) == flat


def test_single_precision_changes_no_score_at_points_by_more_than_its_rounding():
    generator = np.random.default_rng(14)
    samples = torch.from_numpy(0.3 + 0.2 * generator.standard_normal((1000, 400)))
    truth = torch.from_numpy(0.3 + 0.2 * generator.standard_normal(400))
    double, single = ascending(samples), ascending(samples.float())
    assert abs(crps(single, truth.float()) - crps(double, truth)) < 1e-7
    levels = (0.5, 0.9, 0.95)
    assert coverage(single, truth.float(), levels) == coverage(double, truth, levels)
    assert rank_shares(single, truth.float(), 10) == rank_shares(double, truth, 10)


def test_bands_at_a_boundary_do_not_count():
    """All samples are zero there, so a band of any level holds a truth of zero."""
    generator = torch.Generator().manual_seed(12)
    samples = torch.randn(400, 50, generator=generator, dtype=torch.float64)
    outcomes = torch.randn(300, 50, generator=generator, dtype=torch.float64)
    inside = coverage(ascending(samples), outcomes, [0.5])
    assert inside == [pytest.approx(0.5, abs=0.02)]  # many outcomes of the same law
    wall = torch.zeros(400, 10, dtype=torch.float64), torch.full((300, 10), 1e-18)
    walled = torch.cat([wall[0], samples], 1), torch.cat([wall[1].double(), outcomes], 1)
    assert coverage(ascending(walled[0]), walled[1], [0.5]) == inside


def test_ends_of_bands_are_quantiles_of_the_samples():
    """Whatever their order: those of torch, which sorts for itself."""
    generator = torch.Generator().manual_seed(11)
    samples = torch.randn(37, 200, generator=generator, dtype=torch.float64)
    for level in (0.5, 0.9):
        edges = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
        low, high = torch.quantile(samples, edges, dim=0)
        ordered = ascending(samples)
        for end, inward in ((low, 1e-9), (high, -1e-9)):
            assert coverage(ordered, end + inward, [level]) == [1.0]
            assert coverage(ordered, end - inward, [level]) == [0.0]


def normal_bins(mean=0.0, std=1.0, n=20_000, points=3):
    """Bins of a normal law without chance: its quantiles at the middles of n equal steps."""
    z = torch.from_numpy(norm.ppf((np.arange(n) + 0.5) / n))
    return quantile_bins((mean + std * z).expand(points, n), 200)


def test_w1_of_shifted_and_of_stretched_normal_laws():
    unit = torch.ones(3).double()
    assert marginal_w1(normal_bins(0.7), normal_bins(), unit) == pytest.approx(0.7, rel=1e-9)
    # |c - 1| E|Z| with E|Z| = sqrt(2 / pi): bins lose nothing where quantiles do not cross.
    for stretch in (0.4, 1.5):
        expected = abs(stretch - 1) * (2 / np.pi) ** 0.5
        assert marginal_w1(normal_bins(0, stretch), normal_bins(), unit) == pytest.approx(
            expected, rel=1e-3
        )
    assert marginal_w1(normal_bins(), normal_bins(), unit) == 0


def test_w1_is_averaged_over_points_and_divided_by_the_mean_std():
    first, second = normal_bins(0.5, 2.0), normal_bins(0.0, 2.0)
    second[:, 0] -= 1.0  # shifts of 1.5, 0.5 and 0.5 where the reference has std 4, 1 and 1
    std = torch.tensor([4.0, 1.0, 1.0]).double()
    assert marginal_w1(first, second, std) == pytest.approx(2.5 / 6, rel=1e-9)


@pytest.mark.parametrize("n", [1, 7, 199, 200, 500, 4000])
def test_bins_share_samples_in_any_number(n):
    samples = torch.from_numpy(np.random.default_rng(n).standard_normal((2, n)) + 1e6)
    ordered = ascending(samples.T)
    repeated = np.repeat(ordered.numpy(), 200, axis=1).reshape(2, 200, n).mean(2)
    found = quantile_bins(ordered.float(), 200)
    np.testing.assert_allclose(quantile_bins(ordered, 200).numpy(), repeated.T, rtol=0, atol=1e-8)
    assert found.dtype == torch.float64 and found.shape == (200, 2)


def test_w1_of_bins_equals_scipys_distance_of_samples():
    generator = np.random.default_rng(3)
    a, b = generator.standard_normal(1000), generator.exponential(size=600)
    found = marginal_w1(
        *(quantile_bins(ascending(torch.from_numpy(x)[:, None]), 200) for x in (a, b)),
        torch.ones(1).double(),
    )
    assert found == pytest.approx(wasserstein_distance(a, b), rel=0.01)


@pytest.mark.parametrize(("bins", "error"), [(50, 6e-3), (200, 2e-3)])
def test_mass_of_a_normal_law_in_the_bands_of_another(bins, error):
    z = torch.from_numpy(norm.ppf((np.arange(20_000) + 0.5) / 20_000)).expand(2, -1)
    theirs, levels = quantile_bins(z, bins), (0.5, 0.9, 0.95)
    assert mass_within(z, theirs, levels) == pytest.approx(levels, abs=error)
    wide = [2 * norm.cdf(2 * norm.ppf((1 + level) / 2)) - 1 for level in levels]
    assert mass_within(2 * z, theirs, levels) == pytest.approx(wide, abs=2 * error)
    beside = norm.cdf(1 + norm.ppf(0.75)) - norm.cdf(1 - norm.ppf(0.75))
    assert mass_within(z + 1, theirs, (0.5,)) == pytest.approx([beside], abs=error)
    assert mass_within(z + 99, theirs, levels) == [0, 0, 0]
    assert mass_within(99 * z, theirs, levels) == [1, 1, 1]


def test_mass_is_counted_where_samples_differ():
    z = torch.from_numpy(norm.ppf((np.arange(1000) + 0.5) / 1000))
    ordered = torch.stack([z, torch.zeros_like(z)])
    assert mass_within(ordered, quantile_bins(ordered, 100), (0.9,)) == pytest.approx(
        [0.9], abs=2e-3
    )

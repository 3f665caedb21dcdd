"""Laws beyond one Gaussian field: each posterior against rejection, and in closed form."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import chi2, kstest, multivariate_normal, norm

from uqsonet.errors import ConfigError, ObservationError
from uqsonet.fields import Grid
from uqsonet.gaussian_process import CosineField, GaussianField, matern, squared_exponential
from uqsonet.priors import BoundedField, MixtureField, StudentField, ThresholdedField
from uqsonet.problems import get_problem

POINTS = Grid((0.0,), (1.0,), (21,)).points()
SENSORS = torch.tensor([4, 12])
SIZE = 20_000


def gaussian(std=0.5, length=0.2, mean=0.0):
    return GaussianField(
        POINTS, lambda x: mean + torch.sin(3 * x[:, 0]), squared_exponential(std, length)
    )


def zero_mean(length=0.3, kernel=None):
    kernel = kernel or squared_exponential(1.0, length)
    return GaussianField(POINTS, lambda x: torch.zeros_like(x[:, 0]), kernel)


MIXTURE = MixtureField([gaussian(), gaussian(0.8, 0.6, -0.6)], [0.3, 0.7])
STUDENT = StudentField(gaussian(0.4), degrees=3, largest=3)
TWO_VALUED = ThresholdedField(zero_mean(), -0.8, 0.8)
BOUNDED = BoundedField(zero_mean(kernel=matern(1.0, 0.3)), -1.2, 1.2)


def assert_same_law(found, expected):
    """Compare means and spreads of two samples, and the joint law of two points in moments."""
    error = expected.std(0) * (1 / len(found) + 1 / len(expected)) ** 0.5
    assert bool(((found.mean(0) - expected.mean(0)).abs() <= 4.5 * error + 1e-6).all())
    scale = expected.T.cov().diagonal().max()
    difference = (found.T.cov() - expected.T.cov()).abs().max()
    assert difference < 8 * scale * (1 / len(found) + 1 / len(expected)) ** 0.5


def rejected(prior, values, noise_std, draws=1_000_000, block=200_000):
    """Prior samples weighted by Gaussian noise at the sensors: kept as often as it allows."""
    generator, kept = np.random.default_rng(7), []
    for _ in range(draws // block):
        x = prior.draw(generator, block)
        off = (x[:, SENSORS] - values).square().sum(1)
        likelihood = torch.exp(-off / (2 * noise_std**2))
        kept.append(x[torch.from_numpy(generator.random(block)) < likelihood])
    return torch.cat(kept)


@pytest.mark.parametrize(
    ("prior", "values"),
    [
        (MIXTURE, (0.9, 0.3)),  # either field may be behind these
        (MIXTURE, (-0.8, -0.7)),
        (STUDENT, (0.5, 0.7)),
        (STUDENT, (2.2, 0.3)),  # far out: a large scale
        (BOUNDED, (1.0, -0.6)),
    ],
)
def test_a_posterior_is_what_rejection_leaves_of_the_prior(prior, values):
    values = torch.tensor(values).double()
    expected = rejected(prior, values, 0.2)
    assert len(expected) > 1000
    law = prior.posterior(POINTS[SENSORS], values, 0.2)
    assert_same_law(law.draw(np.random.default_rng(1), SIZE), expected)


@pytest.mark.parametrize("classes", [(0.8, 0.8), (0.8, -0.8)])
def test_the_posterior_of_two_values_is_what_rejection_leaves(classes):
    values = torch.tensor(classes, dtype=torch.float64)
    x = TWO_VALUED.draw(np.random.default_rng(7), 300_000)
    expected = x[(x[:, SENSORS] == values).all(1)]
    for noise_std in (0.0, 0.1):  # noise that leaves no doubt is no noise
        noisy = values + 0.5 * noise_std
        law = TWO_VALUED.posterior(POINTS[SENSORS], noisy, noise_std)
        found = law.draw(np.random.default_rng(1), SIZE)
        assert bool((found[:, SENSORS] == values).double().mean() > 0.9999)
        assert found.unique().tolist() == [-0.8, 0.8]
        assert_same_law(found, expected)


def test_signs_of_a_latent_field_have_the_arcsine_law():
    x = TWO_VALUED.draw(np.random.default_rng(0), 200_000)
    distance = POINTS[:, 0] - POINTS[0, 0]
    correlation = torch.exp(-(distance**2) / 0.09)
    expected = 0.5 + torch.asin(correlation) / math.pi
    same = (x == x[:, :1]).double().mean(0)
    torch.testing.assert_close(same, expected, rtol=0, atol=0.005)


def test_the_weight_of_a_component_is_its_evidence():
    noise_std, values, at = 0.1, torch.tensor([0.5, 0.2]).double(), POINTS[SENSORS]
    fields, weights = (gaussian(0.5, 0.1), gaussian(0.8, 0.8, -0.6)), []
    for prior, field in zip((0.3, 0.7), fields, strict=True):
        mean, rows = field.rows(at)
        covariance = rows @ rows.T + noise_std**2 * torch.eye(2).double()
        weights.append(prior * multivariate_normal(mean.numpy(), covariance.numpy()).pdf(values))
    expected = weights[0] / sum(weights)
    assert 0.1 < expected < 0.9

    def rough_share(law):  # second differences tell the two fields apart
        return float(
            (law.draw(np.random.default_rng(2), SIZE).diff(n=2).norm(dim=1) > 0.5).double().mean()
        )

    assert rough_share(fields[0]) > 0.999 and rough_share(fields[1]) == 0
    law = MixtureField(fields, [0.3, 0.7]).posterior(at, values, noise_std)
    assert rough_share(law) == pytest.approx(expected, abs=0.02)


def test_noiseless_sensors_are_met_and_decide_between_components():
    for k, field in enumerate((gaussian(), gaussian(0.8, 0.6, -0.6))):
        truth = field.draw(np.random.default_rng(5), 1)[0]
        places = torch.arange(0, 21, 3)
        law = MIXTURE.posterior(POINTS[places], truth[places].float().double(), 0.0)
        x = law.draw(np.random.default_rng(6), 500)
        torch.testing.assert_close(x[:, places], truth[places].expand(500, 7), rtol=0, atol=2e-6)
        alone = field.posterior(POINTS[places], truth[places], 0.0)
        (
            torch.testing.assert_close(
                x.std(0), alone.draw(np.random.default_rng(8), 500).std(0), rtol=0.25, atol=1e-5
            ),
            k,
        )


def test_a_student_process_has_students_marginals_up_to_its_cut():
    x = STUDENT.draw(np.random.default_rng(0), 5000)[:, 10]
    mean = math.sin(3 * float(POINTS[10]))
    kept = chi2(3).sf(3 / 9)

    def cdf(values):
        scales = np.linspace(1e-3, 3, 3000)
        density = chi2(3).pdf(3 / scales**2) * 6 / scales**3 / kept
        z = (np.asarray(values)[:, None] - mean) / (0.4 * scales)
        return np.trapezoid(norm.cdf(z) * density, scales, axis=1)

    assert kstest(x.numpy(), cdf).pvalue > 0.01
    assert kstest((x.numpy() - mean) / 0.4, "norm").pvalue < 1e-6


def test_the_scale_of_a_student_process_follows_its_posterior():
    """Noiseless values fix ``chi^2`` of them given the scale: one integral is its mean."""
    values = torch.tensor([1.8, -0.9]).double()
    mean, rows = gaussian(0.4).rows(POINTS[SENSORS])
    distance = float((values - mean) @ torch.linalg.solve(rows @ rows.T, values - mean))

    def density(s):
        return chi2(3).pdf(3 / s**2) / s**3 * s**-2 * math.exp(-0.5 * distance / s**2)

    total = quad(density, 0.05, 3)[0]
    expected = quad(lambda s: s**2 * density(s), 0.05, 3)[0] / total
    law = STUDENT.posterior(POINTS[SENSORS], values, 0.0)
    x = law.draw(np.random.default_rng(4), SIZE)
    away = (
        gaussian(0.4).posterior(POINTS[SENSORS], values, 0.0).draw(np.random.default_rng(5), SIZE)
    )
    ratio = x[:, 20].var() / away[:, 20].var()
    assert float(ratio) == pytest.approx(expected, rel=0.06)
    assert expected > 2


def test_bounded_samples_keep_within_bounds_and_posteriors_too():
    field = get_problem("bounded1d").prior
    x = field.draw(np.random.default_rng(0), 200)
    grid = get_problem("bounded1d").grid.points()
    law = field.posterior(grid[[17, 50, 79]], torch.tensor([1.15, -1.1, 0.2]).double(), 0.0316)
    y = law.draw(np.random.default_rng(1), 200)
    assert x.shape == y.shape == (200, 128)
    assert 1.1 < float(x.abs().max()) <= 1.2 and 1.15 < float(y.abs().max()) <= 1.2


def test_a_box_that_holds_nothing_is_refused(monkeypatch):
    monkeypatch.setattr("uqsonet.priors.MOST_ROUNDS", 3)
    with pytest.raises(ConfigError, match="stay within 5 and 6"):
        BoundedField(zero_mean(), 5.0, 6.0).draw(np.random.default_rng(0), 10)


@pytest.mark.parametrize(
    ("value", "noise_std"), [(0.5, 0.0), (0.799, 0.0), (0.05, 0.1), (0.8, 0.9), (math.nan, 0.1)]
)
def test_sensors_that_leave_the_class_in_doubt_are_refused(value, noise_std):
    values = torch.tensor([0.8, value]).double()
    with pytest.raises(ObservationError, match=r"values -0\.8 and 0\.8"):
        TWO_VALUED.posterior(POINTS[SENSORS], values, noise_std)


@pytest.mark.parametrize("prior", [MIXTURE, STUDENT, TWO_VALUED, BOUNDED])
def test_one_generator_gives_the_same_bytes(prior):
    law = prior.posterior(POINTS[SENSORS], torch.tensor([0.8, -0.8]).double(), 0.0)
    for one in (prior, law):
        first, again, other = (one.draw(np.random.default_rng(seed), 50) for seed in (1, 1, 2))
        assert first.shape == (50, 21) and first.dtype == torch.float64
        assert torch.equal(first, again) and not torch.equal(first, other)


def test_a_cosine_field_has_the_covariance_of_its_formula():
    n = 7
    field = CosineField(n, lambda v: torch.where(v > 0, 3 / (v + 9), 0.0))
    x = torch.linspace(0, 1, n, dtype=torch.float64)
    expected = torch.zeros(n, n, n, n).double()
    for j in range(n):
        for k in range(n):
            if j + k == 0:
                continue
            std = 3 / (math.pi**2 * (j**2 + k**2) + 9) * 2 ** (0.5 * ((j > 0) + (k > 0)))
            mode = std * torch.cos(math.pi * j * x)[:, None] * torch.cos(math.pi * k * x)
            expected += mode[:, :, None, None] * mode
    expected = expected.reshape(n * n, n * n)
    torch.testing.assert_close(field.factor @ field.factor.T, expected, rtol=0, atol=1e-13)
    points = Grid((0.0, 0.0), (1.0, 1.0), (n, n)).points()
    _, rows = field.rows(points[[3, 20, 41]])
    torch.testing.assert_close(rows, field.factor[[3, 20, 41]], rtol=0, atol=1e-13)
    assert field.leading(1).tolist() in ([1], [n])


def test_darcy_has_the_published_law_of_its_medium():
    """Half of the square conducts well; neighbours agree as the arcsine law says."""
    problem = get_problem("darcy64")
    k = problem.prior.draw(np.random.default_rng(0), 400).reshape(-1, 64, 64)
    frequency = torch.arange(64).double()
    std = 3 / (math.pi**2 * (frequency[:, None] ** 2 + frequency**2) + 9)
    std[0, 0] = 0
    at = [torch.cos(math.pi * frequency * place / 63) * 2**0.5 for place in (31, 35)]
    for row in at:
        row[0] = 1
    a, b = at
    middle, right = (torch.outer(a, a) * std).flatten(), (torch.outer(a, b) * std).flatten()
    correlation = float(middle @ right / (middle.norm() * right.norm()))
    expected = 0.5 + math.asin(correlation) / math.pi
    assert float((k[:, 31, 31] == k[:, 31, 35]).double().mean()) == pytest.approx(
        expected, abs=0.05
    )
    assert float((k == 12).double().mean()) == pytest.approx(0.5, abs=0.03)

"""Laws beyond one Gaussian field: each posterior against rejection, and in closed form."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import chi2, kstest, multivariate_normal, norm

from uqsonet.errors import ObservationError
from uqsonet.fields.grid import Grid
from uqsonet_study.beyond.priors.classes import ThresholdedField
from uqsonet_study.beyond.priors.mixtures import MixtureField, StudentField
from uqsonet_study.priors.gaussian_process import GaussianField, squared_exponential
from uqsonet_study.problems import get_problem

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


MIXTURE_FIELDS = [gaussian(), gaussian(0.8, 0.6, -0.6)]
MIXTURE = MixtureField(MIXTURE_FIELDS, [0.3, 0.7])
STUDENT = StudentField(gaussian(0.4), degrees=3, largest=3)
TWO_VALUED = ThresholdedField(zero_mean(), -0.8, 0.8)


def assert_same_law(found, expected):
    """Compare means and spreads of two samples, and the joint law of two points in moments."""
    error = expected.std(0) * (1 / len(found) + 1 / len(expected)) ** 0.5
    assert bool(((found.mean(0) - expected.mean(0)).abs() <= 4.5 * error + 1e-6).all())
    scale = expected.T.cov().diagonal().max()
    difference = (found.T.cov() - expected.T.cov()).abs().max()
    assert difference < 8 * scale * (1 / len(found) + 1 / len(expected)) ** 0.5


@pytest.mark.parametrize(
    ("prior", "values"),
    [
        (MIXTURE, (0.9, 0.3)),  # either field may be behind these
        (STUDENT, (0.5, 0.7)),
        (STUDENT, (2.2, 0.3)),  # far out: a large scale
    ],
)
def test_a_posterior_is_what_rejection_leaves_of_the_prior(prior, values):
    """Kept are draws as often as Gaussian noise at the sensors allows."""
    values, noise_std, generator = torch.tensor(values).double(), 0.2, np.random.default_rng(7)
    x = prior.draw(generator, 500_000)
    likelihood = torch.exp(-(x[:, SENSORS] - values).square().sum(1) / (2 * noise_std**2))
    expected = x[torch.from_numpy(generator.random(len(x))) < likelihood]
    assert len(expected) > 600
    law = prior.posterior(POINTS[SENSORS], values, noise_std)
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
        x = law.draw(np.random.default_rng(2), SIZE)
        return float((x.diff(n=2).norm(dim=1) > 0.5).double().mean())

    assert rough_share(fields[0]) > 0.999 and rough_share(fields[1]) == 0
    law = MixtureField(fields, [0.3, 0.7]).posterior(at, values, noise_std)
    assert rough_share(law) == pytest.approx(expected, abs=0.02)


def test_noiseless_sensors_are_met_and_decide_between_components():
    for field in MIXTURE_FIELDS:
        truth = field.draw(np.random.default_rng(5), 1)[0]
        places = torch.arange(0, 21, 3)
        law = MIXTURE.posterior(POINTS[places], truth[places].float().double(), 0.0)
        x = law.draw(np.random.default_rng(6), 500)
        torch.testing.assert_close(x[:, places], truth[places].expand(500, 7), rtol=0, atol=2e-6)
        alone = field.posterior(POINTS[places], truth[places], 0.0)
        alone = alone.draw(np.random.default_rng(8), 500)
        torch.testing.assert_close(x.std(0), alone.std(0), rtol=0.25, atol=1e-5)


def test_a_student_process_has_students_marginals_up_to_its_cut():
    x = STUDENT.draw(np.random.default_rng(0), 3000)[:, 10]
    mean = math.sin(3 * float(POINTS[10]))
    kept = chi2(3).sf(3 / 9)

    def cdf(values):
        scales = np.linspace(1e-3, 3, 1000)
        density = chi2(3).pdf(3 / scales**2) * 6 / scales**3 / kept
        z = (np.asarray(values)[:, None] - mean) / (0.4 * scales)
        return np.trapezoid(norm.cdf(z) * density, scales, axis=1)

    assert kstest(x.numpy(), cdf).pvalue > 0.01
    assert kstest((x.numpy() - mean) / 0.4, "norm").pvalue < 1e-4


def test_the_scale_of_a_student_process_follows_its_posterior():
    """Noiseless values fix ``chi^2`` of them given the scale: one integral is its mean."""
    values = torch.tensor([1.8, -0.9]).double()
    mean, rows = gaussian(0.4).rows(POINTS[SENSORS])
    distance = float((values - mean) @ torch.linalg.solve(rows @ rows.T, values - mean))

    def density(s):
        return chi2(3).pdf(3 / s**2) / s**3 * s**-2 * math.exp(-0.5 * distance / s**2)

    total = quad(density, 0.05, 3)[0]
    expected = quad(lambda s: s**2 * density(s), 0.05, 3)[0] / total
    x, away = (
        prior.posterior(POINTS[SENSORS], values, 0.0).draw(np.random.default_rng(seed), SIZE)
        for prior, seed in ((STUDENT, 4), (gaussian(0.4), 5))
    )
    assert float(x[:, 20].var() / away[:, 20].var()) == pytest.approx(expected, rel=0.06)
    assert expected > 2


@pytest.mark.parametrize(
    ("value", "noise_std"), [(0.5, 0.0), (0.799, 0.0), (0.05, 0.1), (0.8, 0.9), (math.nan, 0.1)]
)
def test_sensors_that_leave_the_class_in_doubt_are_refused(value, noise_std):
    values = torch.tensor([0.8, value]).double()
    with pytest.raises(ObservationError, match=r"values -0\.8 and 0\.8"):
        TWO_VALUED.posterior(POINTS[SENSORS], values, noise_std)


def test_darcy_has_the_published_law_of_its_medium():
    """Half of the square conducts well; neighbours agree as the arcsine law says."""
    problem = get_problem("darcy128")
    k = problem.prior.draw(np.random.default_rng(0), 400).reshape(-1, 128, 128)
    frequency = torch.arange(128).double()
    std = 3 / (math.pi**2 * (frequency[:, None] ** 2 + frequency**2) + 9)
    std[0, 0] = 0
    a, b = (torch.cos(math.pi * frequency * place / 127) * 2**0.5 for place in (63, 71))
    a[0] = b[0] = 1
    middle, right = (torch.outer(a, other) * std for other in (a, b))
    correlation = float((middle * right).sum() / (middle.norm() * right.norm()))
    same = float((k[:, 63, 63] == k[:, 63, 71]).double().mean())
    assert same == pytest.approx(0.5 + math.asin(correlation) / math.pi, abs=0.05)
    assert float((k == 12).double().mean()) == pytest.approx(0.5, abs=0.03)

"""Clusters and scales: what is fitted, and the closed form against dense formulas."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm
from torch import Tensor

from tests.answers import input_given
from tests.laws.conftest import (
    COVARIANCES,
    MEANS,
    SMALL,
    functions_of,
    gaussian_fields,
    kernel,
    model_of,
    seeded,
    student_fields,
    two_fields,
    waves,
)
from uqsonet.fields.cloud import Point
from uqsonet.fitting.choose_law import input_sample
from uqsonet.laws import clusters
from uqsonet.laws.bases import SINGLE_PRECISION
from uqsonet.laws.components import Components
from uqsonet.laws.mixture import MixtureLaw
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.runs.functions import Functions

SPREAD = torch.empty(0)  # of runs as components, which there are none of in these laws

Sensors = tuple[Tensor, Tensor, Tensor]
"""Locations (m, 1), values (m,), noise (m,)."""


def fit(model: KarhunenLoeveModel, kappa: np.ndarray) -> MixtureLaw:
    rows = torch.from_numpy(kappa.astype(np.float32))
    sample = input_sample(model, Functions(model.fields, "training", rows, rows))
    return MixtureLaw.fit(sample, 0)


@pytest.fixture(scope="module")
def kappa() -> np.ndarray:
    return two_fields(np.random.default_rng(1), 10_000)


@pytest.fixture(scope="module")
def model(kappa: np.ndarray) -> KarhunenLoeveModel:
    """A model whose mixture has three clusters of four scales, all of them known."""
    model = model_of(kappa, 6)
    rng = np.random.default_rng(2)
    weights = torch.from_numpy(rng.dirichlet(np.ones(12)).reshape(3, 4))
    roots = torch.from_numpy(0.5 * rng.standard_normal((3, 6, 6))).tril() + torch.eye(6).double()
    scales = torch.tensor([0.4, 0.8, 1.3, 3.0], dtype=torch.float64)
    means, left = torch.from_numpy(rng.standard_normal((3, 6))), torch.tensor([0.02, 0.05, 0.1])
    block = Components(weights.log(), scales, means, roots, left.double())
    model.use_law(MixtureLaw([block], {}, SPREAD))
    return model


@pytest.fixture(scope="module")
def fitted(kappa: np.ndarray) -> tuple[KarhunenLoeveModel, MixtureLaw]:
    model = model_of(kappa, 12)
    return model, fit(model, kappa)


def dense(model: KarhunenLoeveModel, sensors: Sensors) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return weights (k,), means (k, r) and covariances (k, r, r) of the posterior's components."""
    x, values, noise = sensors
    (block,), bases = model.law.blocks, model.bases
    rows = SMALL.interpolate(bases.input_factor.double(), x).numpy()
    y = values.numpy() - SMALL.interpolate(bases.input_mean[:, None], x)[:, 0].numpy()
    least = SINGLE_PRECISION**2 * float(bases.input_factor.double().square().sum(1).mean())
    logs, means, covariances = [], [], []
    for mean, root, left, weights in zip(
        *(t.numpy() for t in (block.means, block.roots)),
        block.remainder.tolist(),
        block.log_weights.tolist(),
        strict=True,
    ):
        for scale, weight in zip(block.scales.tolist(), weights, strict=True):
            prior = scale**2 * root @ root.T
            level = np.diag(noise.numpy() ** 2 + left**2 + least)
            seen = rows @ prior @ rows.T + level
            gain = np.linalg.solve(seen, rows @ prior).T
            evidence = multivariate_normal(rows @ mean, seen).logpdf(y) if len(y) else 0.0
            logs.append(weight + evidence)
            means.append(mean + gain @ (y - rows @ mean))
            covariances.append(prior - gain @ rows @ prior)
    share = np.exp(np.array(logs) - np.logaddexp.reduce(logs))
    return share, np.array(means), np.array(covariances)


def sensors(kind: str, seed: int = 3) -> Sensors:
    """Return sensors of one truth, anywhere in the domain."""
    rng = np.random.default_rng(seed)
    count = {"none": 0, "one": 1, "more than modes": 15}.get(kind, 4)
    x = rng.random((count, 1))
    noise = np.full(count, 0.1)
    if kind == "noise of each":
        noise = np.array([0.0, 0.01, 0.3, 2.0])
    if kind == "exact":
        noise = np.zeros(count)
    if kind == "repeated":
        x[2], noise = x[0], np.array([0.1, 0.1, 0.3, 0.0])
    values = np.interp(x[:, 0], np.linspace(0, 1, 24), two_fields(rng, 1)[0])
    found = (x, values + noise * rng.standard_normal(count), noise)
    return tuple(torch.from_numpy(t) for t in found)


KINDS = ("none", "one", "exact", "noise of each", "repeated", "more than modes")


@pytest.mark.parametrize("kind", KINDS)
def test_moments_and_samples_are_those_of_dense_formulas(model, kind):
    x, values, noise = given = sensors(kind)
    posterior = input_given(model, x, values, None, noise)
    assert (posterior.tail is None) == (kind == "none")
    share, means, covariances = dense(model, given)
    mean = share @ means
    second = np.tensordot(share, covariances + means[:, :, None] * means[:, None], 1)
    found = posterior.linear_moments(torch.eye(6, dtype=torch.float64))
    assert np.abs(posterior.weights[0].numpy() - share).max() < 1e-8
    for ours in (posterior.mean[0], found[0][0]):
        assert np.abs(ours.numpy() - mean).max() < 1e-8
    assert np.abs(found[1][0].numpy() - second + np.outer(mean, mean)).max() < 1e-8
    # Samples, along random directions: a mean and a variance do not tell two peaks from one.
    size = 50_000
    drawn = posterior.sample(size, seeded())[0].double().numpy()
    for along in np.random.default_rng(5).standard_normal((4, 6)):
        centre, std = means @ along, np.sqrt(np.einsum("i,kij,j->k", along, covariances, along))
        for edge in np.quantile(drawn @ along, [0.02, 0.3, 0.5, 0.7, 0.98]):
            below = share @ norm.cdf((edge - centre) / std)
            assert (drawn @ along < edge).mean() == pytest.approx(below, abs=2.5 / size**0.5)


def test_tail_is_the_probability_of_values_as_far(model, monkeypatch):
    """Draws of the law with their own sensors have tails of which each share p is below p."""
    law, size = model.law, 4000
    generator = seeded(4)
    a = input_given(model, [], []).sample(size, generator)[0].double()
    x = torch.tensor([[0.1], [0.35], [0.8]], dtype=torch.float64)
    rows = SMALL.interpolate(model.bases.input_factor.double(), x)
    mean = SMALL.interpolate(model.bases.input_mean[:, None], x)[:, 0]
    noise = 0.2 * torch.randn(size, 3, generator=generator, dtype=torch.float64)
    block = law.blocks[0].replaced(remainder=torch.zeros(3, dtype=torch.float64))
    exact = MixtureLaw([block], {}, SPREAD)
    monkeypatch.setattr(model, "law", exact)
    tail = input_given(model, x.expand(size, 3, 1), mean + a @ rows.T + noise, None, 0.2).tail
    far = input_given(model, x, mean + 60.0, None, 0.2).tail
    # The probability, with (c, s) drawn anew, that the distance of a draw is larger: for one
    # cluster and scale it is uniform, for a mixture it has the mean of a uniform and no small part
    # is more frequent than a few times its share.
    assert float(far[0]) < 1e-10
    for p in (0.001, 0.01, 0.1):
        assert float((tail < p).double().mean()) < 3 * p + 3 * (p / size) ** 0.5


def test_a_fitted_mixture_answers_as_the_true_one(fitted):
    """Fields are stated on the grid here: nothing of the model's bases is in the reference."""
    model, law = fitted
    assert [len(block.means) for block in law.blocks][-1] == 2
    model.use_law(law)
    rng = np.random.default_rng(6)
    errors = []
    for truth in two_fields(rng, 12):
        at = rng.choice(24, 3, replace=False)
        y = truth[at] + 0.1 * rng.standard_normal(3)
        logs, means, seconds = [], [], []
        for mean, covariance in zip(MEANS, COVARIANCES, strict=True):
            seen = covariance[np.ix_(at, at)] + 0.01 * np.eye(3)
            gain = np.linalg.solve(seen, covariance[at]).T
            means.append(mean + gain @ (y - mean[at]))
            variance = covariance.diagonal() - (gain * covariance[at].T).sum(1)
            seconds.append(variance + means[-1] ** 2)
            logs.append(multivariate_normal(mean[at], seen).logpdf(y))
        share = np.exp(np.array(logs) - np.logaddexp(*logs))
        mean = share @ np.array(means)
        std = np.sqrt(share @ np.array(seconds) - mean**2)
        answer = model.condition(SMALL.points()[at], y, None, 0.1)
        exact = [(answer.mean(), mean), (answer.std(), std)]
        errors.append([np.linalg.norm(f.numpy() - e) / np.linalg.norm(e) for f, e in exact])
    assert np.mean(errors, 0) == pytest.approx([0, 0], abs=0.02)


def test_scales_of_a_student_process_are_found(monkeypatch):
    monkeypatch.setattr(clusters, "CLUSTERS", (1,))
    rng = np.random.default_rng(3)
    kappa = student_fields(rng, 6000)
    model = model_of(kappa, 8)
    sample = input_sample(model, functions_of(kappa))
    found = clusters.fitted(sample.coefficients, sample.remainder, rng, True)
    assert len(found.scales) > 1
    law = MixtureLaw([found], {}, SPREAD)
    model.use_law(law)
    size = 200_000
    scale = np.sqrt(3 / rng.chisquare(3, size))
    scale = scale[scale < 3]
    covariance = kernel(0.3, 0.35)
    at, errors = [3, 11, 18], []
    for y in (np.zeros(3), np.array([0.2, -0.1, 0.1]), np.array([1.5, 1.2, 1.0])):
        # The scale's law given the values, by importance weights on draws of it.
        seen = covariance[np.ix_(at, at)]
        distance = y @ np.linalg.solve(seen, y)
        weight = scale**-3.0 * np.exp(-distance / (2 * scale**2))
        square = (weight @ scale**2) / weight.sum()
        gain = np.linalg.solve(seen + 1e-9 * np.eye(3), covariance[at]).T
        mean = gain @ y
        std = np.sqrt(square * (covariance.diagonal() - (gain * covariance[at].T).sum(1)).clip(0))
        answer = model.condition(SMALL.points()[at], y)
        errors.append(np.linalg.norm(answer.std().numpy() - std) / np.linalg.norm(std))
        if y.any():
            assert np.linalg.norm(answer.mean().numpy() - mean) / np.linalg.norm(mean) < 0.05
    # With a Gaussian law the first and last are more than 30 % off.
    assert max(errors) < 0.08, errors


def test_clusters_that_all_inputs_do_not_have_give_way_to_one() -> None:
    """Numbers of which half stand at an end: clusters of some of them shrink to it with others."""
    kappa = np.clip(np.exp(np.random.default_rng(0).standard_normal((80, 1))), 0, 1)
    sample = input_sample(model_of(kappa, 1, Point()), functions_of(kappa, Point()))
    a = sample.coefficients
    found = clusters.fitted(a, sample.remainder, np.random.default_rng(0), True)
    mean = (found.log_weights.exp().sum(1)[:, None] * found.means).sum(0)
    assert float(mean) == pytest.approx(float(a.mean()), abs=0.05)


def test_one_gaussian_law_is_taken_where_it_is_right() -> None:
    kappa = gaussian_fields(np.random.default_rng(1), 400, kernel(0.3))
    (block,) = fit(model_of(kappa, 10), kappa).blocks
    assert block.log_weights.shape == (1, 1)


@pytest.fixture(scope="module")
def waving() -> KarhunenLoeveModel:
    kappa = waves(np.random.default_rng(1), 1500)
    model = model_of(kappa, 10)
    model.use_law(fit(model, kappa))
    return model


def test_every_run_is_a_component_of_a_law_that_nobody_foresaw(waving) -> None:
    """Three numbers say all: by weighting of draws; a Gaussian law has a std ten times as large."""
    rng, at, noise = np.random.default_rng(2), [2, 8, 13, 20], 0.05
    drawn = waves(rng, 1_000_000)
    law, errors = waving.law, []
    assert len(law.tensors()["runs"]) == 1500
    for truth in waves(rng, 8):
        y = truth[at] + noise * rng.standard_normal(4)
        weight = np.exp(-(((drawn[:, at] - y) / noise) ** 2).sum(1) / 2)
        weight /= weight.sum()
        mean = weight @ drawn
        std = np.sqrt((weight @ drawn**2 - mean**2).clip(0))
        found = []
        for one in (law, None):
            waving.use_law(one)
            answer = waving.condition(SMALL.points()[at], y, None, noise)
            found += [np.linalg.norm(answer.mean() - mean), np.linalg.norm(answer.std() - std)]
        errors.append([*found, np.linalg.norm(std)])
    waving.use_law(law)
    off, spread, off_gaussian, spread_gaussian, std = np.mean(errors, 0)
    assert off < 0.7 * std and spread < 0.6 * std
    assert off < 0.3 * off_gaussian and spread < 0.3 * spread_gaussian


def test_moments_of_many_components_are_those_of_their_samples(waving) -> None:
    x, y = SMALL.points()[[3, 9, 17]], torch.tensor([0.3, -0.2, 0.4])
    posterior = input_given(waving, x, y, None, 0.2)
    drawn = posterior.sample(20_000, seeded())[0].double()
    mean, covariance = (t[0] for t in posterior.linear_moments(torch.eye(drawn.shape[1])))
    std = covariance.diagonal().sqrt()
    assert float(((drawn.mean(0) - mean) / std).abs().max()) < 5 / 20_000**0.5
    assert float((drawn.T.cov() - covariance).abs().max()) < 0.05 * float(std.max()) ** 2
    z = torch.randn(20_000, posterior.normals, generator=seeded(), dtype=torch.float64)
    made = posterior.made(z, seeded())
    assert float(((made.mean(0) - mean) / std).abs().max()) < 5 / 20_000**0.5
    assert float((made.T.cov() - covariance).abs().max()) < 0.05 * float(std.max()) ** 2

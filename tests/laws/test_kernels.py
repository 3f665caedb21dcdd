"""A family of kernels: fields whose length differs from run to run."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.answers import input_given
from tests.laws.conftest import (
    LENGTHS,
    MEANS,
    SMALL,
    functions_of,
    gaussian_fields,
    kernel,
    length_fields,
    model_of,
    two_values,
)
from uqsonet.fields.cloud import Point
from uqsonet.fields.field import Field
from uqsonet.fields.grid import Grid
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.fields.stacked import JointDomain
from uqsonet.fitting.choose_law import input_sample
from uqsonet.laws import kernels
from uqsonet.laws.bases import InputSample, KarhunenLoeveBases
from uqsonet.laws.mixture import MixtureLaw
from uqsonet.operator.model import KarhunenLoeveModel

HALF = torch.arange(0, 24, 2)
SPREAD = torch.empty(0)  # of runs as components, which there are none of here


def fitted(kappa: np.ndarray, modes: int) -> KarhunenLoeveModel:
    model = model_of(kappa, modes)
    sample = input_sample(model, functions_of(kappa))
    members = kernels.fitted(sample, np.random.default_rng(0))
    model.use_law(None if members is None else MixtureLaw([members], {}, SPREAD))
    return model


def given(
    covariances: Sequence[np.ndarray], at: list[int], off: np.ndarray, noise: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and std of Gaussian laws of mean zero, equally often, given values at points."""
    means, variances, evidence = [], [], []
    for whole in covariances:
        seen = whole[np.ix_(at, at)] + noise * np.eye(len(at))
        gain = np.linalg.solve(seen, whole[at]).T
        means.append(gain @ off)
        variances.append(np.diag(whole) - (gain * whole[:, at]).sum(1))
        evidence.append(-0.5 * (off @ np.linalg.solve(seen, off) + np.linalg.slogdet(seen)[1]))
    weights = np.exp(np.array(evidence) - max(evidence))
    weights /= weights.sum()
    mean = weights @ np.array(means)
    second = weights @ (np.array(variances) + np.array(means) ** 2)
    return mean, np.sqrt(second - mean**2)


def exact(at: list[int], values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and std of the true law of `length_fields` given values at points."""
    every = [kernel(length, 0.5) for length in LENGTHS]
    mean, std = given(every, at, values - MEANS[0][at], 1e-4)
    return MEANS[0] + mean, std


def errors(model: KarhunenLoeveModel, count: int) -> tuple[float, float]:
    """Return relative errors of mean and std given so many sensors, over twenty fields."""
    rng, found = np.random.default_rng(5), []
    for truth in length_fields(rng, 20):
        at = sorted(rng.choice(24, count, replace=False).tolist())
        noisy = truth[at] + 0.01 * rng.standard_normal(count)
        posterior = input_given(model, SMALL.points()[at], torch.from_numpy(noisy), None, 0.01)
        factor = model.bases.input_factor.double()
        moments = posterior.linear_moments(factor)
        assert moments is not None
        mean = (model.bases.input_mean + moments[0][0]).numpy()
        own = mean, moments[1][0].diagonal().sqrt().numpy()
        pairs = zip(own, exact(at, noisy), strict=True)
        found.append([np.linalg.norm(one - true) / np.linalg.norm(true) for one, true in pairs])
    mean, std = np.mean(found, 0)
    return float(mean), float(std)


@pytest.fixture(scope="module")
def model() -> KarhunenLoeveModel:
    return fitted(length_fields(np.random.default_rng(1), 1500), 20)


@pytest.mark.parametrize(
    ("count", "limits"), [(1, (0.03, 0.02)), (3, (0.03, 0.03)), (6, (0.03, 0.06))]
)
def test_fitted_kernels_answer_as_the_true_law(model, count, limits):
    found = errors(model, count)
    assert found[0] < limits[0] and found[1] < limits[1]
    if count == 6:  # one Gaussian law is far from it
        single = model_of(length_fields(np.random.default_rng(1), 1500), 20)
        assert errors(single, count)[1] > 5 * found[1]


@pytest.mark.parametrize("noise", [1e-4, 1e-3])
def test_noise_of_the_runs_does_not_make_smooth_fields_look_rough(noise):
    rng = np.random.default_rng(1)
    kappa = length_fields(rng, 1500)
    noisy = fitted(kappa + noise * rng.standard_normal(kappa.shape), 20)
    for count, limits in ((1, (0.01, 0.01)), (3, (0.01, 0.015))):
        found = errors(noisy, count)
        assert found[0] < limits[0] and found[1] < limits[1]


def test_weights_are_shares_of_few_members(model):
    law = model.law
    weights = law.blocks[0].log_weights.exp()
    assert float(weights.sum()) == pytest.approx(1.0)
    assert float(weights.sum(1).min()) > kernels.MIN_WEIGHT / 2
    scale = float((weights.sum(0) @ law.blocks[0].scales.square()).sqrt())
    assert scale == pytest.approx(0.5, rel=0.05)


def test_the_mean_is_nearer_than_the_average(model):
    """Smooth fields count for more: the average has the error of the rough ones."""
    bases, mean = model.bases, torch.from_numpy(MEANS[0])
    own = bases.input_mean + bases.input_factor.double() @ model.law.blocks[0].means[0]

    def roughness(error: Tensor) -> float:
        return float(error.diff(n=2).norm())

    assert roughness(own - mean) < 0.5 * roughness(bases.input_mean - mean)


def test_covariances_of_members_are_those_of_their_kernels():
    kappa = gaussian_fields(np.random.default_rng(2), 300, kernel(0.15))
    bases = model_of(kappa, 12).bases
    to, x = bases.from_fields(), SMALL.points()
    whole = kernels._covariances(x, bases, torch.arange(24))
    rough = torch.exp(-(x - x.T).abs() / 0.2)
    for (number, length), true in (((0, 0.3), torch.from_numpy(kernel(0.3))), ((1, 0.2), rough)):
        wanted, member = to.T @ true @ to, (number, length)
        assert torch.allclose(whole(member), wanted, atol=1e-9 * float(wanted.amax()))
    few = model_of(kappa, 6).bases
    every = torch.arange(24)
    all_points, half = (kernels._covariances(x, few, rows) for rows in (every, HALF))
    smooth = 0, 0.6
    off = half(smooth) - all_points(smooth)
    assert float(off.abs().amax()) < 0.05 * float(all_points(smooth).amax())


def test_axes_are_made_alike():
    """Fields that vary four times as fast along y have points that are four times as far there."""
    grid = Grid((0.0, 0.0), (1.0, 1.0), (16, 16))
    points = grid.points().numpy() * [1.0, 4.0]
    apart = ((points[:, None] - points) ** 2).sum(-1)
    fields = gaussian_fields(np.random.default_rng(3), 400, np.exp(-apart / 1.5**2))
    made = kernels._alike_axes(grid.points(), torch.from_numpy(fields), np.random.default_rng(0))
    span = made.amax(0) - made.amin(0)
    assert float(span[1] / span[0]) == pytest.approx(4, rel=0.25)


def test_a_periodic_axis_is_a_circle():
    grid = Grid((0.0,), (2.0,), (20,), periodic=True)
    placed = kernels._coordinates(grid)
    apart = torch.cdist(placed, placed)[0]
    assert float(apart[1]) == pytest.approx(float(apart[-1]))
    assert float(apart[1]) == pytest.approx(0.1, rel=0.01)
    assert torch.equal(kernels._coordinates(SMALL), SMALL.points())


@pytest.mark.parametrize("shape", [(2,), (4, 5), (2, 3, 2)])
@pytest.mark.parametrize("varied", [False, True])
def test_fields_that_do_not_vary_along_some_axes(shape, varied):
    """Nothing tells lengths along these; mean and variance are known all the same."""
    grid = Grid((0.0,) * len(shape), (1.0,) * len(shape), shape)
    rng = np.random.default_rng(1)
    lines = rng.standard_normal((60, shape[0] if varied else 1))
    across = lines.reshape(60, -1, *[1] * (len(shape) - 1))
    kappa = np.broadcast_to(across, (60, *shape)).reshape(60, -1)
    model = model_of(kappa, lines.shape[1], grid)
    members = kernels.fitted(input_sample(model, functions_of(kappa, grid)), rng)
    model.use_law(MixtureLaw([members], {}, SPREAD))
    factor = model.bases.input_factor.double()
    mean, covariance = input_given(model, [], []).linear_moments(factor)
    np.testing.assert_allclose(mean[0] + model.bases.input_mean, kappa.mean(0), atol=0.2)
    np.testing.assert_allclose(covariance[0].diagonal().sqrt(), kappa.std(0), rtol=0.25)


def test_classes_numbers_and_several_fields_have_no_kernels():
    numbers = np.random.default_rng(1).exponential(size=(60, 1))
    sample = input_sample(model_of(numbers, 1, Point()), functions_of(numbers, Point()))
    assert kernels.fitted(sample, np.random.default_rng(0)) is None
    kappa = two_values(np.random.default_rng(1), 100)
    assert fitted(kappa, 6).law.name == "gaussian"
    joint = JointDomain((SMALL, SMALL))
    fields = OperatorFields("own", Field("k", joint), Field("u", joint))
    bases, nothing = KarhunenLoeveBases(fields, 5, 5), torch.zeros(60, dtype=torch.float64)
    sample = InputSample(bases, torch.rand(60, 48), nothing[:, None].expand(-1, 5), nothing)
    assert kernels.fitted(sample, np.random.default_rng(0)) is None

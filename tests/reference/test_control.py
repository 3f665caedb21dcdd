"""The quadratic control: exact moments by another way, and nothing left of a quadratic problem."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.conftest import ToyLinear
from tests.reference.coarse import modes_of
from uqsonet.gaussian import GaussianLaw, condition
from uqsonet.reference.control import Control, Features
from uqsonet.reference.sampling import ControlledSampler


class ToySquare(ToyLinear):
    """``u = kappa^2``, a quadratic function of the two coordinates."""

    name = "toy_square"

    def solve(self, kappa: Tensor) -> Tensor:
        return kappa.square()


def nodes(law: GaussianLaw) -> tuple[Tensor, Tensor]:
    """Return coordinates (k, r) and weights of Gauss-Hermite quadrature, exact to degree 9."""
    x, w = np.polynomial.hermite_e.hermegauss(5)
    rank = law.mean.shape[-1]
    z = torch.tensor(list(product(x, repeat=rank))).double()
    weights = torch.tensor([np.prod(some) for some in product(w, repeat=rank)]).double()
    return law.coordinates(z), weights / weights.sum()


def averages(values: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    mean = weights @ values
    centred = values - mean
    return mean, (centred * weights[:, None]).T @ centred


@pytest.mark.parametrize("noise_std", [0.0, 0.4])
@pytest.mark.parametrize("count", [1, 2])
def test_moments_of_features_are_those_of_quadrature(noise_std, count):
    generator = torch.Generator().manual_seed(count)
    rows = torch.randn(count, 4, generator=generator, dtype=torch.float64)
    law = condition(rows, torch.tensor([0.7, -1.2]).double()[:count], noise_std, None)
    index = torch.tensor([3, 0, 2])
    directions = torch.linalg.qr(torch.randn(3, 2, generator=generator).double()).Q
    features = Features(index, directions)
    xi, weights = nodes(law)
    found = features.moments(law)
    for ours, theirs in zip(found, averages(features.of(xi), weights), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    assert found[0].shape == (6,) and torch.linalg.eigvalsh(found[1]).min() > -1e-12


@pytest.mark.parametrize("noise_std", [0.0, 0.3])
def test_a_quadratic_problem_is_exact_from_any_two_samples(noise_std):
    toy = ToySquare()
    vectors = modes_of(toy.sample(np.random.default_rng(0), 50)[1], 2)
    sampler = ControlledSampler(toy, vectors, np.random.default_rng(0), 100)
    law = toy.prior.condition(toy.grid.points()[[5]], torch.tensor([1.8]).double(), noise_std)
    found = sampler.moments(law, np.random.default_rng(1), 2)
    xi, weights = nodes(law)
    mean, covariance = averages(toy.pairs(xi, None)[1], weights)
    torch.testing.assert_close(found.mean, mean, rtol=0, atol=1e-9)
    torch.testing.assert_close(found.variance, covariance.diagonal(), rtol=0, atol=1e-9)
    modal = vectors.T @ covariance @ vectors
    torch.testing.assert_close(found.mode_covariance, modal, rtol=0, atol=1e-9)
    assert mean.std() > 0.1 and covariance.diagonal().max() > 0.1


def test_the_control_does_not_depend_on_how_its_samples_are_cut():
    toy = ToySquare()
    generator = np.random.default_rng(3)
    xi = torch.from_numpy(generator.standard_normal((900, 2)))
    u = toy.pairs(xi, None)[1] + 0.1 * torch.from_numpy(generator.standard_normal((900, 33)))
    index, vectors = torch.tensor([0, 1]), modes_of(u, 2)
    one, other = (
        Control(zip(xi.split(size), u.split(size), strict=True), index, vectors).of(xi[:5])
        for size in (500, 50)
    )
    torch.testing.assert_close(one, other, rtol=0, atol=1e-9)

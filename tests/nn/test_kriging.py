"""The Karhunen-Loeve architecture before training is cokriging, intrinsic randomness included."""

import numpy as np
import pytest
import torch

from uqsonet.baselines import Cokriging
from uqsonet.config import KrigingNetwork
from uqsonet.nn.kriging import KrigingUQSONet, residual_root
from uqsonet.problems import get_problem
from uqsonet.simulation import Functions


@pytest.fixture(scope="module")
def functions() -> Functions:
    problem = get_problem("elliptic_sde1d")
    kappa, u = problem.sample(np.random.default_rng(3), 600)
    return Functions(problem, "training", kappa.float(), u[:, ::4].float())


@pytest.fixture(scope="module")
def model(functions: Functions) -> KrigingUQSONet:
    network = KrigingNetwork(input_modes=256, output_modes=64, branch=[8])
    model = KrigingUQSONet("elliptic_sde1d", network, 0.1)
    with torch.no_grad():
        model.fit_constants(functions)
    return model


def test_untrained_it_samples_the_law_of_cokriging(functions, model):
    x, y = [[-0.6], [0.1], [0.55]], [1.4, 2.0, 0.8]
    queries = functions.problem.training_grid()[0].points()
    law, exact = model.condition(x, y), Cokriging(functions, 0.1).condition(x, y)
    sample = law.sample(40_000, queries, torch.Generator().manual_seed(0))
    std = exact.std(queries)
    inside = std > 1e-6
    z = (sample.mean(0) - exact.mean(queries))[inside] / (std[inside] / 200)
    assert z.abs().max() < 4.5
    assert ((sample.std(0) / std)[inside] - 1).abs().max() < 4.5 / (2 * 40_000) ** 0.5


def test_without_the_intrinsic_latent_the_band_would_be_too_narrow(functions, model):
    x, y = [[-0.6], [0.1]], [1.4, 2.0]
    queries = functions.problem.training_grid()[0].points()
    whole = model.condition(x, y).std(queries)
    root = model.intrinsic_root.clone()
    model.intrinsic_root.zero_()
    assert model.condition(x, y).std(queries).mean() < 0.9 * whole.mean()
    model.intrinsic_root.copy_(root)


def test_the_residual_root_is_that_of_the_unexplained_covariance():
    generator = torch.Generator().manual_seed(1)
    a = torch.randn(500, 4, generator=generator).double()
    weight, noise = torch.randn(3, 4, generator=generator).double(), torch.tensor([1.0, 0.1, 0.0])
    unexplained = torch.randn(500, 3, generator=generator).double() * noise
    root = residual_root(a, a @ weight.T + unexplained, weight)
    torch.testing.assert_close(root @ root.T, unexplained.T @ unexplained / 500)


def test_fixed_operators_have_no_intrinsic_latent():
    network = KrigingNetwork(input_modes=4, output_modes=3, branch=[2])
    assert "intrinsic_root" not in KrigingUQSONet("diffusion1d", network, 0.0).state_dict()

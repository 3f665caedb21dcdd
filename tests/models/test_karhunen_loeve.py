"""The Karhunen-Loeve architecture before training is cokriging, plus slopes of the covariance."""

from copy import deepcopy

import numpy as np
import pytest
import torch

from uqsonet.baselines import Cokriging
from uqsonet.data import Functions
from uqsonet.models.karhunen_loeve import KarhunenLoeveModel
from uqsonet.problems import get_problem
from uqsonet_study.config import KarhunenLoeveNetwork


@pytest.fixture(scope="module")
def functions() -> Functions:
    problem = get_problem("elliptic_sde1d")
    kappa, u = problem.sample(np.random.default_rng(3), 2000)
    return Functions(problem.fields, "training", kappa.float(), u[:, ::4].float())


@pytest.fixture(scope="module")
def model(functions: Functions) -> KarhunenLoeveModel:
    network = KarhunenLoeveNetwork(input_modes=256, output_modes=64, branch=[8])
    model = KarhunenLoeveModel(get_problem("elliptic_sde1d").fields, network, 0.1)
    with torch.no_grad():
        model.fit_constants(functions)
    return model


def test_untrained_and_without_slopes_it_samples_the_law_of_cokriging(functions, model):
    x, y = [[-0.6], [0.1], [0.55]], [1.4, 2.0, 0.8]
    queries = functions.fields.training_grid()[0].points()
    model = deepcopy(model)
    model.residual_slopes.zero_()
    law, exact = model.condition(x, y), Cokriging(functions, 0.1).condition(x, y)
    sample = law.sample(40_000, queries, torch.Generator().manual_seed(0))
    std = exact.std(queries)
    inside = std > 1e-6
    z = (sample.mean(0) - exact.mean(queries))[inside] / (std[inside] / 200)
    assert z.abs().max() < 4.5
    assert ((sample.std(0) / std)[inside] - 1).abs().max() < 4.5 / (2 * 40_000) ** 0.5


def test_without_the_unobserved_latent_the_band_would_be_too_narrow(functions, model):
    x, y = [[-0.6], [0.1]], [1.4, 2.0]
    queries = functions.fields.training_grid()[0].points()
    whole = model.condition(x, y).std(queries)
    narrow = deepcopy(model)
    narrow.residual_covariance.zero_()
    narrow.residual_slopes.zero_()
    assert narrow.condition(x, y).std(queries).mean() < 0.9 * whole.mean()


def test_sample_functions_have_the_skewness_of_the_operators_own_randomness(functions):
    """An unobserved factor that is lognormal: u = e^w g(x), whatever kappa is."""
    generator = torch.Generator().manual_seed(6)
    grid = functions.fields.training_grid()[0].points()
    amplitude = (0.5 * torch.randn(functions.size, 1, generator=generator)).exp()
    u = amplitude * (1 - grid[:, 0] ** 2)
    other = Functions(functions.fields, "training", functions.kappa, u.float())
    model = KarhunenLoeveModel(
        get_problem("elliptic_sde1d").fields,
        KarhunenLoeveNetwork(input_modes=16, output_modes=4, branch=[4]),
        0.1,
    )
    with torch.no_grad():
        model.fit_constants(other)
    law = model.condition([[0.2]], [1.4])
    drawn = law.sample(20_000, torch.zeros(1, 1).double(), torch.Generator().manual_seed(7))
    levels = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95]).double()
    found = drawn.flatten().quantile(levels)
    exact = (0.5 * torch.special.ndtri(levels)).exp()  # Gaussian: 0.16 at 5 %, where this is 0.44
    assert (found / exact - 1).abs().max() < 0.06


def test_where_k_is_small_the_operator_leaves_more_open(functions, model):
    queries = functions.fields.training_grid()[0].points()
    problem = get_problem("elliptic_sde1d")
    typical = problem.transform.inverse(problem.prior.mean[::20])
    x = problem.grid.points()[::20]
    narrow, wide = (
        model.condition(x, factor * typical).std(queries).mean() for factor in (1.3, 0.7)
    )
    assert wide > 1.2 * narrow


def test_fixed_operators_have_no_unobserved_latent():
    network = KarhunenLoeveNetwork(input_modes=4, output_modes=3, branch=[2])
    state = KarhunenLoeveModel(get_problem("diffusion1d").fields, network, 0.0).state_dict()
    assert not [name for name in state if name.startswith("residual")]


@pytest.fixture
def nonlinear(functions):
    """A model whose perceptron does something: random weights."""
    network = KarhunenLoeveNetwork(input_modes=64, output_modes=24, branch=[16])
    model = KarhunenLoeveModel(get_problem("elliptic_sde1d").fields, network, 0.1)
    with torch.no_grad():
        model.fit_constants(functions)
        generator = torch.Generator().manual_seed(5)
        for tensor in model.network.parameters():
            tensor.copy_(0.3 * torch.randn(tensor.shape, generator=generator))
    return model


def test_moments_with_a_closed_form_part_are_those_of_the_samples(nonlinear):
    x, y = [[-0.6], [0.1], [0.55]], [1.4, 2.0, 0.8]
    law = nonlinear.condition(x, y)
    size = 200_000
    drawn = law.coefficient_samples(size, torch.Generator().manual_seed(1))[0]
    mean, covariance = (value[0] for value in law.coefficient_moments(20_000))
    std = drawn.std(0)
    assert ((mean - drawn.mean(0)).abs() / std).max() < 5 * (1 / size + 1 / 20_000) ** 0.5
    ratio = covariance.diagonal().sqrt() / std
    assert (ratio - 1).abs().max() < 5 * (0.5 / size + 0.5 / 20_000) ** 0.5 * 2


def test_samples_are_mapped_in_blocks_that_change_nothing(nonlinear):
    x, y = [[[-0.6], [0.1]], [[0.2], [0.5]]], [[1.4, 2.0], [0.8, 0.9]]
    law = nonlinear.input_posterior(x, y)
    with torch.no_grad():
        straight, added = nonlinear.drawn(law, 1500, torch.Generator().manual_seed(2))
        a = law.sample(1500, torch.Generator().manual_seed(2))
        torch.testing.assert_close(added, nonlinear.network(a), rtol=1e-6, atol=1e-6)
    assert straight.shape == added.shape


def test_moments_of_a_linear_branch_have_no_sampling_error(model):
    law = model.condition([[-0.6], [0.1]], [1.4, 2.0])
    few, many = law.coefficient_moments(16), law.coefficient_moments(4096)
    for one, other in zip(few, many, strict=True):
        assert (one - other).abs().max() < 1e-5 * other.abs().max()


def test_what_training_explains_is_no_longer_left_open(nonlinear):
    """``C_0 + E[g g^T]`` and the slopes' counterpart stay what the linear residual has."""
    size = 100_000
    a = torch.randn(size, 64, generator=torch.Generator().manual_seed(9))
    with torch.no_grad():
        added = (nonlinear.linear(a) + nonlinear.network(a)).double()
        left, slopes = nonlinear._residual_law()
    explained = added.T @ added / size
    total = nonlinear.residual_covariance
    assert (left + explained - total).norm() < 0.05 * explained.norm()
    along = (a[:, :1].double() * added).T @ added / size
    change = nonlinear.residual_slopes[0].double() - slopes[0]
    assert (change - along).norm() < 0.2 * along.norm() + 0.02 * explained.norm()


def test_changed_weights_are_noticed(nonlinear):
    before = nonlinear._residual_law()[0].clone()
    with torch.no_grad():
        nonlinear.network.layers[-1].weight.mul_(2)
    assert not torch.equal(nonlinear._residual_law()[0], before)


def test_without_the_skip_the_perceptron_starts_at_the_mean_of_u(functions):
    network = KarhunenLoeveNetwork(input_modes=16, output_modes=8, branch=[8], linear_skip=False)
    model = KarhunenLoeveModel(get_problem("elliptic_sde1d").fields, network, 0.1)
    with torch.no_grad():
        model.fit_constants(functions)
    assert not [name for name, _ in model.named_parameters() if name.startswith("linear")]
    law = model.condition([[-0.6], [0.1]], [1.4, 2.0])
    mean, covariance = (value[0] for value in law.coefficient_moments(64))
    assert mean.abs().max() == 0
    # All of u counts as left open, so the band is the prior's up to the slopes.
    std = covariance.diagonal().sqrt() * model.bases.output_scale.double()
    coefficients = model.bases.targets(functions)["c"].double() * model.bases.output_scale.double()
    assert (std / coefficients.std(0) - 1).abs().max() < 0.5

"""VIDON on the kriged input starts at cokriging and learns a mean that is not linear."""

from copy import deepcopy

import numpy as np
import pytest
import torch

from tests.conftest import ToyLinear
from tests.training.test_linear_gaussian import fit, random_layouts
from uqsonet.baselines import Cokriging
from uqsonet.data import Functions
from uqsonet.errors import NoUncertaintyError, ObservationError
from uqsonet.gaussian import condition
from uqsonet.models.base import build_model
from uqsonet.problems import get_problem
from uqsonet_study.config import KarhunenLoeveSetNetwork, TrainingConfig

PLACES, VALUES = [[-0.6], [0.1], [0.55]], [1.4, 2.0, 0.8]


@pytest.fixture(scope="module")
def functions() -> Functions:
    problem = get_problem("diffusion1d")
    kappa, u = problem.sample(np.random.default_rng(3), 1000)
    return Functions(problem.fields, "training", kappa.float(), u[:, ::4].float())


@pytest.fixture(scope="module")
def model(functions):
    network = KarhunenLoeveSetNetwork(input_modes=256, output_modes=64, branch=[8])
    model = build_model("vidon", get_problem("diffusion1d").fields, network, 0.1)
    with torch.no_grad():
        model.fit_constants(functions)
    return model


def test_untrained_it_is_the_mean_of_cokriging(functions, model):
    queries = functions.fields.training_grid()[0].points()
    found = model.condition(PLACES, VALUES).mean(queries)
    exact = Cokriging(functions, 0.1).condition(PLACES, VALUES).mean(queries)
    assert (found - exact).abs().max() < 1e-5 * exact.abs().max()


def test_it_has_no_spread_and_one_noise_level(model):
    with pytest.raises(NoUncertaintyError):
        model.condition(PLACES, VALUES).std()
    with pytest.raises(ObservationError, match=r"noise_std = 0\.1, asked for 0.5"):
        model.condition(PLACES, VALUES, noise_std=0.5)


def test_order_and_padding_of_sensors_have_no_influence(model):
    model = deepcopy(model)
    with torch.no_grad():
        model.network.layers[-1].weight.normal_(generator=torch.Generator().manual_seed(0))
    whole = model.condition(PLACES, VALUES).mean()
    turned = model.condition(PLACES[::-1], VALUES[::-1]).mean()
    padded = model.condition([*PLACES, [0.9]], [*VALUES, 5.0], [True] * 3 + [False]).mean()
    assert (turned - whole).abs().max() < 1e-5 * whole.abs().max()
    assert (padded - whole).abs().max() < 1e-5 * whole.abs().max()


@pytest.mark.parametrize("noise_std", [0.0, 0.3])
def test_the_embedding_is_mean_and_variance_of_the_dense_posterior(model, noise_std):
    observations, _ = model.fields.input.observations(PLACES, VALUES)
    h = model.embed(observations, noise_std)[0].double()
    factor, mean = model.bases.input_factor.double(), model.bases.input_mean
    stacked = model.fields.input.grid.interpolate(
        torch.cat([mean[:, None], factor], 1), observations.locations[0]
    )
    rows, residual = stacked[:, 1:], observations.values[0].log() - stacked[:, 0]
    level = noise_std**2 + float(model.bases.input_remainder) ** 2
    gain = torch.linalg.solve(rows @ rows.T + level * torch.eye(3).double(), rows).T
    expected = torch.cat([gain @ residual, 1 - (gain * rows.T).sum(1)])
    assert (h - expected).abs().max() < 1e-4
    assert condition(rows, residual, noise_std, None).mean.shape == (256,)


def test_it_learns_a_mean_that_no_linear_predictor_has():
    """With ``u = shape(x) xi_1^2``, E[u | O] is ``shape (mean^2 + variance)`` of xi_1."""
    toy = get_problem("toy_linear")
    generator = torch.Generator().manual_seed(2)
    xi = torch.randn(20_000, 2, generator=generator, dtype=torch.float64)
    grid = toy.grid.points()[:, 0]
    shape = 1.4 * (1 - grid[::2] ** 2)
    u = xi[:, :1] ** 2 * shape
    functions = Functions(
        toy.fields, "training", (1 + xi @ ToyLinear.shapes(grid).T).float(), u.float()
    )
    network = KarhunenLoeveSetNetwork(input_modes=2, output_modes=1, branch=[32, 32])
    training = TrainingConfig(iterations=400, batch_size=500, learning_rate=1e-2, schedule="cosine")
    layouts = {m: random_layouts(m) for m in (1, 3)}
    model = fit(network, training, functions, layouts, method="vidon")
    for m, layout in layouts.items():
        some = torch.randn(100, 2, generator=generator, dtype=torch.float64)
        kappa = 1 + some @ ToyLinear.shapes(grid).T
        noise = torch.randn(100, m, generator=generator, dtype=torch.float64)
        x, y = toy.fields.input.read(kappa, layout[torch.arange(100) % len(layout)], noise)
        rows = ToyLinear.shapes(x[..., 0])
        law = condition(rows, y - 1, 1.0, None)
        variance = 1 - (law.variance_reduction * law.directions[..., 0] ** 2).sum(-1)
        exact = (law.mean[:, 0] ** 2 + variance)[:, None] * shape
        found = model.condition(x, y).mean(toy.training_grid()[0].points())
        linear = (1 * shape).expand_as(exact)
        assert (found - exact).norm() < 0.1 * exact.norm()
        assert (linear - exact).norm() > 0.3 * exact.norm()

"""The Karhunen-Loeve architecture before training is cokriging, plus slopes of the covariance.

VIDON on the kriged input starts there, too, and learns a mean that is not linear. Last, the
covariance of what kappa leaves open, on laws where it is known.
"""

from copy import deepcopy

import numpy as np
import pytest
import torch

from tests.conftest import ToyLinear
from tests.training.test_linear_gaussian import fit, random_layouts
from uqsonet.gauss.gaussian import condition, covariance_root
from uqsonet.networks.config import KarhunenLoeveSetNetwork
from uqsonet.networks.settings import TrainingConfig
from uqsonet.operator import closed_form as random_operator
from uqsonet.operator.base import build_model
from uqsonet.operator.baselines import Cokriging
from uqsonet.operator.closed_form import (
    KEPT,
    residual_covariance,
    residual_slopes,
    standardised_residuals,
    unexplained,
)
from uqsonet.operator.config import KarhunenLoeveNetwork
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.runs.functions import Functions
from uqsonet.sensors.sensors import Sensors, checked_sensors
from uqsonet_study.problems import get_problem

PLACES, VALUES = [[-0.6], [0.1], [0.55]], [1.4, 2.0, 0.8]


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
    x, y = PLACES, VALUES
    queries = functions.fields.training_grid()[0].points()
    model = deepcopy(model)
    model.residual_slopes.zero_()
    law, exact = model.condition(x, y), Cokriging(functions, 0.1).condition(x, y)
    moments = law.law.moments(16), law.law.moments(4096)
    for few, many in zip(*moments, strict=True):  # of a linear branch they have no sampling error
        assert (few - many).abs().max() < 1e-5 * many.abs().max()
    sample = law.sample(40_000, queries, torch.Generator().manual_seed(0))
    std = exact.std(queries)
    inside = std > 1e-6
    z = (sample.mean(0) - exact.mean(queries))[inside] / (std[inside] / 200)
    assert z.abs().max() < 4.5
    assert ((sample.std(0) / std)[inside] - 1).abs().max() < 4.5 / (2 * 40_000) ** 0.5


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
    x, y = PLACES, VALUES
    law = nonlinear.condition(x, y)
    size = 200_000
    drawn = law.law.sample(size, torch.Generator().manual_seed(1))[0]
    mean, covariance = (value[0] for value in law.law.moments(20_000))
    std = drawn.std(0)
    assert ((mean - drawn.mean(0)).abs() / std).max() < 5 * (1 / size + 1 / 20_000) ** 0.5
    ratio = covariance.diagonal().sqrt() / std
    assert (ratio - 1).abs().max() < 5 * (0.5 / size + 0.5 / 20_000) ** 0.5 * 2


def test_even_samples_have_the_moments_of_the_law(nonlinear):
    """A thousand of them are as near as several thousand independent ones."""
    law, many = nonlinear.condition(PLACES, VALUES).law, 200_000
    drawn = law.sample(many, torch.Generator().manual_seed(1))[0]
    even = law.even(1024)[0]
    std = drawn.std(0)
    error = ((even.mean(0) - drawn.mean(0)) / std).square().mean().sqrt()
    assert error < 2 * (1 / 4096 + 1 / many) ** 0.5
    assert ((even.std(0) / std) - 1).abs().mean() < 2 / (2 * 1024) ** 0.5


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
    with torch.no_grad():
        nonlinear.network.layers[-1].weight.mul_(2)
    assert not torch.equal(nonlinear._residual_law()[0], left)  # changed weights are noticed


def test_without_the_skip_the_perceptron_starts_at_the_mean_of_u(functions):
    network = KarhunenLoeveNetwork(input_modes=16, output_modes=8, branch=[8], linear_skip=False)
    model = KarhunenLoeveModel(get_problem("elliptic_sde1d").fields, network, 0.1)
    with torch.no_grad():
        model.fit_constants(functions)
    assert not [name for name, _ in model.named_parameters() if name.startswith("linear")]
    law = model.condition([[-0.6], [0.1]], [1.4, 2.0])
    mean, covariance = (value[0] for value in law.law.moments(64))
    assert mean.abs().max() == 0
    # All of u counts as left open, so the band is the prior's up to the slopes.
    std = covariance.diagonal().sqrt() * model.bases.output_scale.double()
    coefficients = model.targets(functions)["c"].double() * model.bases.output_scale.double()
    assert (std / coefficients.std(0) - 1).abs().max() < 0.5


@pytest.fixture(scope="module")
def fixed() -> Functions:
    problem = get_problem("diffusion1d")
    kappa, u = problem.sample(np.random.default_rng(3), 1000)
    return Functions(problem.fields, "training", kappa.float(), u[:, ::4].float())


@pytest.fixture(scope="module")
def vidon(fixed):
    network = KarhunenLoeveSetNetwork(input_modes=256, output_modes=64, branch=[8])
    model = build_model("vidon", get_problem("diffusion1d").fields, network, 0.1)
    with torch.no_grad():
        model.fit_constants(fixed)
    return model


def test_untrained_vidon_is_the_mean_of_cokriging(fixed, vidon):
    queries = fixed.fields.training_grid()[0].points()
    found = vidon.condition(PLACES, VALUES).mean(queries)
    exact = Cokriging(fixed, 0.1).condition(PLACES, VALUES).mean(queries)
    assert (found - exact).abs().max() < 1e-5 * exact.abs().max()


@pytest.mark.parametrize("noise_std", [0.0, 0.3])
def test_the_embedding_is_mean_and_variance_of_the_dense_posterior(vidon, noise_std):
    observations = checked_sensors(vidon.fields.input, PLACES, VALUES, noise_std=noise_std)
    h = vidon.embed(observations)[0].double()
    factor, mean = vidon.bases.input_factor.double(), vidon.bases.input_mean
    stacked = vidon.fields.input.grid.interpolate(
        torch.cat([mean[:, None], factor], 1), observations.locations[0]
    )
    rows, residual = stacked[:, 1:], observations.values[0].log() - stacked[:, 0]
    level = noise_std**2 + float(vidon.bases.input_remainder) ** 2
    gain = torch.linalg.solve(rows @ rows.T + level * torch.eye(3).double(), rows).T
    expected = torch.cat([gain @ residual, 1 - (gain * rows.T).sum(1)])
    assert (h - expected).abs().max() < 1e-4


@pytest.mark.parametrize("noise_std", [0.0, 0.3])
@pytest.mark.parametrize("name", ["diffusion1d", "toy_linear"])
def test_sensors_on_the_grid_have_the_embedding_of_sensors_anywhere(name, noise_std):
    """The toy is of rank 2: modes leave nothing out, and exact sensors see two numbers."""
    problem = get_problem(name)
    kappa, u = problem.sample(np.random.default_rng(3), 600)
    u = u[:, problem.training_grid()[1]]
    functions = Functions(problem.fields, "training", kappa, u)
    modes = 2 if name == "toy_linear" else 256
    network = KarhunenLoeveSetNetwork(input_modes=modes, output_modes=2, branch=[8])
    model = build_model("vidon", problem.fields, network, noise_std)
    with torch.no_grad():
        model.fit_constants(functions)
    generator = torch.Generator().manual_seed(4)
    index = torch.rand(50, problem.grid.size, generator=generator).argsort(1)[:, :5]
    mask = torch.arange(5) < torch.arange(50)[:, None] % 5 + 1
    x, y = problem.fields.input.read(kappa[:50], index)
    found, expected = model.embed_on_grid(index, y, mask), model.embed(Sensors(x, y, mask))
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(model.embed_on_grid(index[4::5], y[4::5], None), found[4::5])


def test_vidon_learns_a_mean_that_no_linear_predictor_has():
    """With ``u = shape(x) xi_1^2``, E[u | O] is ``shape (mean^2 + variance)`` of xi_1."""
    toy = get_problem("toy_linear")
    generator = torch.Generator().manual_seed(2)
    xi = torch.randn(10_000, 2, generator=generator, dtype=torch.float64)
    grid = toy.grid.points()[:, 0]
    shape = 1.4 * (1 - grid[::2] ** 2)
    u = xi[:, :1] ** 2 * shape
    functions = Functions(
        toy.fields, "training", (1 + xi @ ToyLinear.shapes(grid).T).float(), u.float()
    )
    network = KarhunenLoeveSetNetwork(input_modes=2, output_modes=1, branch=[32, 32])
    training = TrainingConfig(iterations=200, batch_size=500, learning_rate=1e-2, schedule="cosine")
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
        assert (found - exact).norm() < 0.1 * exact.norm()
        assert (shape - exact).norm() > 0.3 * exact.norm()  # the best linear predictor


def residual_pairs(size, slopes, noise=1.0):
    """Residuals with covariance ``noise^2 + sum_j a_j S_j``, diagonal S_j, and random weights."""
    generator = torch.Generator().manual_seed(1)
    a = torch.randn(size, len(slopes), generator=generator).double()
    weight = torch.randn(slopes.shape[1], len(slopes), generator=generator).double()
    variance = (noise**2 + a @ slopes).clamp_min(0)
    r = torch.randn(size, slopes.shape[1], generator=generator).double() * variance.sqrt()
    return a, a @ weight.T + r, weight


def test_slopes_are_found(monkeypatch):
    slopes = torch.tensor([[0.2, 0.0, 0.1], [0.0, -0.2, 0.0], [0.0, 0.0, 0.0]]).double()
    a, c, weight = known = residual_pairs(200_000, slopes)
    r = c - a @ weight.T
    torch.testing.assert_close(residual_covariance(unexplained(*known)), r.T @ r / len(a))
    found = residual_slopes(a, r)
    monkeypatch.setattr(random_operator, "PRODUCT_ROWS", 64_000)  # blocks change nothing
    torch.testing.assert_close(residual_slopes(a, r), found)
    # The standard error of an entry is about sqrt(3 / 200,000) = 0.004.
    assert (found - torch.diag_embed(slopes)).abs().max() < 0.025
    few = residual_pairs(300, torch.zeros(40, 3).double())
    noise = residual_slopes(few[0], unexplained(*few))
    assert (noise.flatten(1).norm(dim=1) == 0).double().mean() > 0.3  # what may be noise is cut


@pytest.mark.parametrize("size", [700, KEPT + 500])
def test_residuals_are_standardised_and_keep_their_shape(size):
    """With covariance C given back they are the residuals themselves, less their mean."""
    generator = torch.Generator().manual_seed(4)
    mixing = torch.randn(3, 3, generator=generator).double()
    r = torch.randn(size, 3, generator=generator).double().exp() @ mixing.T
    found = standardised_residuals(r)
    assert found.shape == (KEPT, 3)
    assert found.mean(0).abs().max() < 1e-10
    torch.testing.assert_close(found.T @ found / KEPT, torch.eye(3).double())
    repeated = r[torch.arange(KEPT) % size]
    centred = repeated - repeated.mean(0)
    back = found @ covariance_root(centred.T @ centred / KEPT)
    torch.testing.assert_close(back, centred)
    broken = torch.diag(torch.tensor([2.0, -0.5]).double())  # its nearest covariance has a root
    assert (covariance_root(broken).square()).tolist() == [[pytest.approx(2.0), 0.0], [0.0, 0.0]]


def test_directions_with_nothing_left_open_stay_zero():
    a, c, weight = residual_pairs(400, torch.zeros(4, 3).double())
    c[:, 2] = a @ weight[2]
    found = standardised_residuals(unexplained(a, c, weight))
    assert found.isfinite().all() and found[:, 2].abs().max() < 1e-6
    nothing = standardised_residuals(unexplained(a, a @ weight.T, weight))
    assert nothing.isfinite().all()

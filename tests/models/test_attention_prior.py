"""The learned set embedding: invariances, and the exact law of a linear-Gaussian operator."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from tests.training.test_linear_gaussian import (
    draw_functions,
    errors,
    fit,
    random_layouts,
)
from uqsonet.errors import ConfigError, ObservationError
from uqsonet.gauss.given import Gaussian
from uqsonet.networks.config import AttentionPriorNetwork
from uqsonet.networks.settings import TrainingConfig
from uqsonet.operator.base import build_model
from uqsonet.runs.functions import Functions
from uqsonet_study.loading import load_config
from uqsonet_study.problems import get_problem

PLACES, VALUES = [[-0.6], [0.1], [0.55]], [1.4, 2.0, 0.8]
NETWORK = AttentionPriorNetwork(
    input_modes=6, output_modes=8, branch=[16], width=16, heads=2, correction=[16], group=4
)


@pytest.fixture(scope="module")
def functions() -> Functions:
    problem = get_problem("diffusion1d")
    kappa, u = problem.sample(np.random.default_rng(3), 200)
    return Functions(problem.fields, "training", kappa.float(), u[:, ::4].float())


@pytest.fixture(scope="module")
def model(functions):
    torch.manual_seed(0)
    found = build_model("uqsonet", functions.fields, NETWORK, 0.1).eval()
    found.fit_constants(functions)
    return found


@torch.no_grad()
@pytest.mark.parametrize("noise_std", [0.0, 0.3])
def test_the_linear_part_is_averaged_over_all_pairs(functions, noise_std):
    """Beside the mean of -log p(z | h(O)) over every pair, noise drawn many times."""
    torch.manual_seed(0)
    model = build_model("uqsonet", functions.fields, NETWORK, noise_std).double()
    model.fit_constants(functions)
    generator = torch.Generator().manual_seed(2)
    index = torch.randint(401, (3, 4), generator=generator)
    law = model.prior(functions.fields.input.grid.points()[index], None)
    field = functions.kappa.double().log()
    a = (field - field.mean(0)) @ model.bases.to_coefficients
    draws = 400 if noise_std else 1
    values = (field - field.mean(0))[:, index].movedim(0, 1)[:, None].expand(-1, draws, -1, -1)
    noise = torch.randn(values.shape, generator=generator, dtype=torch.float64)
    values = (values + noise_std * noise) / model.value_std
    mean = torch.cholesky_solve((values.flatten(1, 2) @ law.response).mT, law.root).mT
    z = a.expand(3, draws, -1, -1).flatten(1, 2)
    normal = torch.distributions.MultivariateNormal(
        mean, precision_matrix=(law.root @ law.root.mT)[:, None]
    )
    size = law.log_diagonal.sum(-1).mean()
    squares = -normal.log_prob(z).mean() - a.shape[1] / 2 * math.log(2 * math.pi) + size
    expected = squares * len(a) / (len(a) - 1) - size  # a covariance divides by N - 1
    rel = 0.01 if noise_std else 1e-5
    assert float(model.averaged(law, index)) == pytest.approx(float(expected), rel=rel)


def test_a_sensor_adds_its_own_gaussian_factor_where_factors_are_summed(functions):
    """p(z | two sensors) is p(z | one) p(z | the other) / p(z), at any two places.

    To an average (softmax), two sensors at one place are one: it cannot count.
    """
    torch.manual_seed(0)
    network = NETWORK.model_copy(update={"pooling": "softmax"})
    average, prior = (
        build_model("uqsonet", functions.fields, one, 0.1).prior for one in (network, NETWORK)
    )
    once, twice = (average(torch.full((1, m, 1), 0.3), None).root for m in (1, 2))
    assert torch.allclose(once, twice, rtol=1e-5)
    x = torch.tensor([[[-0.6], [0.3]]])
    one, other, both = (prior(places, None) for places in (x[:, :1], x[:, 1:], x))
    parts = one.root @ one.root.mT + other.root @ other.root.mT - torch.eye(6)
    assert torch.allclose(both.root @ both.root.mT, parts, atol=1e-5)
    assert torch.allclose(both.response, torch.cat([one.response, other.response], 1))


def test_samples_have_the_moments_of_the_law():
    generator = torch.Generator().manual_seed(1)
    root = torch.randn(2, 3, 3, generator=generator, dtype=torch.float64).tril()
    root.diagonal(dim1=1, dim2=2).abs_().add_(0.5)
    mean = torch.randn(2, 3, generator=generator, dtype=torch.float64)
    weight = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    law = Gaussian(mean, torch.linalg.inv(root))
    exact = torch.linalg.inv(root.transpose(1, 2) @ root)
    of_mean, of_covariance = law.linear_moments(weight)
    assert torch.allclose(of_mean, mean @ weight.T)
    assert torch.allclose(of_covariance, weight @ exact @ weight.T)
    for drawn in (law.sample(200_000, generator).double(), law.even(8192).double()):
        for one, centre, covariance in zip(drawn, mean, exact, strict=True):
            largest = covariance.diagonal().max()
            assert (one.mean(0) - centre).abs().max() < 0.02 * largest.sqrt()
            assert (one.T.cov() - covariance).abs().max() < 0.02 * largest


def test_it_finds_the_exact_law_of_a_linear_gaussian_operator():
    """No network is told that the law is Gaussian, what its kernel is, or how large noise is."""
    network = AttentionPriorNetwork(
        input_modes=2, output_modes=2, branch=[], width=32, correction=[16], group=4
    )
    training = TrainingConfig(
        iterations=300,
        batch_size=256,
        learning_rate=5e-3,
        schedule="cosine",
        average_decay=0.98,
        gradient_clip=10.0,
    )
    layouts = {m: random_layouts(m) for m in (1, 2)}
    model = fit(network, training, draw_functions(10_000), layouts)
    for m, layout in layouts.items():
        mean, std = errors(model, layout)
        assert mean < 0.025 and std < 0.015, (m, mean, std)


def test_what_it_cannot_do_is_refused(model, functions):
    with pytest.raises(ObservationError, match=r"noise_std = 0\.1, asked for 0.5"):
        model.condition(PLACES, VALUES, noise_std=0.5)
    with pytest.raises(ConfigError, match="learns its law"):
        model.use_law(None)
    with pytest.raises(ConfigError, match="elliptic_sde1d is random"):
        build_model("uqsonet", get_problem("elliptic_sde1d").fields, NETWORK, 0.0)
    raw = yaml.safe_load(Path("config.yaml").read_text(encoding="utf-8"))
    method = {
        "network": {"architecture": "attention_prior"},
        "training": {"iterations": 10, "batch_size": 100},
    }
    raw["recipes"]["attention"] = {"diffusion1d": {"uqsonet": method}}
    with pytest.raises(ConfigError, match=r"network\.group: 8 functions share their sensors"):
        load_config(raw)
    method["training"] |= {"batch_size": 96, "protocol": "fixed_batches"}
    with pytest.raises(ConfigError, match="found 96 and fixed_batches"):
        load_config(raw)

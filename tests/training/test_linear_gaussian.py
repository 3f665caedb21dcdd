"""On a linear-Gaussian operator the exact posterior is known, and every method must find it.

A random line is seen at one or two places with noise, u is a linear map of it. Scored is the
relative L2 error of posterior mean and std over observation sets and points, with z from its prior.
"""

from functools import partial

import numpy as np
import pytest
import torch

from uqsonet.gauss.given import spread
from uqsonet.networks.config import AttentionNetwork
from uqsonet.networks.settings import TrainingConfig
from uqsonet.networks.train import set_weights
from uqsonet.operator import baselines
from uqsonet.operator.base import build_model
from uqsonet.operator.baselines import Cokriging
from uqsonet.operator.config import KarhunenLoeveNetwork
from uqsonet.runs.functions import Functions
from uqsonet_study.baselines import SensorFree
from uqsonet_study.gradients import ChunkOptimiser
from uqsonet_study.layouts import uniform_layouts
from uqsonet_study.problems import get_problem
from uqsonet_study.trainer import BatchSampler

TOLERANCE = 0.02
"""Fixed before any training; Monte Carlo contributes about 0.003 of it."""

NOISE = 1.0
TOY = get_problem("toy_linear")
QUERIES = TOY.training_grid()[0].points()


def draw_functions(size: int) -> Functions:
    kappa, u = TOY.sample(np.random.default_rng(1), size)
    return Functions(TOY.fields, "training", kappa.float(), u[:, ::2].float())


def observation_sets(layouts: torch.Tensor, noise_std: float):
    """Hundred test functions seen at given layouts."""
    generator = np.random.default_rng(99)
    kappa, _ = TOY.sample(generator, 100)
    noise = noise_std * torch.from_numpy(generator.standard_normal((100, layouts.shape[1])))
    return TOY.fields.input.read(kappa, layouts[torch.arange(100) % len(layouts)], noise)


def errors(model, layouts: torch.Tensor, noise_std: float = NOISE, samples: int = 16_384):
    """Relative L2 errors of mean and std against the closed form."""
    x, y = observation_sets(layouts, noise_std)
    exact = [TOY.exact_posterior(a, b, noise_std, QUERIES) for a, b in zip(x, y, strict=True)]
    mean = torch.stack([m for m, _ in exact])
    std = torch.stack([c.diagonal().clamp_min(0).sqrt() for _, c in exact])
    posterior = model.condition(x, y, noise_std=noise_std)
    coefficients, covariance = posterior.law.moments(samples)
    offset, basis = posterior.basis(QUERIES)
    found = offset + coefficients @ basis.T, spread(basis, covariance)
    return [float((f - e).norm() / e.norm()) for f, e in zip(found, (mean, std), strict=True)]


def fit(network, training: TrainingConfig, functions: Functions, layouts, method="uqsonet"):
    torch.manual_seed(1)
    model = build_model(method, get_problem("toy_linear").fields, network, NOISE)
    model.fit_constants(functions)
    optimiser = ChunkOptimiser(model, training)
    sampler = BatchSampler(
        TOY.fields,
        training,
        functions.kappa,
        model.targets(functions),
        layouts if model.reads_sensors else None,
        NOISE,
        model.latent_dim,
        1,
        torch.Generator().manual_seed(1),
        model.group,
    )
    for iteration in range(training.iterations):
        optimiser.step(iteration, *sampler.draw())
    set_weights(model, optimiser.weights())
    return model.eval()


def random_layouts(m: int) -> torch.Tensor:
    return torch.from_numpy(uniform_layouts(np.random.default_rng(m), 33, m, 50)).long()


@pytest.mark.long
def test_the_papers_model_recovers_the_exact_posterior():
    """Attention, ELBO, everything trained end to end; the set of sensors has one or two members."""
    network = AttentionNetwork(
        embedding_dim=8,
        heads=2,
        head_width=8,
        location_embedding=[16],
        value_embedding=[16],
        attention=[16],
        branch=[32],
        trunk=[32],
        encoder=[32],
        latent_dim=2,
        truncation=4,
        activation="silu",
        noise_variance=5e-3,
        standardise_inputs=True,
        count_feature=True,
    )
    training = TrainingConfig(
        iterations=10_000,
        batch_size=1024,  # costs little more a step than 256
        learning_rate=1e-2,
        schedule="cosine",
        gradient_clip=10.0,
        average_decay=0.995,
    )
    layouts = {1: torch.tensor([[22]]), 2: torch.tensor([[6, 26]])}
    functions = draw_functions(200_000)
    model = fit(network, training, functions, layouts)
    free = SensorFree(functions)
    for m, layout in layouts.items():
        assert min(errors(free, layout)) > 10 * TOLERANCE  # who ignores the sensors fails
        assert max(errors(model, layout)) < TOLERANCE, (m, errors(model, layout))


@pytest.fixture(scope="module")
def functions():
    return draw_functions(20_000)


@pytest.fixture(scope="module")
def kriging(functions):
    network = KarhunenLoeveNetwork(input_modes=2, output_modes=2, branch=[16])
    training = TrainingConfig(
        iterations=1000, batch_size=500, learning_rate=3e-3, schedule="cosine"
    )
    return fit(network, training, functions, None)


@pytest.mark.parametrize(
    ("m", "noise_std"), [(1, 0.0), (1, 0.2), (2, 1.0), (5, 0.2), (10, 0.2), (10, 1.0)]
)
def test_kriging_and_cokriging_recover_the_exact_posterior(
    functions, kriging, monkeypatch, m, noise_std
):
    monkeypatch.setattr("uqsonet_study.baselines.OUTPUT_MODES", 2)
    # The toy's functions span two dimensions.
    monkeypatch.setattr(
        baselines, "sized_bases", partial(baselines.sized_bases, input_modes=2, output_modes=2)
    )
    for model in (kriging, Cokriging(functions, noise_std)):
        found = errors(model, random_layouts(m), noise_std)
        assert max(found) < TOLERANCE, found

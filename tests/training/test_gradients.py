"""The training engine against the paper's formulas, written plainly, without span and chunks."""

import numpy as np
import pytest
import torch

from tests.models.test_attention import NETWORK as SMALL
from uqsonet.gauss.blocks import RowBlocks
from uqsonet.networks.attention_networks import output_basis
from uqsonet.networks.settings import TrainingConfig
from uqsonet.networks.train import Optimiser
from uqsonet.operator.base import build_model
from uqsonet.runs.functions import Functions
from uqsonet_study import gradients
from uqsonet_study.gradients import ChunkOptimiser
from uqsonet_study.layouts import uniform_layouts
from uqsonet_study.problems import get_problem

SIZE = 60
NETWORK = SMALL.model_copy(
    update={"attention": [16, 16, 16], "latent_dim": 4, "truncation": 12, "noise_variance": 1e-2}
)


@pytest.fixture(scope="module", params=["diffusion1d", "poisson2d"])
def data(request) -> Functions:
    problem = get_problem(request.param)
    kappa, u = problem.sample(np.random.default_rng(0), 300)
    u = u[:, problem.training_grid()[1]]
    return Functions(problem.fields, "training", kappa.float(), 10 * u.float())


def prepared(data: Functions, method: str = "uqsonet", activation: str = "tanh"):
    torch.manual_seed(3)
    network = NETWORK.model_copy(update={"activation": activation})
    model = build_model(method, data.fields, network, 0.0)
    model.fit_constants(data)
    return model


def batch_of(data: Functions, targets, counts: list[int], seed: int = 1):
    """Sets with the given numbers of sensors in turns, padded to the largest."""
    generator = np.random.default_rng(seed)
    rows = torch.from_numpy(generator.integers(data.size, size=SIZE))
    drawn = uniform_layouts(generator, data.fields.input.grid.size, max(counts), SIZE)
    layout = torch.from_numpy(drawn).long()
    locations, values = data.fields.input.read(data.kappa[rows], layout)
    number = torch.tensor(counts).repeat(SIZE)[:SIZE, None]
    mask = torch.arange(max(counts)) < number
    found = {"index": layout, "locations": locations, "values": values, "mask": mask}
    return found | {name: value[rows] for name, value in targets.items()}, data.u[rows]


def perceptron(layers, x):
    *hidden, last = layers
    for layer in hidden:
        x = torch.tanh(x @ layer.weight.T + layer.bias)
    return x @ last.weight.T + last.bias


def heads(module, x):
    found = []
    for head in range(len(module.weights[0])):
        y = x
        for k, (weight, bias) in enumerate(zip(module.weights, module.biases, strict=True)):
            y = y @ weight[head] + bias[head]
            y = torch.tanh(y) if k < len(module.weights) - 1 else y
        found.append(y)
    return torch.stack(found)


def plain_loss(model, batch, u, normals):
    """Section 3 line by line."""
    e = model.embedding
    tokens = perceptron(e.location.layers, batch["locations"])
    tokens = tokens + perceptron(e.value.layers, batch["values"][..., None])
    scores = heads(e.score, tokens)[..., 0] / tokens.shape[-1] ** 0.5
    weights = torch.softmax(scores.masked_fill(~batch["mask"], -torch.inf), -1)
    h = (weights[..., None] * heads(e.projection, tokens)).sum(2).permute(1, 0, 2).flatten(1)
    divergence = 0.0
    if model.method == "uqsonet":
        encoded = perceptron(model.encoder.layers, torch.cat([h, u], -1))
        mean, log_variance = encoded.chunk(2, -1)
        divergence = 0.5 * (log_variance.exp() + mean**2 - 1 - log_variance).sum(-1).mean()
        h = torch.cat([h, mean + normals * (0.5 * log_variance).exp()], -1)
    trunk = model.factor[:, None] * perceptron(model.trunk.layers, model.points)
    error = ((perceptron(model.branch.layers, h) @ trunk.T - u) ** 2).mean()
    return divergence + error / (2 * model.config.noise_variance)


@pytest.mark.parametrize("chunks", ["whole", "chunks"])
@pytest.mark.parametrize("counts", [[1], [1, 2, 5]], ids=["one", "mixed"])
@pytest.mark.parametrize("method", ["uqsonet", "vidon"])
def test_loss_and_gradients_equal_the_plain_form(data, method, counts, chunks, monkeypatch):
    """In float64; data, span and coefficients keep their float32."""
    if chunks == "chunks":
        monkeypatch.setattr(gradients, "CHUNK", 23)
    model = prepared(data, method)
    if data.fields.name == "poisson2d":
        assert model.output_basis is not None and model.output_basis.shape[1] < 310
    assert output_basis(RowBlocks.of(torch.randn(600, 40))) is None  # noise fills the space
    batch, u = batch_of(data, model.targets(data), counts)
    batch = {k: v.double() if v.is_floating_point() else v for k, v in batch.items()}
    generator = torch.Generator().manual_seed(2)
    normals = torch.randn(SIZE, model.latent_dim, generator=generator).double()
    model.double()
    expected = plain_loss(model, batch, u.double(), normals)
    parameters = dict(model.named_parameters())
    slopes = torch.autograd.grad(expected, list(parameters.values()), allow_unused=True)
    training = TrainingConfig(iterations=1, batch_size=SIZE, precision="float64")
    optimiser = ChunkOptimiser(model, training)
    loss, terms = optimiser.gradients(batch, normals)
    parameters = dict(model.named_parameters())
    assert float(loss) == pytest.approx(float(expected.detach()), rel=1e-6)
    assert terms["reconstruction"] <= loss
    for (name, parameter), slope in zip(parameters.items(), slopes, strict=True):
        if name == "embedding.score.biases.3":  # shifts all scores: no influence
            continue
        if len(counts) == 1 and counts[0] == 1 and ".score." in name:  # one sensor, weight 1
            assert not parameter.grad.any()
            continue
        scale = float(slope.abs().max())
        torch.testing.assert_close(parameter.grad, slope, rtol=1e-5, atol=2e-6 * scale, msg=name)


def test_the_engine_trains_as_the_plain_form(data):
    model = prepared(data)
    training = TrainingConfig(iterations=30, batch_size=SIZE, learning_rate=1e-3)
    optimiser = ChunkOptimiser(model, training)
    other = prepared(data)
    adam = torch.optim.Adam(other.parameters(), 1e-3)
    generator = torch.Generator().manual_seed(5)
    for step in range(30):
        batch, u = batch_of(data, model.targets(data), [1 + step % 4], seed=step)
        normals = torch.randn(SIZE, model.latent_dim, generator=generator)
        adam.zero_grad(set_to_none=False)
        expected = plain_loss(other, batch, u, normals)
        expected.backward()
        adam.step()
        terms = optimiser.step(step, batch, normals)
        assert float(terms["loss"]) == pytest.approx(float(expected.detach()), rel=1e-4)


@pytest.mark.parametrize("activation", ["tanh", "silu", "gelu"])
def test_gradients_of_chunks_equal_those_of_the_whole_batch(data, activation, monkeypatch):
    """The whole batch, with its padding, is what a GPU takes."""
    monkeypatch.setattr(gradients, "CHUNK", 23)
    training, found = TrainingConfig(iterations=1, batch_size=SIZE), []
    normals = torch.randn(SIZE, 4, generator=torch.Generator().manual_seed(2))
    for kind in (Optimiser, ChunkOptimiser):
        model = prepared(data, activation=activation)
        batch, _ = batch_of(data, model.targets(data), [1, 3])
        loss, _ = kind(model, training).gradients(batch, normals)
        found.append([loss, *(p.grad for p in model.parameters())])
    largest = max(float(slope.abs().max()) for slope in found[0][1:])
    for whole, chunks in zip(*found, strict=True):
        torch.testing.assert_close(chunks, whole, rtol=1e-3, atol=1e-6 * largest)

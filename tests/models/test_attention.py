"""UQ-SONet and VIDON: the printed loss, its gradient and limit, invariance of predictions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from uqsonet.errors import ConfigError, NoUncertaintyError, ObservationError
from uqsonet.models.attention import gaussian_kl, scaled_squared_error
from uqsonet.models.base import build_model
from uqsonet.problems import get_problem
from uqsonet_study.config import AttentionNetwork

NETWORK = AttentionNetwork(
    embedding_dim=2,
    heads=2,
    head_width=4,
    location_embedding=[6],
    value_embedding=[6],
    attention=[5],
    branch=[8, 8],
    trunk=[8],
    encoder=[9],
    latent_dim=3,
    truncation=5,
    noise_variance=0.02,
)


def build(method="uqsonet", problem="diffusion1d", seed=0, **changes):
    torch.manual_seed(seed)
    return build_model(method, get_problem(problem).fields, NETWORK.model_copy(update=changes), 0.0)


def batch_of(model, size=6, m=4, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(size, m, 1, generator=generator) * 2 - 1
    y = torch.rand(size, m, generator=generator) + 0.5
    mask = torch.arange(m) < torch.tensor([1, 2, 3, 4, 2, 4])[:size, None]
    u = torch.randn(size, len(model.points), generator=generator)
    return {"locations": x, "values": y, "mask": mask, "u": u}


def numpy_mlp(mlp, x):
    weights = [(p.weight.detach().numpy(), p.bias.detach().numpy()) for p in mlp.layers]
    for weight, bias in weights[:-1]:
        x = np.tanh(x @ weight.T + bias)
    return x @ weights[-1][0].T + weights[-1][1]


def numpy_head(heads, index, x):
    depth = len(heads.weights)
    for i in range(depth):
        w, b = heads.weights[i].detach().numpy(), heads.biases[i].detach().numpy()
        x = x @ w[index] + b[index, 0]
        x = np.tanh(x) if i < depth - 1 else x
    return x


def numpy_h(embedding, x, y):
    """(eq:pooling), (eq:set) for one set without padding."""
    tokens = numpy_mlp(embedding.location, x) + numpy_mlp(embedding.value, y[:, None])
    parts = []
    for head in range(embedding.score.weights[0].shape[0]):
        score = numpy_head(embedding.score, head, tokens)[:, 0] / np.sqrt(tokens.shape[1])
        weights = np.exp(score) / np.exp(score).sum()
        parts.append(weights @ numpy_head(embedding.projection, head, tokens))
    return np.concatenate(parts)


def numpy_loss(model, batch, normals):
    """The stochastic loss of Algorithm 1, step 6, as printed."""
    total_kl, total_error = 0.0, 0.0
    points = model.points.double().numpy()
    trunk = numpy_mlp(model.trunk, points) * (1 - points**2)
    for i in range(len(batch["u"])):
        keep = batch["mask"][i].numpy()
        x, y = batch["locations"][i].numpy()[keep], batch["values"][i].numpy()[keep]
        u, h = batch["u"][i].numpy(), numpy_h(model.embedding, x, y)
        encoded = numpy_mlp(model.encoder, np.concatenate([h, u]))
        mean, sigma = np.split(encoded, 2)[0], np.diag(np.exp(np.split(encoded, 2)[1]))
        kl = -np.log(np.linalg.det(sigma)) + np.trace(sigma) + mean @ mean - len(mean)
        z = mean + np.sqrt(sigma) @ normals[i].numpy()
        prediction = trunk @ numpy_mlp(model.branch, np.concatenate([h, z]))
        total_kl += kl / 2
        total_error += ((prediction - u) ** 2).sum() / len(u) / (2 * 0.02)
    return total_kl / len(batch["u"]), total_error / len(batch["u"])


def double(batch):
    return {k: v.double() if v.is_floating_point() else v for k, v in batch.items()}


@torch.no_grad()
def test_loss_equals_an_independent_implementation_of_the_printed_formula():
    model = build()
    batch = batch_of(model)
    normals = torch.randn(6, 3, generator=torch.Generator().manual_seed(2))
    loss, terms = model(batch, normals)
    kl, error = numpy_loss(model.double(), double(batch), normals.double())
    assert float(terms["kl"]) == pytest.approx(kl, rel=1e-5)
    assert float(terms["reconstruction"]) == pytest.approx(error, rel=1e-5)
    assert float(loss) == pytest.approx(kl + error, rel=1e-5)


@pytest.mark.parametrize("method", ["uqsonet", "vidon"])
def test_gradient_equals_central_differences(method):
    model = build(method).double()
    batch = double(batch_of(model))
    generator = torch.Generator().manual_seed(3)
    normals = torch.randn(6, model.latent_dim, generator=generator, dtype=torch.float64)
    loss, _ = model(batch, normals)
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
    for _ in range(10):  # random directions see every parameter
        direction = [torch.randn(p.shape, generator=generator).double() for p in parameters]
        slope = sum(float((g * d).sum()) for g, d in zip(gradients, direction, strict=True))
        values = []
        with torch.no_grad():
            for step in (1e-5, -2e-5):
                for p, d in zip(parameters, direction, strict=True):
                    p.add_(d, alpha=step)
                values.append(float(model(batch, normals)[0]))
            for p, d in zip(parameters, direction, strict=True):
                p.add_(d, alpha=1e-5)
        assert (values[0] - values[1]) / 2e-5 == pytest.approx(slope, rel=1e-6, abs=1e-7)


@torch.no_grad()
def test_several_draws_of_z_average_the_losses_of_one_each():
    one, three = build(), build(latent_samples=3)
    batch, d = batch_of(one), one.config.latent_dim
    normals = torch.randn(6, 3 * d, generator=torch.Generator().manual_seed(2))
    assert three.latent_dim == 3 * d
    losses = torch.stack([one.loss(batch, part)[0] for part in normals.split(d, 1)])
    assert losses.std() > 1e-3
    assert float(three.loss(batch, normals)[0]) == pytest.approx(float(losses.mean()), rel=1e-6)


@pytest.mark.parametrize("method", ["uqsonet", "vidon"])
def test_glorots_initialisation_has_its_variance_and_no_bias(method):
    wide = {"branch": [200, 300], "encoder": [200, 300], "attention": [200, 300]}
    model = build(method, initialisation="xavier", **wide)
    variances = [float(p.detach().var()) for p in model.parameters() if p.numel() > 50000]
    assert len(variances) >= 3
    assert all(v == pytest.approx(2 / 500, rel=0.05) for v in variances)
    assert all(not p.any() for name, p in model.named_parameters() if "bias" in name)


def test_transformed_inputs_are_fed_as_they_are():
    plain, logarithms = build(), build(transform_inputs=True)
    batch = batch_of(plain)
    found = logarithms.embed(batch["locations"], batch["values"].exp(), batch["mask"])
    expected = plain.embed(batch["locations"], batch["values"], batch["mask"])
    torch.testing.assert_close(found, expected)


def test_every_parameter_gets_a_gradient():
    for method in ("uqsonet", "vidon"):
        model = build(method)
        model(batch_of(model), torch.randn(6, model.latent_dim))[0].backward()
        for name, parameter in model.named_parameters():
            if name == "embedding.score.biases.1":  # shifts all scores, and no weight
                assert parameter.grad is None
                continue
            assert parameter.grad is not None and parameter.grad.abs().max() > 0, (method, name)


@pytest.mark.parametrize("mean", [-1.3, 0.0, 0.7])
@pytest.mark.parametrize("log_variance", [-3.0, 0.0, 1.1])
def test_gaussian_kl_equals_its_defining_integral(mean, log_variance):
    q = norm(mean, math.exp(log_variance / 2))
    expected = quad(
        lambda z: q.pdf(z) * (q.logpdf(z) - norm.logpdf(z)), *q.interval(1 - 1e-15), epsabs=1e-12
    )[0]
    found = float(gaussian_kl(torch.tensor(mean), torch.tensor(log_variance)))
    assert found == pytest.approx(expected, abs=1e-6)


def test_kl_of_the_prior_with_itself_is_zero():
    assert torch.equal(gaussian_kl(torch.zeros(3), torch.zeros(3)), torch.zeros(3))


def test_reconstruction_tends_to_the_functional_vae_as_the_grid_is_refined():
    """A.3: ``|v|^2_L2 / (2 sigma^2)`` with ``sigma^2 = |Omega| sigma_u^2``, |Omega| 2."""
    sigma_u = 0.3

    def v(x):
        return np.exp(x) * np.sin(3 * x + 1)

    squared_norm = quad(lambda x: v(x) ** 2, -1, 1, epsabs=1e-14)[0]
    limit = squared_norm / (2 * (math.sqrt(2) * sigma_u) ** 2)
    sizes, errors = np.array([100, 200, 400, 800]), []
    for n in sizes:
        values = torch.from_numpy(v(np.linspace(-1, 1, n + 1)))[None]
        found = scaled_squared_error(values, torch.zeros_like(values), sigma_u**2)
        errors.append(abs(float(found) - limit))
    assert errors[-1] < 5e-3 * limit
    # a plain sum over M points, both ends counted in full, is first order
    assert abs(-np.polyfit(np.log(sizes), np.log(errors), 1)[0] - 1) < 0.05


def test_reconstruction_does_not_depend_on_the_batch_size():
    a = torch.randn(3, 11)
    once = scaled_squared_error(a, torch.zeros_like(a), 0.1)
    torch.testing.assert_close(scaled_squared_error(a.repeat(4, 1), torch.zeros(12, 11), 0.1), once)


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), m=st.integers(1, 12), extra=st.integers(0, 4))
@pytest.mark.parametrize("method", ["uqsonet", "vidon"])
def test_prediction_depends_neither_on_order_nor_on_padding(method, seed, m, extra):
    model = MODELS[method]
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(m, 1, generator=generator) * 2 - 1
    y = torch.rand(m, generator=generator) + 0.5
    alone = model.condition(x, y)
    order = torch.randperm(m + extra, generator=generator)
    mask = (torch.arange(m + extra) < m)[order]
    padded_x = torch.cat([x, torch.full((extra, 1), float("nan"))])[order]
    padded_y = torch.cat([y, torch.full((extra,), -1.0)])[order]
    mixed = model.condition(padded_x, padded_y, mask)
    if model.probabilistic:
        torch.testing.assert_close(mixed.sample(20), alone.sample(20), rtol=1e-4, atol=1e-5)
    else:
        torch.testing.assert_close(mixed.mean(), alone.mean(), rtol=1e-4, atol=1e-5)


MODELS = {method: build(method).eval() for method in ("uqsonet", "vidon")}


def test_a_batch_is_conditioned_as_its_members():
    model = MODELS["vidon"]
    x, y = torch.rand(3, 4, 1) * 2 - 1, torch.rand(3, 4) + 0.5
    batch = model.condition(x, y).mean()
    assert batch.shape == (3, 401)
    for i in range(3):
        torch.testing.assert_close(
            model.condition(x[i], y[i]).mean(), batch[i], rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("method", ["uqsonet", "vidon"])
def test_boundary_values_are_exactly_zero(method):
    posterior = MODELS[method].condition([0.2], [1.3])
    ends = torch.tensor([[-1.0], [1.0]])
    assert (posterior.mean(ends) == 0).all()
    if method == "uqsonet":
        assert (posterior.std(ends) == 0).all() and (posterior.sample(10, ends) == 0).all()
    batch = batch_of(MODELS[method])
    h = MODELS[method].embed(batch["locations"], batch["values"], batch["mask"])
    z = torch.zeros(6, MODELS[method].latent_dim)
    decoded = MODELS[method].decode(MODELS[method].branch(torch.cat([h, z], -1)))
    assert (decoded[:, [0, -1]] == 0).all()


def test_posterior_basis_agrees_with_the_decoder_of_training():
    model = MODELS["vidon"]
    offset, basis = model.condition([0.2], [1.3]).basis(model.points)
    coefficients = torch.randn(4, 5)
    expected = model.decode(coefficients).double()
    torch.testing.assert_close(
        offset + coefficients.double() @ basis.T, expected, rtol=1e-5, atol=1e-6
    )


def test_vidon_has_a_mean_and_no_spread():
    posterior = MODELS["vidon"].condition([0.2], [1.3])
    for ask in (
        posterior.std,
        posterior.coefficient_moments,
        lambda: posterior.sample(3),
        lambda: posterior.quantile([0.5]),
    ):
        with pytest.raises(NoUncertaintyError, match="vidon is deterministic"):
            ask()


def test_latent_samples_follow_the_prior_of_z_and_repeat():
    model = MODELS["uqsonet"]
    posterior = model.condition([0.2, -0.3], [1.3, 0.9])
    assert torch.equal(posterior.sample(5), posterior.sample(5))
    observations = torch.tensor([[[0.2], [-0.3]]]), torch.tensor([[1.3, 0.9]])
    with torch.no_grad():
        h = model.embed(*observations, torch.ones(1, 2).bool())
        z = torch.randn(1, 7, 3, generator=torch.Generator().manual_seed(4))
        expected = model.branch(torch.cat([h[:, None].expand(-1, 7, -1), z], -1))
    found = posterior.coefficient_samples(7, torch.Generator().manual_seed(4))
    torch.testing.assert_close(found, expected.double(), rtol=1e-5, atol=1e-6)


def test_the_encoder_plays_no_part_in_conditioning():
    model = build(seed=5).eval()
    before = model.condition([0.2], [1.3]).sample(8)
    with torch.no_grad():
        for parameter in model.encoder.parameters():
            parameter.fill_(float("nan"))
    assert torch.equal(model.condition([0.2], [1.3]).sample(8), before)


def test_another_noise_level_is_refused():
    with pytest.raises(ObservationError, match=r"trained at noise_std = 0.0, asked for 0.5"):
        MODELS["uqsonet"].condition([0.2], [1.3], noise_std=0.5)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [([1.5], [1.0], "outside"), ([0.1], [-1.0], "positive"), ([0.1], [math.nan], "finite")],
)
def test_impossible_observations_are_refused(x, y, message):
    with pytest.raises(ObservationError, match=message):
        MODELS["uqsonet"].condition(x, y)


def test_standardised_inputs_see_the_training_statistics(monkeypatch):
    from uqsonet.data import Functions
    from uqsonet.problems import get_problem

    problem = get_problem("diffusion1d")
    kappa, u = problem.sample(np.random.default_rng(0), 30)
    data = Functions(problem.fields, "training", kappa.float(), u[:, ::4].float())
    model = build(standardise_inputs=True)
    model.fit_constants(data)
    assert float(model.input_mean) == pytest.approx(float(kappa.log().mean()), abs=1e-5)
    assert float(model.input_std) == pytest.approx(float(kappa.log().std()), rel=1e-5)
    seen = []
    monkeypatch.setattr(model.embedding, "forward", lambda *args: seen.append(args))
    model.embed(torch.tensor([[[1.0]]]), torch.tensor([[2.0]]), torch.ones(1, 1).bool())
    expected = (math.log(2.0) - float(model.input_mean)) / float(model.input_std)
    assert float(seen[0][0]) == 1.0 and float(seen[0][1]) == pytest.approx(expected, rel=1e-5)


def test_unknown_methods_and_outputs_of_another_size_are_refused():
    with pytest.raises(ConfigError, match=r"method 'nobody' has no architecture 'attention'"):
        build("nobody")

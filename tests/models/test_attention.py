"""UQ-SONet and VIDON of the paper: gradient and limit of the loss, invariance, their networks.

Last, the deep ensemble: its law is the spread of its members, and nothing else.
"""

import math
from copy import deepcopy

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from uqsonet.errors import ConfigError, NoUncertaintyError, ObservationError
from uqsonet.networks.attention import gaussian_kl
from uqsonet.networks.attention_networks import scaled_squared_error
from uqsonet.networks.config import AttentionNetwork
from uqsonet.operator.base import build_model
from uqsonet.operator.perceptrons import MLP
from uqsonet.runs.functions import Functions
from uqsonet_study.ensemble import DeepEnsemble
from uqsonet_study.problems import get_problem

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


def double(batch):
    return {k: v.double() if v.is_floating_point() else v for k, v in batch.items()}


@pytest.mark.parametrize("method", ["uqsonet", "vidon"])
def test_gradient_equals_central_differences(method):
    model = build(method).double()
    batch = double(batch_of(model))
    generator = torch.Generator().manual_seed(3)
    normals = torch.randn(6, model.latent_dim, generator=generator, dtype=torch.float64)
    loss, _ = model.loss(batch, normals)
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
    for _ in range(5):  # random directions see every parameter
        direction = [torch.randn(p.shape, generator=generator).double() for p in parameters]
        slope = sum(float((g * d).sum()) for g, d in zip(gradients, direction, strict=True))
        values = []
        with torch.no_grad():
            for step in (1e-5, -2e-5):
                for p, d in zip(parameters, direction, strict=True):
                    p.add_(d, alpha=step)
                values.append(float(model.loss(batch, normals)[0]))
            for p, d in zip(parameters, direction, strict=True):
                p.add_(d, alpha=1e-5)
        assert (values[0] - values[1]) / 2e-5 == pytest.approx(slope, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("method", ["uqsonet", "vidon"])
def test_glorots_initialisation_has_its_variance_and_no_bias(method):
    wide = {"branch": [200, 300], "encoder": [200, 300], "attention": [200, 300]}
    model = build(method, initialisation="xavier", **wide)
    variances = [float(p.detach().var()) for p in model.parameters() if p.numel() > 50000]
    assert len(variances) >= 3
    assert all(v == pytest.approx(2 / 500, rel=0.05) for v in variances)
    assert all(not p.any() for name, p in model.named_parameters() if "bias" in name)


@pytest.mark.parametrize(("mean", "log_variance"), [(-1.3, -3.0), (0.7, 1.1), (0.0, 0.0)])
def test_gaussian_kl_equals_its_defining_integral(mean, log_variance):
    q = norm(mean, math.exp(log_variance / 2))
    expected = quad(
        lambda z: q.pdf(z) * (q.logpdf(z) - norm.logpdf(z)), *q.interval(1 - 1e-15), epsabs=1e-12
    )[0]
    found = float(gaussian_kl(torch.tensor(mean), torch.tensor(log_variance)))
    assert found == pytest.approx(expected, abs=1e-6)


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
    repeated = scaled_squared_error(values.repeat(4, 1), torch.zeros(4, 801), sigma_u**2)
    torch.testing.assert_close(repeated, found)  # whatever the size of a batch
    # a plain sum over M points, both ends counted in full, is first order
    assert abs(-np.polyfit(np.log(sizes), np.log(errors), 1)[0] - 1) < 0.05


MODELS = {
    "uqsonet": build(count_feature=True).eval(),
    "vidon": build("vidon").eval(),
}


@pytest.mark.parametrize(("m", "extra"), [(1, 0), (3, 2), (12, 4)])
@pytest.mark.parametrize("method", ["uqsonet", "vidon"])
def test_prediction_depends_neither_on_order_nor_on_padding(method, m, extra):
    model = MODELS[method]
    generator = torch.Generator().manual_seed(m)
    x = torch.rand(m, 1, generator=generator) * 2 - 1
    y = torch.rand(m, generator=generator) + 0.5
    order = torch.randperm(m + extra, generator=generator)
    mask = (torch.arange(m + extra) < m)[order]
    padded_x = torch.cat([x, torch.full((extra, 1), float("nan"))])[order]
    padded_y = torch.cat([y, torch.full((extra,), -1.0)])[order]
    both = model.condition(x, y), model.condition(padded_x, padded_y, mask)
    found = [one.sample(20) if model.probabilistic else one.mean() for one in both]
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ["uqsonet", "vidon"])
def test_answers_are_those_of_the_decoder_and_zero_on_the_boundary(method):
    model = MODELS[method]
    posterior = model.condition([0.2], [1.3])
    ends = torch.tensor([[-1.0], [1.0]])
    assert (posterior.mean(ends) == 0).all()
    if method == "uqsonet":
        assert (posterior.std(ends) == 0).all() and (posterior.sample(10, ends) == 0).all()
    offset, basis = posterior.basis(model.points)
    coefficients = torch.randn(4, 5)
    decoded = coefficients @ (model.factor[:, None] * model.trunk(model.points)).T
    assert (decoded[:, [0, -1]] == 0).all()
    expected = offset + coefficients.double() @ basis.T
    torch.testing.assert_close(expected, decoded.double(), rtol=1e-5, atol=1e-6)


def test_latent_samples_follow_the_prior_of_z_and_repeat():
    model = MODELS["uqsonet"]
    posterior = model.condition([0.2, -0.3], [1.3, 0.9])
    assert torch.equal(posterior.sample(5), posterior.sample(5))
    observations = torch.tensor([[[0.2], [-0.3]]]), torch.tensor([[1.3, 0.9]])
    with torch.no_grad():
        h = model.embed(*observations, torch.ones(1, 2).bool())
        z = torch.randn(1, 7, 3, generator=torch.Generator().manual_seed(4))
        expected = model.branch(torch.cat([h[:, None].expand(-1, 7, -1), z], -1))
    found = posterior.law.sample(7, torch.Generator().manual_seed(4))
    torch.testing.assert_close(found, expected.double(), rtol=1e-5, atol=1e-6)
    blind = deepcopy(model)
    for parameter in blind.encoder.parameters():
        parameter.data.fill_(float("nan"))
    again = blind.condition([0.2, -0.3], [1.3, 0.9])
    assert torch.equal(again.sample(5), posterior.sample(5))  # the encoder is of training only


def test_inputs_are_transformed_and_standardised_where_asked_for(monkeypatch):
    plain, logarithms = build(), build(transform_inputs=True)
    batch = batch_of(plain)
    found = logarithms.embed(batch["locations"], batch["values"].exp(), batch["mask"])
    expected = plain.embed(batch["locations"], batch["values"], batch["mask"])
    torch.testing.assert_close(found, expected)
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


@pytest.mark.parametrize(
    ("x", "y", "noise_std", "message"),
    [
        ([1.5], [1.0], None, "outside"),
        ([0.1], [-1.0], None, "positive"),
        ([0.1], [math.nan], None, "finite"),
        ([0.2], [1.3], 0.5, r"trained at noise_std = 0.0, asked for 0.5"),
    ],
)
def test_impossible_observations_are_refused(x, y, noise_std, message):
    with pytest.raises(ObservationError, match=message):
        MODELS["uqsonet"].condition(x, y, noise_std=noise_std)


def test_what_a_method_does_not_have_is_refused():
    with pytest.raises(ConfigError, match=r"method 'nobody' has no architecture 'attention'"):
        build("nobody")
    posterior = MODELS["vidon"].condition([0.2], [1.3])
    for ask in (
        posterior.std,
        posterior.law.moments,
        lambda: posterior.sample(3),
    ):
        with pytest.raises(NoUncertaintyError, match="vidon is deterministic"):
            ask()


def test_a_repeated_sensor_cannot_be_told_from_one_except_by_the_count_feature():
    x, y = torch.full((1, 3, 1), 0.2), torch.full((1, 3), 1.3)
    for model in (build(), build(count_feature=True)):
        once, thrice = (model.embed(x[:, :m], y[:, :m], torch.ones(1, m).bool()) for m in (1, 3))
        width = 2 * NETWORK.head_width
        torch.testing.assert_close(once[:, :width], thrice[:, :width])
    assert [h[0, -1].item() for h in (once, thrice)] == pytest.approx([1, 1 / 3])


@pytest.mark.parametrize(
    ("dtype", "error"), [(torch.float32, 1e-5), (torch.float64, 1e-12)], ids=["single", "double"]
)
def test_values_and_gradients_are_those_of_tanh_to_rounding(dtype, error):
    torch.manual_seed(0)
    model = MLP(1, [20, 20, 20], 3).to(dtype)
    first, second, third, last = model.layers
    x = torch.linspace(-30, 30, 999, dtype=dtype)[:, None].requires_grad_()
    y = torch.tanh(second(torch.tanh(first(x))))
    expected = last(torch.tanh(third(y)))
    found = model(x)
    torch.testing.assert_close(found, expected, rtol=0, atol=error)
    sources = [x, *model.parameters()]
    slopes = [torch.autograd.grad(one.square().sum(), sources) for one in (found, expected)]
    for one, other in zip(*slopes, strict=True):
        assert float((one - other).abs().max()) <= error * float(other.abs().max())


PLACES, VALUES = torch.tensor([[[-0.5], [0.2]], [[0.1], [0.7]]]), torch.tensor([[1.0, 2.0]] * 2)


MEMBERS = [build("vidon", "toy_linear", seed).eval() for seed in range(5)]


def test_an_ensemble_has_mean_spread_and_samples_of_its_members():
    answers = torch.stack([m.condition(PLACES, VALUES).mean() for m in MEMBERS])
    law = DeepEnsemble(MEMBERS).condition(PLACES, VALUES)
    assert torch.allclose(law.mean(), answers.mean(0))
    assert torch.allclose(law.std(), answers.std(0, correction=0), atol=1e-12)
    queries = torch.tensor([[0.33], [-0.9]])
    at = torch.stack([m.condition(PLACES, VALUES).mean(queries) for m in MEMBERS])
    assert torch.allclose(law.std(queries), at.std(0, correction=0), atol=1e-12)
    samples = law.sample(300, generator=torch.Generator().manual_seed(1))
    distance = (samples[:, :, None] - answers.movedim(0, 1)[:, None]).abs().amax(-1)
    assert (distance.amin(-1) < 1e-12).all()
    shares = (distance < 1e-12).double().mean(1)
    assert (shares > 0.1).all()  # five members, 300 draws: each about a fifth
    alone = DeepEnsemble(MEMBERS).condition(PLACES[0], VALUES[0])
    assert alone.mean().shape == (33,) and alone.sample(4).shape == (4, 33)


def test_an_ensemble_of_one_or_of_random_models_is_refused():
    with pytest.raises(ObservationError, match="at least two members"):
        DeepEnsemble(MEMBERS[:1])
    with pytest.raises(ObservationError, match="must be deterministic"):
        DeepEnsemble(2 * [build(problem="toy_linear")]).condition(PLACES, VALUES)

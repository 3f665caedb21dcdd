"""Fused layers against tanh networks written plainly, in float64."""

import logging
import platform
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from uqsonet.nn import fused
from uqsonet.nn.fused import fused_attention, fused_perceptron, usable
from uqsonet.nn.mlp import MLP, form

needs_compiler = pytest.mark.skipif(
    fused.library() is None, reason="no C++ compiler here, so layers are not fused"
)


def options() -> list[tuple[str, ...]]:
    """What the library is compiled for: any processor, AVX2 where there is one, this one."""
    info = Path("/proc/cpuinfo")
    avx2 = platform.machine() == "x86_64" and info.exists() and " avx2 " in info.read_text()
    return [(), *([("-mavx2", "-mfma")] if avx2 else []), ("-march=native",)]


@pytest.fixture(scope="module", params=options(), ids=lambda o: " ".join(o) or "any processor")
def _compiled(request):
    return fused.build(*request.param)


@pytest.fixture
def compiled(_compiled, monkeypatch):
    monkeypatch.setattr(fused, "library", lambda: _compiled)


def layers_of(generator, heads, inputs, widths):
    found = []
    for a, b in zip([inputs, *widths], widths, strict=False):
        found.append(torch.randn(*heads, a, b, generator=generator) * 1.5 * a**-0.5)
        found.append(torch.randn(*heads, *([1] if heads else []), b, generator=generator))
    return found


def hidden(layers, x):
    for weight, bias in zip(layers[::2], layers[1::2], strict=True):
        x = torch.tanh(x @ weight + bias)
    return x


def plain_attention(tokens, sensors, mask, score, *layers):
    """Heads of sets, sensors first, as section 3.1 has them."""
    y = hidden(layers, tokens)
    if score is None:
        return y
    for_scores, values = y.unflatten(1, (sensors, -1)).chunk(2)
    scores = (for_scores * score[:, None]).sum(-1)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return (torch.softmax(scores, 1)[..., None] * values).sum(1)


def compare(form, plain, tensors, upstream):
    """Values and gradients of `form` in float32 against those of `plain` in float64."""
    inputs = [t.clone().requires_grad_() for t in tensors]
    exact = [t.double().requires_grad_() for t in tensors]
    found, expected = form(inputs), plain(exact)
    torch.testing.assert_close(found.double(), expected, rtol=2e-5, atol=1e-5)
    slopes = torch.autograd.grad(found, inputs, upstream)
    for slope, right in zip(
        slopes, torch.autograd.grad(expected, exact, upstream.double()), strict=True
    ):
        scale = float(right.abs().max()) if right.numel() else 0.0
        torch.testing.assert_close(slope.double(), right, rtol=1e-4, atol=1e-4 * scale + 1e-6)


def attention_case(seed, heads, sets, sensors, inputs, widths, masked):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randn(sensors * sets, inputs, generator=generator)
    mask = None
    if masked:
        mask = torch.rand(sensors, sets, generator=generator) < 0.6
        mask[0] = True
    score = torch.randn(heads, 1, widths[-1], generator=generator)
    layers = layers_of(generator, (2 * heads,), inputs, widths)
    upstream = torch.randn(heads, sets, widths[-1], generator=generator)

    def form(tensors):
        return fused_attention(tensors[0], sensors, mask, tensors[1], tuple(tensors[2:]))

    def plain(tensors):
        return plain_attention(tensors[0], sensors, mask, tensors[1], *tensors[2:])

    compare(form, plain, [tokens, score, *layers], upstream)


@needs_compiler
@pytest.mark.parametrize("masked", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize(
    ("sets", "sensors", "inputs", "widths"),
    [(1000, 5, 2, [32] * 4), (333, 10, 3, [64, 64]), (7, 250, 2, [32]), (50, 2, 20, [16, 48, 32])],
)
def test_attention(compiled, sets, sensors, inputs, widths, masked):
    attention_case(0, 2, sets, sensors, inputs, widths, masked)


@needs_compiler
@settings(max_examples=40)
@given(
    seed=st.integers(0, 1000),
    heads=st.integers(1, 3),
    sets=st.integers(1, 60),
    sensors=st.integers(1, 20),
    inputs=st.integers(1, 18),
    widths=st.lists(st.sampled_from([16, 32, 48, 64]), min_size=1, max_size=3),
    masked=st.booleans(),
)
def test_attention_of_any_shape(seed, heads, sets, sensors, inputs, widths, masked):
    attention_case(seed, heads, sets, sensors, inputs, widths, masked)


@needs_compiler
def test_one_sensor_has_nothing_to_weigh(compiled):
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randn(77, 2, generator=generator)
    layers = layers_of(generator, (3,), 2, [32, 32])
    upstream = torch.randn(3, 77, 32, generator=generator)
    compare(
        lambda tensors: fused_attention(tensors[0], 1, None, None, tuple(tensors[1:])),
        lambda tensors: hidden(tensors[1:], tensors[0]),
        [tokens, *layers],
        upstream,
    )


@needs_compiler
@pytest.mark.parametrize("own", [False, True], ids=["one bias", "a bias for each row"])
@pytest.mark.parametrize("rows", [0, 1, 95, 96, 97, 1001])
def test_perceptron(compiled, rows, own):
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, 38, generator=generator)
    layers = layers_of(generator, (), 38, [64, 32, 100])
    if own:
        layers[1] = torch.randn(rows, 64, generator=generator)
    upstream = torch.randn(rows, 100, generator=generator)
    compare(
        lambda tensors: fused_perceptron(tensors[0], tuple(tensors[1:])),
        lambda tensors: hidden(tensors[1:-2], tensors[0]) @ tensors[-2] + tensors[-1],
        [x, *layers],
        upstream,
    )


@needs_compiler
def test_weights_may_be_parts_of_others(compiled):
    """The encoder's first layer is cut in two, and `nn.Linear` keeps weights transposed."""
    generator = torch.Generator().manual_seed(2)
    x, whole = torch.randn(40, 6, generator=generator), torch.randn(32, 20, generator=generator)
    rest = layers_of(generator, (), 32, [16])

    def first_six(tensors):
        return tensors[1].T[:6]

    compare(
        lambda t: fused_perceptron(t[0], (first_six(t), t[2], t[3], t[4])),
        lambda t: torch.tanh(t[0] @ first_six(t) + t[2]) @ t[3] + t[4],
        [x, whole, torch.randn(32, generator=generator), *rest],
        torch.randn(40, 16, generator=generator),
    )


@needs_compiler
def test_tanh_is_exact_to_rounding_everywhere(compiled):
    x = torch.linspace(-60, 60, 100_001)[:, None]
    layers = (torch.ones(1, 16), torch.zeros(16), torch.eye(16), torch.zeros(16))
    found = fused_perceptron(torch.cat([x, 1e30 * x]), layers)
    expected = torch.tanh(torch.cat([x, 1e30 * x]).double())
    assert float((found.double() - expected).abs().max()) < 3e-7
    assert (found[:2].sum(), found[-2:].sum()) == (-32, 32)


@needs_compiler
@pytest.mark.parametrize("where", ["tokens", "layers"])
def test_what_is_not_a_number_stays_so(compiled, where):
    """A training that diverged must be seen to have."""
    generator = torch.Generator().manual_seed(3)
    tokens, layers = torch.randn(12, 2, generator=generator), layers_of(generator, (2,), 2, [32])
    score = torch.randn(1, 1, 32, generator=generator)
    (tokens if where == "tokens" else layers[0][0])[0, 0] = torch.nan
    found = fused_attention(tokens, 3, None, score, tuple(layers))
    assert bool(found[:, 0].isnan().all())


@needs_compiler
def test_threads_do_not_disturb_each_other():
    network = MLP(5, [64, 64], 3)
    inputs = [torch.randn(700, 5, generator=torch.Generator().manual_seed(k)) for k in range(8)]
    alone = [network(x).detach() for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda x: network(x).detach(), inputs * 5))
    assert all(torch.equal(a, b) for a, b in zip(alone * 5, together, strict=True))


@needs_compiler
def test_networks_are_fused_in_training_only():
    x = torch.zeros(3, 2)
    assert usable(x, [32, 64])
    assert not usable(x, [32, 33])
    assert not usable(x, [])
    assert not usable(x.double(), [32])
    assert not usable(x.to("meta"), [32])
    network = MLP(2, [32], 1)
    assert form(network, x) == "fused"
    assert form(network.eval(), x) == "sigmoid"


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("CXX", "/no/such/compiler", "No such file"),
        ("CXX", "false", "non-zero exit status"),
        ("CXX", "true", "cannot open shared object"),
        ("UQSONET_COMPILE", "0", "UQSONET_COMPILE is 0"),
    ],
)
def test_without_a_compiler_torch_does_it(setting, value, reason, monkeypatch, caplog):
    monkeypatch.setenv(setting, value)
    monkeypatch.setattr(fused, "_library", fused._library.__wrapped__)
    torch.manual_seed(0)
    network, x = MLP(2, [32, 32], 4), torch.randn(9, 2)
    with caplog.at_level(logging.INFO, "uqsonet"):
        found = network(x)
    assert caplog.records
    assert all("torch's operations" in r.message and reason in r.message for r in caplog.records)
    expected = x
    for k, layer in enumerate(network.layers):
        expected = torch.tanh(layer(expected)) if k < 2 else layer(expected)
    torch.testing.assert_close(found, expected)

"""Perceptrons: H evaluated side by side are H separate ones."""

import pytest
import torch

from uqsonet.models.perceptrons import MLP, HeadsMLP


@pytest.mark.parametrize("activation", ["tanh", "silu", "gelu"])
@torch.no_grad()
def test_heads_equal_separate_perceptrons(activation):
    torch.manual_seed(0)
    heads = HeadsMLP(3, 4, [6, 5], 2, activation)
    x = torch.randn(11, 4)
    found = heads(x)
    assert found.shape == (3, 11, 2)
    for i in range(3):
        single = MLP(4, [6, 5], 2, activation)
        for layer, weight, bias in zip(single.layers, heads.weights, heads.biases, strict=True):
            layer.weight.copy_(weight[i].T)
            layer.bias.copy_(bias[i, 0])
        torch.testing.assert_close(found[i], single(x))


def test_initial_laws_agree():
    """Uniform on +-1/sqrt(inputs), as nn.Linear: same bound, same spread."""
    torch.manual_seed(0)
    single, heads = MLP(50, [80], 1), HeadsMLP(4, 50, [80], 1)
    for values in (single.layers[0].weight, heads.weights[0]):
        assert values.abs().max() <= 50**-0.5
        assert float(values.detach().std() * 50**0.5) == pytest.approx(3**-0.5, rel=0.02)


@torch.no_grad()
def test_the_output_is_linear_and_hidden_layers_are_not():
    torch.manual_seed(0)
    model = MLP(1, [8], 1)
    x = torch.linspace(-3, 3, 7)[:, None]
    expected = model.layers[1](torch.tanh(model.layers[0](x)))
    torch.testing.assert_close(model(x), expected)
    model.layers[1].bias.add_(5)
    torch.testing.assert_close(model(x), expected + 5)


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


@torch.no_grad()
def test_large_inputs_saturate():
    model = MLP(1, [8, 8], 1)
    found = model(torch.tensor([[-1e30], [1e30]]))
    assert found.isfinite().all()
    hidden = torch.tanh(
        model.layers[1](torch.sign(model.layers[0].weight.T * torch.tensor([[-1.0], [1.0]])))
    )
    torch.testing.assert_close(found, model.layers[2](hidden))

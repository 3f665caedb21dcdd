"""Perceptrons: H evaluated side by side are H separate ones."""

import pytest
import torch

from uqsonet.models.perceptrons import MLP, HeadsMLP, fast_tanh


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


def test_tanh_and_its_gradient_are_those_of_torch_to_rounding():
    for dtype, error in ((torch.float32, 5e-7), (torch.float64, 1e-15)):
        x = torch.linspace(-30, 30, 9999, dtype=dtype, requires_grad=True)
        found, expected = fast_tanh(x), torch.tanh(x)
        torch.testing.assert_close(found, expected, rtol=0, atol=error)
        slopes = [torch.autograd.grad(y.sum(), x)[0] for y in (found, expected)]
        torch.testing.assert_close(*slopes, rtol=0, atol=2 * error)
    extremes = torch.tensor([-torch.inf, -1e30, 1e30, torch.inf])
    assert torch.equal(fast_tanh(extremes), torch.tanh(extremes))
    assert fast_tanh(torch.tensor(torch.nan)).isnan()

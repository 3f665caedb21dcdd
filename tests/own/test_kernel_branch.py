"""The operator in closed form: errors of pairs left out, centres, singular kernels."""

import numpy as np
import pytest
import torch

import uqsonet
from uqsonet.operator import kernel_branch
from uqsonet.operator.kernel_branch import (
    CONSTANT,
    LENGTHS,
    LINEAR,
    KernelBranch,
    least_left_out,
    multiquadric,
    solved,
)
from uqsonet.operator.perceptrons import MLP


def drawn(size: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs (size, 3) and a smooth function (size, 2) of them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 3, generator=generator, dtype=torch.float64) / 3**0.5
    return x, torch.stack([torch.sin(2 * x[:, 0]) + x[:, 1], x[:, 1] * x[:, 2]], 1)


def answered(x: torch.Tensor, centres: torch.Tensor, found: tuple[torch.Tensor, torch.Tensor]):
    return x @ found[0] + multiquadric(x, centres) @ found[1]


def test_parameters_have_the_least_error_of_pairs_left_out(monkeypatch) -> None:
    x, c = drawn(24)
    monkeypatch.setattr(kernel_branch, "RIDGES", (1e-4, 1e-1))
    monkeypatch.setattr(kernel_branch, "SLOPES", (1.0,))
    mixing = torch.randn(
        2, 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )  # as it draws them
    errors = {}
    for length in (0.5, 2.0):
        for ridge in (1e-4, 1e-1):
            left = 0.0
            for out in range(24):
                kept = torch.arange(24) != out
                kernel = multiquadric(x / length, x / length) + x @ x.T + CONSTANT
                inner = kernel[kept][:, kept] + ridge * torch.eye(23, dtype=torch.float64)
                predicted = kernel[out, kept] @ torch.linalg.solve(inner, c[kept] @ mixing)
                left += float((predicted - c[out] @ mixing).square().sum())
            errors[length, ridge] = left
    best = least_left_out(x * 3**0.5, torch.ones(3).double(), c, (0.5, 2.0))
    assert (best.length, best.ridge) == min(errors, key=lambda key: errors[key])


def test_many_centres_are_as_good_as_all_pairs() -> None:
    (x, c), (fresh, truth) = drawn(600), drawn(200, 1)
    even = torch.ones(3, dtype=torch.float64)
    best, linear = (least_left_out(x * 3**0.5, even, c, one) for one in (LENGTHS, LINEAR))
    assert best.ridge < 1e-3 < linear.ridge
    x, fresh = x / 4, fresh / 4
    whole = answered(fresh, x, solved(x, x, x, c, 1.0, 1e-8))
    some = answered(fresh, x[:300], solved(x, x, x[:300], c, 1.0, 1e-8))
    for found in (whole, some):
        assert float((found - truth).norm() / truth.norm()) < 4e-2


@pytest.mark.parametrize("centres", [1200, 100])
def test_pairs_that_are_alike_have_an_answer(centres: int) -> None:
    x, c = (part.repeat(40, 1) for part in drawn(30))
    found = solved(x, x, x[:centres], c, 1.0, 1e-18)
    assert float((answered(x, x[:centres], found) - c).abs().max()) < 1e-3


@pytest.mark.parametrize("branch", ["kernel", "perceptron"])
def test_slopes_are_those_of_the_answers(branch: str) -> None:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    network: KernelBranch | MLP = MLP(7, [16, 16], 5).double()
    if branch == "kernel":
        network = KernelBranch(7, 5, 11)
        network.scale.copy_(0.3 * normal(7).abs())
        network.centres.copy_(normal(11, 7))
        network.weights.copy_(normal(11, 5))
    a, rows, along, step = normal(6, 7), normal(3, 5), normal(4, 7), 1e-5
    found = network.slopes(a, rows, along)
    for k, direction in enumerate(along):
        ahead, behind = (network(a + side * step * direction) @ rows.T for side in (1, -1))
        torch.testing.assert_close(
            found[:, :, k], (ahead - behind).detach() / (2 * step), rtol=1e-5, atol=1e-7
        )


def test_cokriging_beside_a_kernel_has_the_best_linear_operator():
    """A kernel and its linear part are fitted together: the latter alone predicts nothing."""
    rng = np.random.default_rng(5)
    x = np.linspace(0, 1, 21)
    a = rng.standard_normal((150, 3)) @ np.sin(np.pi * np.outer([1, 2, 3], x))
    runs = uqsonet.Runs({"a": a}, {"u": np.cumsum(a, 1) + 0.3 * a**2})
    model = uqsonet.fit(runs[:120], sensors=[5], law="gaussian", bar=False)
    assert model.operator.network is not None
    crps = {one.method: one.crps for one in model.validate(runs[120:]).scores}
    assert crps["uqsonet"] < crps["cokriging"] < 0.2 * crps["sensor_free"]

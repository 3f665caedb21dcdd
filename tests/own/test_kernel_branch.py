"""The operator in closed form: errors of pairs left out, centres, singular kernels."""

import pytest
import torch

from uqsonet.operator import kernel_branch
from uqsonet.operator.kernel_branch import (
    CONSTANT,
    LENGTHS,
    LINEAR,
    least_left_out,
    solved,
    squared_exponential,
)


def drawn(size: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs (size, 3) and a smooth function (size, 2) of them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 3, generator=generator, dtype=torch.float64) / 3**0.5
    return x, torch.stack([torch.sin(2 * x[:, 0]) + x[:, 1], x[:, 1] * x[:, 2]], 1)


def answered(x: torch.Tensor, centres: torch.Tensor, found: tuple[torch.Tensor, torch.Tensor]):
    return x @ found[0] + squared_exponential(x, centres) @ found[1]


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
                kernel = squared_exponential(x / length, x / length) + x @ x.T + CONSTANT
                inner = kernel[kept][:, kept] + ridge * torch.eye(23, dtype=torch.float64)
                predicted = kernel[out, kept] @ torch.linalg.solve(inner, c[kept] @ mixing)
                left += float((predicted - c[out] @ mixing).square().sum())
            errors[length, ridge] = left
    best = least_left_out(x, c, (0.5, 2.0))
    assert (best.length, best.ridge) == min(errors, key=lambda key: errors[key])


def test_many_centres_are_as_good_as_all_pairs() -> None:
    (x, c), (fresh, truth) = drawn(600), drawn(200, 1)
    assert least_left_out(x, c, LENGTHS).ridge < 1e-3 < least_left_out(x, c, LINEAR).ridge
    whole = answered(fresh, x, solved(x, x, x, c, 1.0, 1e-8))
    some = answered(fresh, x[:300], solved(x, x, x[:300], c, 1.0, 1e-8))
    for found in (whole, some):
        assert float((found - truth).norm() / truth.norm()) < 4e-2


@pytest.mark.parametrize("centres", [1200, 100])
def test_pairs_that_are_alike_have_an_answer(centres: int) -> None:
    x, c = (part.repeat(40, 1) for part in drawn(30))
    found = solved(x, x, x[:centres], c, 1.0, 1e-18)
    assert float((answered(x, x[:centres], found) - c).abs().max()) < 1e-3

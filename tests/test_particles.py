"""Sequential Monte Carlo on laws that a fine grid knows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from uqsonet.gauss.gaussian import GaussianLaw
from uqsonet.operator.particles import Split, tempered

LEVEL = 0.01
VALUES = torch.tensor([0.7, 0.4, 0.9], dtype=torch.float64)


def seen(a: Tensor) -> Tensor:
    """Return what three readings see (n, 3) of two coordinates (n, 2), strongly curved."""
    x, y = a.double().T
    second = y + 0.4 * torch.sin(2 * y) + 0.3 * x
    return torch.stack([x + 0.6 * y.square(), second, (x - y).tanh()], 1)


@pytest.mark.parametrize("readings", [1, 2, 3])
def test_sharp_readings_of_a_curved_operator_agree_with_a_grid(readings: int) -> None:
    """With one reading a line of the plane is left over, else nothing."""
    wide = LEVEL if readings < 3 else 0.3  # three sharp readings would contradict each other
    axis = torch.linspace(-5, 5, 3001, dtype=torch.float64)
    a = torch.cartesian_prod(axis, axis)
    off = (VALUES[:readings] - seen(a)[:, :readings]) / wide
    share = torch.softmax(-(a.square().sum(1) + off.square().sum(1)) / 2, 0)
    mean = share @ a
    std = (share @ (a - mean).square()).sqrt()

    calls: list[int] = []

    def answers(a: Tensor) -> Tensor:
        calls.append(len(a))
        return seen(a)[:, :readings]

    def slopes(a: Tensor, along: Tensor) -> Tensor:
        calls.append(len(a))
        found = torch.func.vmap(torch.func.jacrev(lambda one: seen(one[None])[0, :readings]))(a)
        return found.double() @ along.T

    none = torch.zeros(0, 2, dtype=torch.float64)
    law = GaussianLaw(torch.zeros(2, dtype=torch.float64), none, none[:, 0])
    slope = torch.autograd.functional.jacobian(lambda a: answers(a[None])[0], torch.zeros(2))
    noise = wide**2 * torch.eye(readings, dtype=torch.float64)
    source = Split(law, VALUES[:readings], noise, slope.double(), answers, slopes)
    calls.clear()
    samples, _ = tempered(source, 4096, torch.Generator().manual_seed(0))
    assert samples.effective_size > 1000
    assert ((samples.a.double().mean(0) - mean).abs() < 0.08 * std).all()
    assert ((samples.a.double().std(0) / std - 1).abs() < 0.06).all()
    assert sum(calls) < (12 if readings == 1 else 4) * 4096

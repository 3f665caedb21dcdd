"""Evenly spread draws: normals of the right law, and moments with a smaller error."""

import pytest
import torch

from uqsonet.models.weights import load, shipped
from uqsonet.quasi_random import even_normals


def test_even_normals_are_standard_normal_and_repeat():
    z = even_normals(4096, 40).double()
    assert z.dtype == torch.float64 and z.isfinite().all()
    assert z.mean(0).abs().max() < 0.01  # of independent draws: 0.016 each
    assert (z.var(0) - 1).abs().max() < 0.02
    assert torch.equal(even_normals(4096, 40), even_normals.__wrapped__(4096, 40))


def test_moments_from_2048_even_draws_are_as_near_as_from_10000_independent_ones():
    """On the operator of section 4.1, whose branch is a perceptron."""
    law = load(shipped()["diffusion1d"]).condition([[-0.4], [0.1], [0.7]], [0.9, 1.3, 1.1])
    mean, covariance = law.coefficient_moments(300_000, torch.Generator().manual_seed(1))

    def errors(found: tuple[torch.Tensor, torch.Tensor]) -> tuple[float, float]:
        spread = covariance.diagonal(dim1=1, dim2=2).sum().sqrt()
        return float((found[0] - mean).norm() / spread), float(
            (found[1] - covariance).norm() / covariance.norm()
        )

    plain = [
        errors(law.coefficient_moments(10_000, torch.Generator().manual_seed(seed)))
        for seed in range(10, 20)
    ]
    of_mean, of_covariance = (sum(parts) / len(plain) for parts in zip(*plain, strict=True))
    even = errors(law.even_moments(2048))
    assert even[0] < of_mean and even[1] < 1.5 * of_covariance


@pytest.mark.parametrize("name", ["poisson2d", "elliptic_sde1d"])
def test_even_moments_agree_with_those_of_many_draws(name):
    model = load(shipped()[name])
    x = torch.full((1, model.fields.input.grid.dim), 0.3)
    law = model.condition(x, [1.0])
    many, even = law.coefficient_moments(20_000), law.even_moments(1024)
    for one, other in zip(even, many, strict=True):
        assert (one - other).norm() < 0.02 * other.norm()

"""Evenly spread draws: normals of the right law, and moments with a smaller error."""

import torch

from uqsonet.gauss.given import even_normals
from uqsonet.operator.weight_files import load, shipped


def test_even_normals_are_standard_normal_and_repeat():
    z = even_normals(4096, 40).double()
    assert z.dtype == torch.float64 and z.isfinite().all()
    assert z.mean(0).abs().max() < 0.01  # of independent draws: 0.016 each
    assert (z.var(0) - 1).abs().max() < 0.02
    assert torch.equal(even_normals(4096, 40), even_normals.__wrapped__(4096, 40))


def test_moments_from_2048_even_draws_are_as_near_as_from_10000_independent_ones():
    """On the operator of section 4.1, whose branch is a perceptron."""
    law = load(shipped()["diffusion1d"]).condition([[-0.4], [0.1], [0.7]], [0.9, 1.3, 1.1])
    mean, covariance = law.law.moments(200_000, torch.Generator().manual_seed(1))

    def errors(found: tuple[torch.Tensor, torch.Tensor]) -> tuple[float, float]:
        spread = covariance.diagonal(dim1=1, dim2=2).sum().sqrt()
        of_covariance = (found[1] - covariance).norm() / covariance.norm()
        return float((found[0] - mean).norm() / spread), float(of_covariance)

    seeds = (torch.Generator().manual_seed(seed) for seed in range(10, 16))
    plain = [errors(law.law.moments(10_000, seed)) for seed in seeds]
    of_mean, of_covariance = (sum(parts) / len(plain) for parts in zip(*plain, strict=True))
    even = errors(law.law.moments(2048))
    assert even[0] < of_mean and even[1] < 1.5 * of_covariance

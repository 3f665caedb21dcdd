"""The covariance of what kappa leaves open, on laws where it is known."""

import pytest
import torch

from uqsonet.nn.intrinsic import covariance_root, residual_covariance, residual_slopes


def pairs(size, slopes, noise=1.0):
    """Residuals with covariance ``noise^2 + sum_j a_j S_j``, diagonal S_j, and random weights."""
    generator = torch.Generator().manual_seed(1)
    a = torch.randn(size, len(slopes), generator=generator).double()
    weight = torch.randn(slopes.shape[1], len(slopes), generator=generator).double()
    variance = (noise**2 + a @ slopes).clamp_min(0)
    r = torch.randn(size, slopes.shape[1], generator=generator).double() * variance.sqrt()
    return a, a @ weight.T + r, weight


def test_the_covariance_is_that_of_the_residuals():
    a, c, weight = pairs(500, torch.zeros(4, 3).double())
    r = c - a @ weight.T
    torch.testing.assert_close(residual_covariance(a, c, weight), r.T @ r / 500)


def test_slopes_are_found():
    slopes = torch.tensor([[0.2, 0.0, 0.1], [0.0, -0.2, 0.0], [0.0, 0.0, 0.0]]).double()
    found = residual_slopes(*pairs(200_000, slopes))
    # The standard error of an entry is about sqrt(3 / 200,000) = 0.004.
    assert (found - torch.diag_embed(slopes)).abs().max() < 0.025


def test_slopes_that_may_be_noise_are_shrunk_away():
    found = residual_slopes(*pairs(300, torch.zeros(40, 3).double()))
    assert (found.flatten(1).norm(dim=1) == 0).double().mean() > 0.3
    assert found.norm() < 0.7 * residual_slopes_plain(*pairs(300, torch.zeros(40, 3).double()))


def residual_slopes_plain(a, c, weight):
    r = c - a @ weight.T
    return (torch.einsum("nj,np,nq->jpq", a, r, r) / len(a)).norm()


def test_blocks_change_nothing(monkeypatch):
    known = pairs(700, torch.full((2, 3), 0.1).double())
    whole = residual_slopes(*known)
    monkeypatch.setattr("uqsonet.nn.intrinsic.ROWS", 64)
    torch.testing.assert_close(residual_slopes(*known), whole)


def test_roots_are_of_the_nearest_covariance():
    generator = torch.Generator().manual_seed(2)
    factor = torch.randn(2, 5, 5, generator=generator).double()
    exact = factor @ factor.transpose(-1, -2)
    root = covariance_root(exact)
    torch.testing.assert_close(root @ root.transpose(-1, -2), exact)
    broken = torch.diag(torch.tensor([2.0, -0.5]).double())
    cut = covariance_root(broken)
    assert (cut @ cut.T).tolist() == [[pytest.approx(2.0), 0.0], [0.0, 0.0]]

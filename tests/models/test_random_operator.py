"""The covariance of what kappa leaves open, on laws where it is known."""

import pytest
import torch

from uqsonet.gaussian import covariance_root
from uqsonet.models.random_operator import (
    KEPT,
    residual_covariance,
    residual_slopes,
    standardised_residuals,
)


def pairs(size, slopes, noise=1.0):
    """Residuals with covariance ``noise^2 + sum_j a_j S_j``, diagonal S_j, and random weights."""
    generator = torch.Generator().manual_seed(1)
    a = torch.randn(size, len(slopes), generator=generator).double()
    weight = torch.randn(slopes.shape[1], len(slopes), generator=generator).double()
    variance = (noise**2 + a @ slopes).clamp_min(0)
    r = torch.randn(size, slopes.shape[1], generator=generator).double() * variance.sqrt()
    return a, a @ weight.T + r, weight


def test_slopes_are_found():
    slopes = torch.tensor([[0.2, 0.0, 0.1], [0.0, -0.2, 0.0], [0.0, 0.0, 0.0]]).double()
    a, c, weight = known = pairs(200_000, slopes)
    r = c - a @ weight.T
    torch.testing.assert_close(residual_covariance(*known), r.T @ r / len(a))
    found = residual_slopes(*known)
    # The standard error of an entry is about sqrt(3 / 200,000) = 0.004.
    assert (found - torch.diag_embed(slopes)).abs().max() < 0.025
    noise = residual_slopes(*pairs(300, torch.zeros(40, 3).double()))
    assert (noise.flatten(1).norm(dim=1) == 0).double().mean() > 0.3  # what may be noise is cut


def test_blocks_change_nothing(monkeypatch):
    known = pairs(700, torch.full((2, 3), 0.1).double())
    whole = residual_slopes(*known)
    monkeypatch.setattr("uqsonet.models.random_operator.ROWS", 64)
    torch.testing.assert_close(residual_slopes(*known), whole)


def test_roots_are_symmetric_and_of_the_nearest_covariance():
    factor = torch.randn(2, 5, 5, generator=torch.Generator().manual_seed(2)).double()
    exact = factor @ factor.mT
    root = covariance_root(exact)
    torch.testing.assert_close(root @ root.mT, exact)
    torch.testing.assert_close(root, root.mT)
    cut = covariance_root(torch.diag(torch.tensor([2.0, -0.5]).double()))
    assert (cut @ cut.T).tolist() == [[pytest.approx(2.0), 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("size", [700, KEPT + 500])
def test_residuals_are_standardised_and_keep_their_shape(size):
    """With covariance C given back they are the residuals themselves, less their mean."""
    generator = torch.Generator().manual_seed(4)
    mixing = torch.randn(3, 3, generator=generator).double()
    r = torch.randn(size, 3, generator=generator).double().exp() @ mixing.T
    a = torch.randn(size, 2, generator=generator).double()
    weight = torch.randn(3, 2, generator=generator).double()
    found = standardised_residuals(a, r + a @ weight.T, weight)
    assert found.shape == (KEPT, 3)
    assert found.mean(0).abs().max() < 1e-10
    torch.testing.assert_close(found.T @ found / KEPT, torch.eye(3).double())
    repeated = r[torch.arange(KEPT) % size]
    centred = repeated - repeated.mean(0)
    back = found @ covariance_root(centred.T @ centred / KEPT)
    torch.testing.assert_close(back, centred)


def test_directions_with_nothing_left_open_stay_zero():
    a, c, weight = pairs(400, torch.zeros(4, 3).double())
    c[:, 2] = a @ weight[2]
    found = standardised_residuals(a, c, weight)
    assert found.isfinite().all() and found[:, 2].abs().max() < 1e-6
    nothing = standardised_residuals(a, a @ weight.T, weight)
    assert nothing.isfinite().all()

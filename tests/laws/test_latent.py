"""The latent field behind classes: spectra found again, consistent fields, which one is chosen."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.laws.conftest import seeded
from uqsonet.fields import Grid
from uqsonet.laws import latent
from uqsonet.laws.latent import LowRank, Spectrum, fit_latent
from uqsonet.laws.thresholded import tetrachoric

LINE = Grid((0.0,), (2.0,), (60,))
SQUARE = Grid((0.0, -1.0), (1.0, 1.0), (14, 16))


def spectrum(grid: Grid, exponent: float, constant: float, wider: float, length: float) -> Spectrum:
    values = [exponent, constant, wider] + [length] * grid.dim
    return Spectrum(grid, torch.tensor(values, dtype=torch.float64))


def correlations(field: Spectrum | LowRank, grid: Grid) -> Tensor:
    rows = field.rows(grid, grid.points())
    return rows @ rows.T


@pytest.mark.parametrize("grid", [LINE, SQUARE, Grid((0.0,) * 3, (1.0,) * 3, (8, 9, 10))])
@pytest.mark.parametrize("wider", [0.0, 0.5])
def test_fields_on_the_grid_are_those_that_sensors_see(grid: Grid, wider: float) -> None:
    field = spectrum(grid, 2.0, 0.3, wider, 0.4)
    xi = torch.randn(5, field.rank, generator=seeded(), dtype=torch.float64)
    rows = field.rows(grid, grid.points())
    assert float((rows.square().sum(-1) - 1).abs().max()) < 1e-12
    assert float((field.fields(xi) - xi @ rows.T).abs().max()) < 1e-5


def test_a_wide_box_has_the_matern_kernel() -> None:
    """Exponent 1 in one dimension is the exponential kernel, where the box's ends are far away."""
    length = 0.1  # of the grid's extent of 2
    field = spectrum(LINE, 1.0, 1.0, 0.5, length)
    x = LINE.points()[:, 0]
    # (1 + (length k)^2 / 2)^-1 is the spectrum of exp(-d sqrt(2) / length), d as a share.
    wanted = torch.exp(-(x[:, None] - x).abs() / 2 * 2**0.5 / length)
    inner = slice(10, 50)
    off = (correlations(field, LINE) - wanted)[inner, inner].abs().max()
    assert float(off) < 0.04  # cosines end somewhere: the kernel has a kink


def test_a_rough_field_is_found_again_from_its_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latent, "SPREAD", 60)
    grid = Grid((0.0, -1.0), (1.0, 1.0), (11, 12))
    true = spectrum(grid, 1.8, 0.05, 0.0, 0.5)
    xi = torch.randn(6000, true.rank, generator=seeded(), dtype=torch.float64)
    cut = torch.full((grid.size,), 0.6, dtype=torch.float64)
    found = fit_latent(grid, (true.fields(xi) <= cut).float(), cut, tetrachoric)
    assert isinstance(found, Spectrum)
    off = (correlations(found, grid) - correlations(true, grid)).abs()
    assert float(off.max()) < 0.06 and float(off.mean()) < 0.02
    # Below the spacing of points, what matters is the exponent.
    assert float(found.values[0]) == pytest.approx(1.8, abs=0.25)


def test_a_field_that_no_spectrum_has_keeps_its_factor() -> None:
    """Two independent halves: a jump of correlation that no stationary field knows."""
    x = LINE.points()[:, 0]
    kernel = torch.exp(-((x[:, None] - x) ** 2) / 0.3**2)
    kernel = torch.where((x[:, None] < 1) == (x < 1), kernel, 0.0)
    root = torch.linalg.cholesky(kernel + 1e-9 * torch.eye(len(x)))
    hidden = torch.randn(6000, len(x), generator=seeded(), dtype=torch.float64) @ root.T
    cut = torch.zeros(LINE.size, dtype=torch.float64)
    found = fit_latent(LINE, (hidden <= 0).float(), cut, tetrachoric)
    assert isinstance(found, LowRank)
    assert float((correlations(found, LINE) - kernel).abs().max()) < 0.15


def test_a_stored_spectrum_is_checked() -> None:
    good = spectrum(LINE, 2.0, 0.3, 0.5, 0.4).values
    assert torch.equal(Spectrum.of(LINE, good).values, good)
    for wrong in (good[:3], torch.cat([good, good[:1]]), -good, good * torch.nan):
        with pytest.raises(ValueError, match="spectrum"):
            Spectrum.of(LINE, wrong)

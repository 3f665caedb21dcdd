"""PosteriorBench: metrics on known laws, solvers, priors, references by two independent ways."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.chains import walk, walled
from uqsonet_study.posterior.importance import SEEN_MODES, ExactPosterior
from uqsonet_study.posterior.metrics import (
    covered,
    directions,
    distances,
    mixing,
    mmd,
    power_by_ring,
    sliced,
    spectral_error,
)
from uqsonet_study.posterior.problems import (
    ALPHA,
    CUT,
    POINTS,
    SIGMA,
    TAU,
    Darcy,
    Poisson,
    cosines,
    log_weight,
    spectrum,
    synthesis,
)


def normals(size: int, shift: float = 0.0, scale: float = 1.0, seed: int = 0) -> Tensor:
    """Return white fields (size, n, n)."""
    generator = np.random.default_rng(seed)
    return shift + scale * torch.from_numpy(generator.standard_normal((size, POINTS, POINTS)))


def test_errors_of_mean_and_std_are_those_of_the_laws() -> None:
    found = distances(normals(200, 1.1, 1.2), normals(200, 1.0, 1.0, 1), 0.0, 1.0)
    chance = math.sqrt((1.2**2 + 1) / 200)
    assert found["mean"] == pytest.approx(math.hypot(0.1, chance), rel=0.05)
    assert found["std"] == pytest.approx(math.hypot(0.2, math.sqrt(2.44 / 400)), rel=0.1)
    assert found["spectrum"] == pytest.approx(0.44, rel=0.1)


def test_mmd_of_gaussians_is_the_closed_form() -> None:
    # With width c: E exp(-|X - Y|^2 / c) = (1 + 2 s^2 / c)^(-d/2) exp(-m^2 / (c + 2 s^2)).
    shift, levels = 1.5, (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    x = torch.special.ndtri(levels)[:, None]
    y = x + shift
    width = float(torch.cdist(x, y).square().median())
    total = 0.0
    for part in (0.2, 0.5, 1.0, 2.0, 5.0):
        c = part * width
        total += 2 / 5 * (1 + 4 / c) ** -0.5 * (1 - math.exp(-(shift**2) / (c + 4)))
    assert mmd(x, y) == pytest.approx(math.sqrt(total), rel=0.01)
    assert mmd(x, x) == pytest.approx(0.0, abs=1e-7)


def test_sliced_distance_of_a_shift_is_its_part_along_the_directions() -> None:
    x = normals(50)
    shift = synthesis(spectrum(2.0, 3.0)).flatten()
    along = (directions() @ shift).abs().mean()
    moved = x.flatten(1) + shift
    assert sliced(x.flatten(1), moved, directions()) == pytest.approx(float(along), rel=1e-9)
    double = sliced(x.flatten(1), x.flatten(1).repeat(2, 1), directions())
    assert double == pytest.approx(0.0, abs=1e-9)


def test_power_of_a_wave_stands_in_its_ring() -> None:
    wave = torch.cos(2 * math.pi * 7 * torch.arange(POINTS) / POINTS).expand(1, POINTS, -1)
    power = power_by_ring(wave)
    assert int(power.argmax()) == 7 and float(power.sum() / power[7]) == pytest.approx(1.0)
    assert spectral_error(
        2 * power_by_ring(normals(2)), power_by_ring(normals(2))
    ) == pytest.approx(1.0)


def test_bands_hold_what_they_promise_of_the_same_law_and_too_little_of_a_wider_one() -> None:
    samples, same, wider = normals(400), normals(300, seed=1), normals(300, scale=2.0, seed=2)
    assert covered(samples, same) == pytest.approx([0.5, 0.9], abs=0.01)
    assert covered(samples, wider) == pytest.approx([0.264, 0.589], abs=0.01)


def test_the_weight_ends_at_the_cut() -> None:
    inside = log_weight(torch.tensor([[1e-4, -3e-4]], dtype=torch.float64))
    assert float(inside) == pytest.approx(-((2e-4 / SIGMA) ** 2) / 2)
    assert float(log_weight(torch.tensor([[1.1 * CUT, -CUT]]))) == -math.inf


def test_solutions_of_poisson_converge_with_the_square_of_the_spacing() -> None:
    # -Lap sin(pi x) sin(2 pi y) = 5 pi^2 sin(pi x) sin(2 pi y)
    x = torch.linspace(0, 1, POINTS, dtype=torch.float64)
    truth = torch.outer(torch.sin(math.pi * x), torch.sin(2 * math.pi * x))
    error = float((Poisson().solve(5 * math.pi**2 * truth) - truth).abs().max())
    step = (math.pi / (POINTS - 1)) ** 2
    assert error == pytest.approx(step * (1 + 16) / 5 / 12, rel=0.02)


def test_solutions_of_darcy_are_those_of_the_assembled_system() -> None:
    from scipy.sparse import lil_matrix
    from scipy.sparse.linalg import spsolve

    a = Darcy().draw(np.random.default_rng(0), 1)
    n, medium = POINTS, a[0].numpy()
    number = np.arange((n - 2) ** 2).reshape(n - 2, n - 2)
    matrix, inner = lil_matrix((number.size, number.size)), slice(1, -1)
    for axis, step in ((0, 1), (0, -1), (1, 1), (1, -1)):
        beside = np.roll(medium, -step, axis)[inner, inner]
        face = (medium[inner, inner] + beside) / 2 * (n - 1) ** 2
        matrix.setdiag(matrix.diagonal() + face.ravel())
        there = np.roll(np.pad(number, 1, constant_values=-1), -step, axis)[inner, inner]
        kept = there >= 0
        matrix[number[kept], there[kept]] = -face[kept]
    u = spsolve(matrix.tocsc(), np.ones(number.size))
    assert np.abs(Darcy().solve(a)[0, 1:-1, 1:-1].numpy().ravel() / u - 1).max() < 1e-5


def test_priors_have_the_sizes_that_others_state() -> None:
    f, phi = Poisson().pairs(500)
    assert float(f.square().mean().sqrt()) == pytest.approx(0.272, rel=0.03)
    assert float(phi.square().mean().sqrt()) == pytest.approx(0.0038, rel=0.1)
    a, u = Darcy().pairs(60)
    assert set(a.unique().tolist()) == {3.0, 12.0}
    assert float(u.mean()) == pytest.approx(0.0057, rel=0.1)
    assert float(u.std()) == pytest.approx(0.0038, rel=0.1)


def test_pairs_and_cases_are_the_same_in_any_company() -> None:
    few, many = Poisson().pairs(3), Poisson().pairs(501)
    assert torch.equal(few[0], many[0][:3])
    case = Poisson().case(3)
    assert torch.equal(case.readings, Poisson().case(3).readings)
    assert len(case.sensors.unique()) == 128


def test_sensors_see_the_lowest_cosines_alone() -> None:
    case = Poisson().case(0)
    rows = Poisson().rows(case.sensors, POINTS)
    coefficients = cosines() @ case.truth @ cosines().T
    assert torch.allclose((rows * coefficients).sum((1, 2)), case.readings, rtol=0, atol=1e-12)
    rows[:, :SEEN_MODES, :SEEN_MODES] = 0.0
    assert float((rows * spectrum(1.5, 4.0)).flatten(1).norm(dim=1).max()) < 2e-6


def test_chains_of_a_gaussian_law_have_its_moments() -> None:
    start = torch.randn(40, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    walks = walk(start, lambda z: -((z[:, 0] - 1) ** 2) / 2, 4000, np.random.default_rng(0))
    states = torch.stack(list(walks)[2000:])
    assert states.mean((0, 1)).tolist() == pytest.approx([0.5, 0.0], abs=0.03)
    assert states.std((0, 1)).tolist() == pytest.approx([0.5**0.5, 1.0], rel=0.05)
    rhat, effective = mixing(states)
    assert rhat < 1.02 and 1000 < effective < 80_000
    apart = states + torch.arange(40)[:, None]
    assert mixing(apart)[0] > 2 and mixing(apart)[1] < 50


def test_the_reference_agrees_with_chains_that_know_no_gaussian_noise() -> None:
    modes = 24
    case, problem, generator = Poisson().case(3), Poisson(), np.random.default_rng(0)
    exact = ExactPosterior(case, generator, 20_000)
    (mean, _), apart, _ = exact.moments()
    assert exact.effective_size > 1000 and apart < 0.02
    rows = problem.rows(case.sensors, modes).flatten(1).T

    def coefficients(z: Tensor) -> Tensor:
        ends = torch.tensor([ALPHA, TAU], dtype=torch.float64)
        levels = ends[:, 0] + torch.special.ndtr(z[:, :2]) * ends.diff(dim=1)[:, 0]
        std = [spectrum(float(a), float(t), modes).flatten() for a, t in levels]
        return torch.stack(std) * z[:, 2:]

    def likelihood(z: Tensor) -> Tensor:
        misfit = coefficients(z) @ rows - case.readings
        return -((misfit.abs().mean(1) / SIGMA) ** 2) / 2 + walled(misfit, CUT)

    start = torch.from_numpy(generator.standard_normal((24, 2 + modes**2)))
    states = list(walk(start, likelihood, 2500, generator))[1250::10]
    a = torch.stack([coefficients(z) for z in states])
    true = (cosines() @ mean @ cosines().T)[:modes, :modes].flatten()
    of_chains, error = a.mean((0, 1)), a.mean(0).std(0) / 24**0.5
    assert float((of_chains - true).norm()) < 1.5 * float(error.norm())
    assert float(error.norm() / true.norm()) < 0.1

"""The spectral solver meets exact solutions, its orders and tolerances, and another solver."""

import math

import numpy as np
import pytest
import torch

from uqsonet.errors import DataError
from uqsonet_study.solvers.navier_stokes import (
    integrate,
    resize,
    runge_kutta_step,
    solve_navier_stokes,
    spectral_space,
    to_grid,
    to_spectrum,
)

PI = math.pi
N, NU, T = 100, 1e-3, 10.0


def points(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.arange(n, dtype=torch.float64) / n
    return x[:, None], x


def paper_forcing(n: int = N) -> torch.Tensor:
    x, y = points(n)
    return 0.1 * (torch.sin(2 * PI * (x + y)) + torch.cos(2 * PI * (x + y)))


def paper_states(count: int, seed: int, n: int = N) -> torch.Tensor:
    """``(x(1-x)y(1-y))^(1/3) h`` with a Gaussian field h of length 0.1, float64 (count, n, n)."""
    x, _ = points(n)
    values, vectors = torch.linalg.eigh(torch.exp(-((x - x.T) ** 2) / (2 * 0.1**2)))
    root = vectors * values.clamp(min=0).sqrt()
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(count, n, n, generator=generator, dtype=torch.float64)
    edge = x * (1 - x)
    return (edge * edge.T) ** (1 / 3) * (root @ noise @ root.T)


def errors(found: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Relative L2 error of each sample."""
    exact = exact.double()
    return (found.double() - exact).flatten(1).norm(dim=1) / exact.flatten(1).norm(dim=1)


@pytest.fixture(scope="module")
def states() -> torch.Tensor:
    return paper_states(4, seed=1)


@pytest.fixture(scope="module")
def reference(states: torch.Tensor) -> torch.Tensor:
    return solve_navier_stokes(states, paper_forcing(), NU, T, 1e-11)


def smooth_state(n: int) -> torch.Tensor:
    """A few modes that interact."""
    x, y = points(n)
    w = torch.sin(2 * PI * x) * torch.cos(4 * PI * y) + 0.7 * torch.cos(2 * PI * (2 * x - y) + 1)
    return (w + 0.5 * torch.sin(2 * PI * (x + 3 * y)))[None]


def fixed_steps(w: torch.Tensor, f: torch.Tensor, viscosity: float, time: float, steps: int):
    space = spectral_space(w.shape[0] // 2, w.dtype, w.device)
    rate = space.rate(w, f)
    for _ in range(steps):
        w, rate, _ = runge_kutta_step(space, w, rate, f, viscosity, time / steps)
    return w


def test_rate_is_the_projected_nonlinear_term():
    """u . grad w formed in advective form on a grid that resolves every product."""
    degree, n = 6, 32
    w = torch.randn(13, 2, 13, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    k = 2 * PI * torch.fft.fftfreq(n, 1 / n, dtype=torch.float64)
    kx, ky = k[:, None], k
    hat = torch.fft.fft2(to_grid(w, n))
    inverse = 1 / (kx**2 + ky**2)
    inverse[0, 0] = 0

    def values(x):
        return torch.fft.ifft2(x).real

    u, v = values(1j * ky * hat * inverse), -values(1j * kx * hat * inverse)
    advection = u * values(1j * kx * hat) + v * values(1j * ky * hat)
    found = spectral_space(degree, w.dtype, w.device).rate(w, torch.zeros(13, 1, 13).double())
    expected = -to_spectrum(advection, degree)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12 * float(expected.abs().max()))


def test_modes_beyond_two_thirds_are_cut():
    x, y = points(16)
    kept, nyquist = torch.cos(2 * PI * 5 * x) + 0 * y, torch.cos(2 * PI * 8 * x) + 0 * y
    beyond = torch.cos(2 * PI * 6 * y) + 0 * x
    zero = torch.zeros(16, 16).double()
    found = solve_navier_stokes(torch.stack([kept, nyquist, beyond]), zero, 0.01, 0.1)
    decayed = kept * math.exp(-0.01 * (2 * PI * 5) ** 2 * 0.1)
    torch.testing.assert_close(found[0], decayed, rtol=0, atol=1e-13)
    assert found[1:].abs().max() < 1e-14


@pytest.mark.parametrize("coarsen", [True, False])
@pytest.mark.parametrize("n", [4, 5, 7, 32])
def test_taylor_green_vortex_decays_exactly(n, coarsen):
    x, y = points(n)
    w0 = (torch.cos(2 * PI * x) * torch.cos(2 * PI * y))[None]
    found = solve_navier_stokes(w0, torch.zeros(n, n).double(), 0.01, 2.0, coarsen=coarsen)
    exact = w0 * math.exp(-2 * 8 * PI**2 * 0.01)
    torch.testing.assert_close(found, exact, rtol=0, atol=1e-13)


def test_one_forced_mode_relaxes_exactly():
    """A single mode: ``w = f (1 - exp(-a t)) / a``, from a state that is zero."""
    rate = 8 * PI**2 * NU
    found = solve_navier_stokes(torch.zeros(1, N, N).double(), paper_forcing(), NU, T, 1e-10)
    exact = paper_forcing()[None] * (1 - math.exp(-rate * T)) / rate
    assert errors(found, exact).max() < 1e-10


def test_manufactured_steady_flow_with_advection_stays():
    """``f = u . grad w - nu Lap w`` by hand, for two modes of different eigenvalues."""
    x, y = points(24)
    p, q, nu = 2 * PI, 4 * PI, 0.02
    # psi = s (sin px cos qy + cos py): -Lap has eigenvalues p^2 + q^2 and p^2
    s, a, b = 0.06, p**2 + q**2, p**2
    w = s * (a * torch.sin(p * x) * torch.cos(q * y) + b * torch.cos(p * y))
    u = s * (-q * torch.sin(p * x) * torch.sin(q * y) - p * torch.sin(p * y))
    v = -s * p * torch.cos(p * x) * torch.cos(q * y)
    w_x = s * a * p * torch.cos(p * x) * torch.cos(q * y)
    w_y = s * (-a * q * torch.sin(p * x) * torch.sin(q * y) - b * p * torch.sin(p * y))
    diffusion = nu * s * (a**2 * torch.sin(p * x) * torch.cos(q * y) + b**2 * torch.cos(p * y))
    advection = u * w_x + v * w_y
    assert advection.norm() > diffusion.norm() / 4  # the nonlinear term matters
    for tolerance in (1e-6, 1e-9):
        found = solve_navier_stokes(w[None], advection + diffusion, nu, 1.0, tolerance)
        assert errors(found, w[None]).max() < tolerance


def test_fixed_steps_and_the_error_estimate_are_of_fifth_order():
    """The embedded solution has order four: its error in one step falls like h^5."""
    w, f = to_spectrum(smooth_state(32), 10), to_spectrum(paper_forcing(32)[None], 10)
    exact = fixed_steps(w, f, NU, 2.0, 320)
    steps = np.array([20, 28, 40, 56])
    found = [(fixed_steps(w, f, NU, 2.0, int(s)) - exact).norm().item() for s in steps]
    space = spectral_space(10, w.dtype, w.device)
    rate = space.rate(w, f)
    stated = [runge_kutta_step(space, w, rate, f, NU, 2 / int(s)).error.item() for s in steps]
    for some in (found, stated):
        order = -np.polyfit(np.log(steps), np.log(some), 1)[0]
        assert abs(order - 5) < 0.2, (order, some)


@pytest.mark.parametrize("tolerance", [1e-4, 1e-6, 1e-8])
def test_the_error_is_below_the_tolerance_with_and_without_coarsening(states, reference, tolerance):
    both = [
        solve_navier_stokes(states, paper_forcing(), NU, T, tolerance, coarsen=coarsen)
        for coarsen in (True, False)
    ]
    for found in both:
        assert tolerance / 500 < errors(found, reference).max() < tolerance  # no work is wasted
    single = solve_navier_stokes(states.float(), paper_forcing().float(), NU, T, tolerance)
    assert single.dtype == torch.float32 and both[0].dtype == torch.float64
    assert errors(single, reference).max() < tolerance + 1e-7  # rounding of the data itself
    assert 0 < errors(*both).max() < tolerance / 3


def test_moved_and_shifted_states_give_the_flow_moved_and_shifted(states):
    """Shifts by (i, -i)/n keep the forcing, a function of x + y; the mean vorticity is conserved.

    Added to the state, it changes nothing else: a constant has no velocity.
    """
    expected = solve_navier_stokes(states, paper_forcing(), NU, T, 1e-8)
    rolled = states.roll((17, -17), (1, 2)) + 0.3
    found = solve_navier_stokes(rolled, paper_forcing(), NU, T, 1e-8)
    torch.testing.assert_close(found.mean((1, 2)), rolled.mean((1, 2)), rtol=0, atol=1e-14)
    assert errors(found.roll((-17, 17), (1, 2)) - 0.3, expected).max() < 2e-8


def test_degree_rises_again_where_a_cascade_fills_it():
    w, f = to_spectrum(0.5 * smooth_state(96), 31), torch.zeros(63, 1, 63).double()
    found, march = integrate(w, f, 2e-4, 12.0, 1e-6, True)
    degrees = [step.degree for step in march]
    assert min(degrees[:10]) < 18 and max(degrees) > 25
    expected, whole = integrate(w, f, 2e-4, 12.0, 1e-6, False)
    assert march[-1].time == 12 and {step.degree for step in whole} == {31}
    assert (resize(found, 31) - expected).norm() < 1e-6 * expected.norm()


def test_samples_do_not_mix_and_the_input_is_left_alone(states):
    before = states.clone()
    whole = solve_navier_stokes(states, paper_forcing(), NU, 3.0)
    chunked = solve_navier_stokes(states, paper_forcing(), NU, 3.0, chunk=2)
    alone = solve_navier_stokes(states[2:].clone(), paper_forcing(), NU, 3.0)
    assert torch.equal(chunked[2:], alone)
    assert errors(chunked, whole).max() < 2e-6  # steps are those of the hardest of a chunk
    assert torch.equal(before, states)
    assert solve_navier_stokes(states[:0], paper_forcing(), NU, 0.5).shape == (0, N, N)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_agrees_with_the_cpu(states, reference):
    found = solve_navier_stokes(states.cuda(), paper_forcing().cuda(), NU, T, 1e-7)
    assert found.is_cuda
    assert errors(found.cpu(), reference).max() < 1e-7


def test_discretisation_of_the_paper_grid():
    """Degree 33 resolves the flow; sampling the kinks of w0 on 100 points costs about 1e-3."""
    fine = paper_states(2, seed=3, n=200)

    def final(n: int, degree: int) -> torch.Tensor:
        w = to_spectrum(fine[:, :: 200 // n, :: 200 // n], degree)
        f = to_spectrum(paper_forcing(n)[None], degree)
        return to_grid(integrate(w, f, NU, T, 1e-9, True)[0], N)

    paper = solve_navier_stokes(fine[:, ::2, ::2].contiguous(), paper_forcing(), NU, T, 1e-9)
    # more modes of the same samples
    assert errors(paper, final(100, 49)).max() < 1e-7
    # more samples
    assert 1e-4 < errors(paper, final(200, 66)).max() < 3e-3


@pytest.mark.long  # most of it goes into loading and compiling JAX
def test_agrees_with_exponax(states):
    """ETDRK4 of a JAX package, with the paper's forcing, in double precision."""
    import exponax
    import jax

    previous = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        forcing = jax.numpy.fft.rfft2(paper_forcing().numpy())

        class Forced(exponax.stepper.NavierStokesVorticity):
            def _build_nonlinear_fun(self, derivative_operator):
                convection = super()._build_nonlinear_fun(derivative_operator)
                return lambda w: convection(w) + forcing

        # scale -1: its velocity comes from Lap psi = w, the opposite sign
        stepper = Forced(2, 1.0, N, 0.05, diffusivity=NU, vorticity_convection_scale=-1.0, order=4)
        run = jax.jit(exponax.repeat(stepper, 40))
        expected = torch.from_numpy(np.array(run(states[:1].numpy())))
    finally:
        jax.config.update("jax_enable_x64", previous)
    assert expected.dtype == torch.float64
    found = solve_navier_stokes(states[:1], paper_forcing(), NU, 2.0, 1e-10)
    assert errors(found, expected).max() < 1e-7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"w0": torch.full((1, 8, 8), math.nan)}, "NaN"),
        ({"forcing": torch.full((8, 8), math.inf)}, "infinite"),
        ({"w0": torch.zeros(1, 8, 6)}, "B, n, n"),
        ({"w0": torch.zeros(1, 3, 3)}, "n >= 4"),
        ({"w0": torch.zeros(1, 8, 8, dtype=torch.float16)}, "float32 or float64"),
        ({"forcing": torch.zeros(6, 6)}, "forcing has shape"),
        ({"viscosity": -1e-3}, "viscosity"),
        ({"time": math.inf}, "time"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"chunk": 0}, "chunk"),
        ({"w0": 1e30 * smooth_state(8).float()}, "collapsed"),
    ],
)
def test_bad_input_is_refused(change, message):
    good = {"w0": torch.zeros(1, 8, 8), "forcing": torch.zeros(8, 8), "viscosity": 0.1, "time": 1.0}
    with pytest.raises(DataError, match=message):
        solve_navier_stokes(**(good | change))

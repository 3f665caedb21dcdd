"""Readings whose noise is not Gaussian: against Gaussian answers, quadrature and truncation."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch

from tests.chains import walk
from tests.test_joint import FIELDS, SMALL, curved_model, fitted, integral, linear_model
from uqsonet.emulator.emulator import Emulator
from uqsonet.emulator.likelihood import Student
from uqsonet.errors import ObservationError, ObservationWarning
from uqsonet.operator.baselines import Cokriging
from uqsonet.runs.functions import Functions

X = np.linspace(0, 1, 12)[:, None]
NOISE = {"k": 0.2, "u": 0.05}


@cache
def model(bent: bool = False) -> Emulator:
    return Emulator.around(curved_model() if bent else linear_model())


def sensors(
    names: str, factor: float = 1.0, bent: bool = False
) -> dict[str, tuple[np.ndarray, np.ndarray, float]]:
    """Return noisy readings of a function that the model itself gives."""
    truth, rng = model(bent).condition(), np.random.default_rng(1)
    read = {name: truth[name].sample(1, X, 3)[0] for name in "ku"}
    noisy = {name: y + NOISE[name] * rng.standard_normal(len(X)) for name, y in read.items()}
    return {name: (X, noisy[name], NOISE[name] * factor) for name in names}


@pytest.mark.parametrize("bent", [False, True])
@pytest.mark.parametrize("names", ["k", "u", "ku"])
def test_a_gaussian_function_gives_the_gaussian_answer(names: str, bent: bool) -> None:
    level = np.concatenate([np.full(len(X), NOISE[n]) for n in names])

    def gaussian(predicted: np.ndarray, readings: np.ndarray) -> np.ndarray:
        assert predicted.shape == (len(predicted), len(level))
        return -(((predicted - readings) / level) ** 2).sum(1) / 2

    exact = model(bent).condition(**sensors(names, 1, bent))
    found = model(bent).condition(**sensors(names, 1.5, bent), likelihood=gaussian)
    assert found.effective_size > 200
    for field in "ku":
        mean, std = exact[field].mean(), exact[field].std()
        assert np.abs(found[field].mean() - mean).max() < 0.15 * std.max()
        assert np.abs(found[field].std() - std).max() < 0.1 * std.max()


def in_one_direction(
    likelihood: object, readings: list[float], noise: float
) -> tuple[np.ndarray, float]:
    """Return samples of a field of one mode at its middle, from readings there, and its std."""
    shape = 1 + 0.5 * torch.cos(3 * SMALL.points()[:, 0])
    z = torch.randn(400, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    k = z / z.std(correction=0) * shape
    emulator = Emulator.around(fitted(Functions(FIELDS, "training", k.float(), k.float()), 1))
    x = np.full((len(readings), 1), 0.5)
    answer = emulator.condition(k=(x, np.array(readings), noise), likelihood=likelihood)
    at = float(emulator.operator.bases.input_basis(torch.tensor([[0.5]]).double())[1].abs())  # type: ignore[attr-defined]
    return answer["k"].sample(4096, x[:1])[:, 0], at


def laplace(predicted: np.ndarray, readings: np.ndarray) -> np.ndarray:
    return -np.sqrt(2) * np.abs(predicted - readings).sum(1) / 0.3


def uniform(predicted: np.ndarray, readings: np.ndarray) -> np.ndarray:
    inside = (np.abs(predicted - readings) < 0.3 * np.sqrt(3)).all(1)
    return np.where(inside, 0.0, -np.inf)


@pytest.mark.parametrize(
    ("likelihood", "density"),
    [
        (Student(3), lambda off: -2 * np.log1p(off**2 / 3)),
        (laplace, lambda off: -np.sqrt(2) * np.abs(off)),
        (uniform, lambda off: np.where(np.abs(off) < np.sqrt(3), 0.0, -np.inf)),
        (lambda p, y: -((p - y) ** 4).sum(1), lambda off: -((0.3 * off) ** 4)),
    ],
)
def test_answers_agree_with_quadrature(likelihood: object, density: Callable) -> None:
    readings, noise = [0.9, 1.1, 1.0, 1.2], 0.3
    if isinstance(likelihood, Student):
        readings[3] = 4.0  # an outlier
    drawn, std = in_one_direction(likelihood, readings, noise)
    k = np.linspace(-6, 6, 20001) * std
    log = -((k / std) ** 2) / 2 + sum(density((k - y) / noise) for y in readings)
    share = np.exp(log - log.max())
    cumulated = share.cumsum() / share.sum()
    exact = np.interp([0.1, 0.5, 0.9], cumulated, k)
    width = exact[2] - exact[0]
    assert np.abs(np.quantile(drawn, [0.1, 0.5, 0.9]) - exact).max() < 0.06 * width


@pytest.mark.parametrize("names", ["k", "u", "ku"])
def test_sets_have_the_same_answer_alone(names: str) -> None:
    one, two = sensors(names), sensors(names, 2.0)
    for likelihood in ("student", {names[-1]: laplace}):
        both = model().condition([one, two], likelihood=likelihood)
        alone = model().condition(two, likelihood=likelihood)
        for field in "ku":
            np.testing.assert_allclose(both[field].mean()[1], alone[field].mean(), atol=1e-9)
            lower, upper = both[field].band(0.9)
            assert (lower <= upper).all()


def test_outliers_hardly_count() -> None:
    clean = sensors("u")
    x, y, noise = clean["u"]
    wrong = y.copy()
    wrong[[2, 7]] += 3.0
    truth, std = model().condition(clean)["u"].mean(), model().condition(clean)["u"].std().max()
    robust = model().condition(u=(x, wrong, noise), likelihood="student")
    with pytest.warns(ObservationWarning, match="improbable"):
        plain = model().condition(u=(x, wrong, noise))["u"].mean()
    assert np.abs(robust["u"].mean() - truth).max() < 1.5 * std
    assert np.abs(plain - truth).max() > 5 * std


@pytest.mark.parametrize(
    ("likelihood", "noise", "message"),
    [
        ("cauchy", 0.1, "likelihood must be 'student'"),
        ("laplace", 0.1, "no likelihood 'laplace' any more: a function is one line"),
        ({"v": "student"}, 0.1, "'v' is unknown"),
        ("student", 0.0, "positive noise_std for k"),
        (lambda p, y: p - y, 0.1, "must return 4096|must return 512"),
        (lambda p, y: np.full(len(p), np.nan), 0.1, "NaN or inf"),
        (lambda p, y: np.full(len(p), -np.inf), 0.1, "likelihood is zero for all"),
    ],
)
def test_wrong_likelihoods_are_refused(likelihood: object, noise: float, message: str) -> None:
    with pytest.raises(ObservationError, match=message):
        model().condition(k=([[0.5]], [1.0], noise), likelihood=likelihood).mean()


def test_a_solver_corrects_a_wrong_linear_operator_exactly() -> None:
    exact, wrong = model(), copy.deepcopy(linear_model())
    with torch.no_grad():
        wrong.bases.linear_weight.mul_(0.7)
    x, solver = SMALL.points().numpy(), integral().numpy().T
    k = exact.condition()["k"].sample(1, rng=5)[0]
    u = k @ solver + 0.03 * np.random.default_rng(0).standard_normal(len(k))
    read = {"u": (x[::2], u[::2], 0.03)}
    truth, start = exact.condition(**read), Emulator.around(wrong).condition(**read)
    found = start.corrected(lambda inputs: inputs @ solver)
    assert found.solves.before < 5 and found.solves.after > 0.9 * found.solves.of
    for field in "ku":
        std = truth[field].std()
        assert np.abs(found[field].mean() - truth[field].mean()).max() < 0.01 * std.max()
        assert np.abs(found[field].std() - std).max() < 0.01 * std.max()
    assert np.abs(start["k"].mean() - truth["k"].mean()).max() > truth["k"].std().max()
    with pytest.raises(ObservationError, match="40 solves"):
        start.corrected(lambda inputs: inputs @ solver, 10)
    with pytest.raises(ObservationError, match="outputs of shape"):
        start.corrected(lambda inputs: inputs[:, 1:])


def test_what_modes_leave_out_of_solves_is_in_the_answer() -> None:
    """The solver adds a wave that no run has, so no mode knows it."""
    exact, x, solver = model(), SMALL.points().numpy(), integral().numpy().T
    wave = 0.3 * np.sin(20 * np.pi * x[:, 0])
    k = exact.condition()["k"].sample(1, rng=5)[0]
    truth = exact.condition(u=(x[::2], (k @ solver)[::2], 0.03))["u"]
    start = Emulator.around(linear_model()).condition(u=(x[::2], (k @ solver + wave)[::2], 0.03))
    found = start.corrected(lambda inputs: inputs @ solver + wave)["u"]
    off = [np.abs(one.mean() - truth.mean() - wave).max() for one in (start["u"], found)]
    assert off[0] > 0.3 and off[1] < 0.01
    np.testing.assert_allclose(found.std(), truth.std(), rtol=0.01)


def test_a_solver_corrects_the_answer_that_there_is() -> None:
    """A linear model is wrong by far, what answers in its place is exact: nothing is to correct."""
    exact, wrong = linear_model(), copy.deepcopy(linear_model())
    with torch.no_grad():
        wrong.bases.linear_weight.mul_(0.2)
    weight = exact.bases.linear_weight
    both = torch.cat([weight.double(), torch.zeros(len(weight), len(weight)).double()], 1)
    cokriging = Cokriging.on(exact.bases, both)
    emulator = Emulator(wrong, [FIELDS.input], [FIELDS.output], given_outputs=cokriging)
    solver, x = integral().numpy().T, SMALL.points().numpy()
    u = emulator.condition()["k"].sample(1, rng=5)[0] @ solver
    start = emulator.condition(u=(x[::2], u[::2], 0.03))
    found = start.corrected(lambda inputs: inputs @ solver)
    assert found.solves.before > 0.9 * found.solves.of
    for field in "ku":
        std = start[field].std()
        assert np.abs(found[field].mean() - start[field].mean()).max() < 0.01 * std.max()
        assert np.abs(found[field].std() - std).max() < 0.01 * std.max()


def test_an_answer_to_128_readings_agrees_with_a_long_chain() -> None:
    x, rng = np.linspace(0, 1, 128)[:, None], np.random.default_rng(2)
    noise = rng.standard_t(4, 128)
    prior = model().condition()["u"]
    y = prior.sample(1, x, 3)[0] + 0.05 * noise
    answer = model().condition(u=(x, y, 0.05), likelihood="student")
    assert answer.effective_size > 200
    mean, covariance = torch.as_tensor(prior.mean(x)), torch.as_tensor(prior.covariance(x))
    readings = torch.from_numpy(y)
    values, vectors = torch.linalg.eigh(covariance)
    root = (vectors * values.clamp_min(0).sqrt())[:, -12:]

    def log_likelihood(z: torch.Tensor) -> torch.Tensor:
        return Student().log_density((mean + z @ root.T - readings) / 0.05).sum(1)

    states = list(walk(torch.zeros(100, 12).double(), log_likelihood, 3000, rng))[1000::10]
    other = mean + torch.cat(states) @ root.T
    std = other.std(0)
    assert np.abs(answer["u"].mean(x) - other.mean(0).numpy()).max() < 0.15 * float(std.max())
    assert np.abs(answer["u"].std(x) - std.numpy()).max() < 0.1 * float(std.max())


def test_an_answer_to_128_readings_with_laplace_noise_agrees_with_a_gibbs_sampler() -> None:
    """Double exponential noise is Gaussian given variances, and these are inverse Gaussian given it
    (Park and Casella, J. Am. Stat. Assoc. 103, 2008).
    """
    x, rng = np.linspace(0, 1, 128)[:, None], np.random.default_rng(2)
    prior, scale = model().condition()["u"], 0.05 / 2**0.5
    y = prior.sample(1, x, 3)[0] + rng.laplace(scale=scale, size=128)
    answer = model().condition(
        u=(x, y, 0.05), likelihood=lambda p, y: -np.abs(p - y).sum(1) / scale
    )
    mean, (values, vectors) = prior.mean(x), np.linalg.eigh(prior.covariance(x))
    root = (vectors * np.sqrt(values.clip(0)))[:, -12:]
    variances, states = np.full(128, 0.05**2), []
    for _ in range(4000):
        weighted = root.T / variances
        lower = np.linalg.cholesky(np.eye(12) + weighted @ root)
        best = np.linalg.solve(lower @ lower.T, weighted @ (y - mean))
        states.append(best + np.linalg.solve(lower.T, rng.standard_normal(12)))
        off = np.abs(y - mean - root @ states[-1])
        variances = 1 / rng.wald(1 / (scale * off), 1 / scale**2)
    other = mean + np.array(states[200:]) @ root.T
    std = other.std(0)
    assert np.abs(answer["u"].mean(x) - other.mean(0)).max() < 0.1 * std.max()
    assert np.abs(answer["u"].std(x) - std).max() < 0.05 * std.max()

"""Sensors of either side: closed forms, brute force, pairs that belong together, users' calls."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.answers import input_given
from tests.laws.conftest import LAWS, SMALL, gaussian_fields, kernel
from uqsonet.emulator.emulator import Emulator
from uqsonet.errors import ObservationError, ObservationWarning
from uqsonet.fields.field import Field, Transform
from uqsonet.fields.grid import Grid
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.fields.stacked import join
from uqsonet.fitting.choose_law import input_sample
from uqsonet.laws.mixture import MixtureLaw
from uqsonet.operator.config import KarhunenLoeveNetwork
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.operator.perceptrons import MLP
from uqsonet.runs.functions import Functions
from uqsonet_study.baselines import build_baseline

FIELDS = OperatorFields("toy", Field("k", SMALL), Field("u", SMALL))
X = SMALL.points()
NOTHING = torch.zeros(0, 1), torch.zeros(0), None, None
N = SMALL.size


def integral() -> Tensor:
    """Return a smoothing operator (n, n): the running mean from the left."""
    return torch.tril(torch.ones(N, N, dtype=torch.float64)) / N


def pairs(bent: float, seed: int = 0, size: int = 3000) -> Functions:
    """Return pairs of u = S (k + bent k^2) for a Gaussian k."""
    rng = np.random.default_rng(seed)
    kappa = torch.from_numpy(gaussian_fields(rng, size, kernel(0.3)))
    u = (kappa + bent * kappa.square()) @ integral().T
    return Functions(FIELDS, "training", kappa.float(), u.float())


class Bent(torch.nn.Module):
    """A branch that is known: what a square adds to the linear map, in the first coefficients."""

    slopes = MLP.slopes

    def forward(self, a: Tensor) -> Tensor:
        found = torch.zeros(*a.shape[:-1], 6)
        found[..., 0] = 0.15 * (a[..., 0].square() - 1)
        found[..., 1] = 0.1 * (0.8 * a[..., 1] + 0.3 * a[..., 0]).exp()
        return found


def fitted(functions: Functions, modes: int, bent: bool = False) -> KarhunenLoeveModel:
    """Return a model with the constants of pairs, without perceptron or with the known branch."""
    config = KarhunenLoeveNetwork(input_modes=modes, output_modes=modes, branch=[4] if bent else [])
    model = KarhunenLoeveModel(functions.fields, config, 0.0)
    with torch.no_grad():
        model.fit_constants(functions)
    if bent:
        model.network = Bent()  # type: ignore[assignment]
    return model.eval()


def linear_model() -> KarhunenLoeveModel:
    """Return a model that knows the linear operator: all modes, and no perceptron."""
    return fitted(pairs(0.0), N)


def curved_model() -> KarhunenLoeveModel:
    """Return a model whose branch is far from linear."""
    return fitted(pairs(0.0), 6, bent=True)


@cache
def mixture_model(bent: bool = False) -> tuple[KarhunenLoeveModel, Functions]:
    """Return a model whose input has the law of a mixture, and its pairs."""
    kappa = torch.from_numpy(LAWS["clusters"][1](np.random.default_rng(2), 1000))
    u = (kappa + 0.3 * kappa.square()) @ integral().T
    functions = Functions(FIELDS, "training", kappa.float(), u.float())
    model = fitted(functions, 6, bent)
    model.use_law(MixtureLaw.fit(input_sample(model, functions), 0))
    return model.eval(), functions


SCALES, PARTS = {"a": 2.0, "b": 0.1}, {"a": N // 2, "b": N - N // 2}


def side_by_side(remainder: tuple[Tensor, Tensor] | None = None) -> Emulator:
    """Return two inputs taken as one, each divided by its scale, and the output by its own."""
    grids = {name: Grid((0.0,), (1.0,), (size,)) for name, size in PARTS.items()}
    joint = replace(FIELDS, input=Field("ab", join(list(grids.values()))))
    data = pairs(0.0, size=500)
    model = fitted(Functions(joint, "training", data.kappa, data.u), 10)
    named = [Field(name, grid, scale=SCALES[name]) for name, grid in grids.items()]
    output = Field("u", joint.output.grid, scale=7.0)
    return Emulator(model, named, [output], remainder=remainder)


def under_log(model: KarhunenLoeveModel) -> Emulator:
    """Return the same model whose input is the logarithm of what sensors read."""
    logs = replace(FIELDS, input=Field("k", FIELDS.input.grid, Transform("log")))
    other = KarhunenLoeveModel(logs, model.config, 0.0)
    other.load_state_dict(model.state_dict())
    return Emulator.around(other.eval())


@pytest.fixture(scope="module")
def linear() -> KarhunenLoeveModel:
    return linear_model()


@pytest.fixture(scope="module")
def curved() -> KarhunenLoeveModel:
    return curved_model()


def law_of(model: KarhunenLoeveModel) -> tuple[Tensor, Tensor]:
    """Return mean and covariance of (k, u) on the grid."""
    bases = model.bases
    weight, offset = model.straight()
    modes = (bases.output_modes * bases.output_scale.double()).double()
    both = torch.cat([bases.input_factor.double(), modes @ weight])
    mean = torch.cat([bases.input_mean, bases.output_mean + modes @ offset])
    return mean, both @ both.T


def textbook(
    mean: Tensor, covariance: Tensor, weights: Tensor, y: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Return mean and covariance given ``y = weights (k, u) + noise``."""
    seen = weights @ covariance
    gain = torch.linalg.solve(seen @ weights.T + torch.diag(noise.square()), seen).T
    return mean + gain @ (y - weights @ mean), covariance - gain @ seen


POINTS = torch.eye(2 * N, dtype=torch.float64)
SIDES = slice(0, N), slice(N, 2 * N)


@pytest.mark.parametrize(("ik", "iu"), [([3, 15], [7, 20]), ([], [5, 11, 19]), ([4], [4])])
def test_a_linear_operator_gives_the_closed_form(linear, ik, iu):
    linear.bases.input_remainder.zero_()
    y = torch.linspace(-0.4, 0.3, len(ik) + len(iu), dtype=torch.float64)
    noise = torch.tensor([0.1] * len(ik) + [0.02] * len(iu), dtype=torch.float64)
    error = torch.tensor([0.0] * len(ik) + [linear.output_error()] * len(iu))
    weights, level = POINTS[[*ik, *(N + i for i in iu)]], torch.hypot(noise, error.double())
    mean, covariance = textbook(*law_of(linear), weights, y, level)
    seen = X[ik], y[: len(ik)], None, noise[: len(ik)]
    found = linear.condition_jointly(seen, (X[iu], y[len(ik) :], None, noise[len(ik) :]))
    std = covariance.diagonal().clamp_min(0).sqrt()
    for law, rows in zip((found.input, found.output), SIDES, strict=True):
        torch.testing.assert_close(law.mean(), mean[rows], rtol=0, atol=1e-8)
        torch.testing.assert_close(law.std(), std[rows], rtol=0, atol=1e-7)
    assert found.effective_size.isinf().all()


@pytest.mark.parametrize("baseline", ["cokriging", "regression"])
def test_baselines_agree_with_the_exact_law_where_it_is_gaussian(baseline):
    """From 3,000 pairs of a linear operator, with padding in the second set."""
    both = torch.cat([torch.eye(N, dtype=torch.float64), integral()])
    exact = torch.zeros(2 * N).double(), both @ torch.from_numpy(kernel(0.3)) @ both.T
    weights, noise = POINTS[[3, 15, N + 7, N + 20]], torch.tensor([0.1, 0.1, 0.02, 0.02]).double()
    y = torch.tensor([0.5, -0.4, 0.1, 0.05], dtype=torch.float64)
    model = build_baseline(baseline, pairs(0.0, size=3000), 0.0)
    mask = torch.tensor([[True, True], [True, False]])
    seen = X[[3, 15]].expand(2, 2, 1), y[:2].expand(2, 2), mask, 0.1
    read = X[[7, 20]].expand(2, 2, 1), y[2:].expand(2, 2), None, 0.02
    found = model.condition_jointly(seen, read)
    for row, used in enumerate(([0, 1, 2, 3], [0, 2, 3])):
        mean, covariance = textbook(*exact, weights[used], y[used], noise[used])
        left = covariance.diagonal().clamp_min(0).sqrt()
        for law, part in zip((found.input, found.output), SIDES, strict=True):
            assert (law.mean()[row] - mean[part]).norm() < 0.1 * left[part].norm()
            assert (law.std()[row] - left[part]).norm() < 0.05 * left[part].norm()
            drawn = law.sample(4000, generator=torch.Generator().manual_seed(1))[row]
            assert (drawn.std(0) - left[part]).norm() < 0.08 * left[part].norm()
    nothing = torch.zeros(2, 0, 1), torch.zeros(2, 0), None, None
    same = model.condition_jointly(seen, nothing).output
    torch.testing.assert_close(model.condition(*seen).mean(), same.mean(), rtol=0, atol=1e-8)


def brute(
    model: KarhunenLoeveModel, seen: tuple, read: tuple, size: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return mean and std of input and output by weighting samples of the law given the input."""
    given = input_given(model, *seen)
    a = given.sample(size, torch.Generator().manual_seed(9))[0]
    with torch.no_grad():
        c = model.branch(a).double()
    offset, basis = model.bases.output_basis(X)
    u = offset + c @ basis.T
    places = torch.cdist(read[0], X).argmin(1)
    level = (read[3] ** 2 + model.output_error() ** 2) ** 0.5
    off = (read[1] - u[:, places]) / level
    share = torch.softmax(-off.square().sum(1) / 2, 0)
    assert 1 / float(share.square().sum()) > 1500
    kappa = model.bases.input_mean + a.double() @ model.bases.input_factor.double().T
    moments = []
    for field in (kappa, u):
        mean = share @ field
        moments += [mean, (share @ (field - mean).square()).sqrt()]
    return tuple(moments)  # type: ignore[return-value]


@pytest.mark.parametrize("level", [0.04, 0.1])
def test_a_curved_operator_agrees_with_brute_force(curved, level):
    seen = X[[4]], torch.tensor([0.5]).double(), None, 0.05
    read = X[[9, 21]], torch.tensor([0.12, 0.3]).double(), None, level
    found = curved.condition_jointly(seen, read)
    assert 3000 < float(found.effective_size) <= 4096
    mean_k, std_k, mean_u, std_u = brute(curved, seen, read, 500_000 if level < 0.05 else 200_000)
    assert (found.input.mean() - mean_k).norm() < 0.05 * std_k.norm()
    assert (found.output.mean() - mean_u).norm() < 0.05 * std_u.norm()
    assert (found.input.std() - std_k).norm() < 0.04 * std_k.norm()
    assert (found.output.std() - std_u).norm() < 0.05 * std_u.norm()
    # What the closed form alone would miss.
    straight = KarhunenLoeveModel(FIELDS, curved.config.model_copy(update={"branch": []}), 0.0)
    state = {k: v for k, v in curved.state_dict().items() if "network" not in k}
    straight.load_state_dict(state)
    wrong = straight.eval().condition_jointly(seen, read).input.mean() - mean_k
    assert wrong.norm() > 0.2 * std_k.norm()


@pytest.mark.parametrize("bent", [False, True])
def test_laws_that_are_not_gaussian(bent):
    """A mixture is conditioned in closed form; and its answer agrees with brute force."""
    model, functions = mixture_model(bent)
    kappa = functions.kappa[:1].double()
    offset, basis = model.bases.output_basis(X)
    with torch.no_grad():
        truth = offset + model.branch(model.bases.coefficients_of(kappa)).double()[0] @ basis.T
    seen = X[[4]], kappa[0, [4]], None, 0.05
    read = X[[9, 21]], truth[[9, 21]], None, 0.1
    found = model.condition_jointly(seen, read)
    mean_k, std_k, mean_u, std_u = brute(model, seen, read, 300_000)
    assert (found.input.mean() - mean_k).norm() < 0.06 * std_k.norm()
    assert (found.output.mean() - mean_u).norm() < 0.06 * std_u.norm()
    assert (found.input.std() - std_k).norm() < 0.05 * std_k.norm()
    assert bool(found.effective_size.isinf()) == (not bent)


def test_without_sensors_of_the_output_nothing_changes(curved):
    seen = X[[4, 12]], torch.tensor([0.5, -0.1]).double(), None, 0.05
    found, alone = curved.condition_jointly(seen, NOTHING), curved.condition(*seen)
    assert torch.equal(found.output.mean(), alone.mean())
    assert torch.equal(found.output.sample(7), alone.sample(7))
    answer = Emulator.around(curved).condition([0.2], [0.5], noise_std=0.05)["k"]
    prior = curved.condition_jointly((X[:0], [], None, None), NOTHING).input.std()
    assert (answer.std() <= np.asarray(prior) + 2 * float(curved.bases.input_remainder)).all()
    assert abs(float(answer.mean([[0.2]])[0]) - 0.5) < 0.05


def test_readings_that_the_model_cannot_have_are_named(curved):
    seen = X[[4]], torch.tensor([0.5]).double(), None, 0.05
    far = curved.condition_jointly(seen, (X[[9]], [5.0], None, 0.02), 256)
    near = curved.condition_jointly(seen, (X[[9]], [0.1], None, 0.02), 256)
    assert float(far.tail) < 1e-6 < 0.05 < float(near.tail)
    with pytest.warns(ObservationWarning, match="improbable given those of inputs"):
        Emulator.around(curved).condition(k=(X[[4]], [0.5]), u=(X[[9]], [5.0], 0.02)).mean()


def test_users_name_the_fields(curved, tmp_path: Path):
    emulator = Emulator.around(curved)
    table = tmp_path / "sensors.csv"
    table.write_text("x,value,field,noise_std\n0.2,0.5,k,0.05\n0.4,0.12,u,0.05\n0.9,0.3,u,0.05\n")
    found = emulator.condition(str(table))
    named = emulator.condition(k=([0.2], [0.5], 0.05), u=([0.4, 0.9], [0.12, 0.3], 0.05))
    assert np.array_equal(found.mean(), named.mean())
    assert np.array_equal(found["k"].std(), named["k"].std())
    assert float(found.effective_size) > 1000 and "given 3 sensors of k, u" in repr(found)
    lower, upper = found["k"].band(0.9)
    assert bool((lower < found["k"].mean()).all() and (found["k"].mean() < upper).all())
    # Samples with the same seed belong together, in more parts than one, too.
    many = emulator.condition(u=(np.full((20, 1, 1), 0.4), np.full((20, 1), 0.12), 0.05))
    k, u = (torch.from_numpy(many[name].sample(3, rng=5)) for name in "ku")
    offset, basis = curved.bases.output_basis(X)
    with torch.no_grad():
        expected = offset + curved.branch(curved.bases.coefficients_of(k)).double() @ basis.T
    assert (expected - u).abs().max() < 6 * float(curved.bases.input_remainder) + 1e-3


def test_wrong_calls_are_refused_in_words(curved):
    emulator = Emulator.around(curved)
    seen = X[[4]], torch.tensor([0.5]).double(), None, 0.05
    with pytest.raises(ObservationError, match="come in 1 sets, those of the output in 2"):
        curved.condition_jointly(seen, (X[[9]].expand(2, 1, 1), [[0.1], [0.2]], None, 0.05))
    with pytest.raises(ObservationError, match="no calibration runs"):
        emulator.condition(u=([0.4], [0.12], 0.05)).band(0.9, kind="conformal")
    for sensors, message in (
        ({"w": ([0.2], [0.5])}, "'w' is unknown; there are k, u"),
        ({"u": ([1.2], [0.5])}, r"sensor of u .* outside the domain"),
        ({"u": ([0.4], [0.12], -0.1)}, "noise_std must be finite"),
    ):
        with pytest.raises(ObservationError, match=message):
            emulator.condition(**sensors)


def test_weights_that_do_not_say_what_output_modes_leave_out(linear):
    config = linear.config.model_copy(update={"held_out_residuals": True})
    models = [KarhunenLoeveModel(FIELDS, config, 0.0) for _ in range(2)]
    state = {k: v for k, v in models[0].state_dict().items() if k != "output_remainder"}
    models[1].load_state_dict(state)
    assert float(models[1].output_remainder) == 0.0
    del state["residuals"]
    with pytest.raises(RuntimeError, match="residuals"):
        models[1].load_state_dict(state)

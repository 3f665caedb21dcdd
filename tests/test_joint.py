"""Sensors of either side: closed forms, brute force, pairs that belong together, users' calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import uqsonet
from tests.laws.conftest import LAWS, SMALL, gaussian_fields, kernel
from uqsonet.baselines import build_baseline
from uqsonet.config import KarhunenLoeveNetwork
from uqsonet.data import Functions
from uqsonet.emulator import Emulator
from uqsonet.errors import ObservationError, ObservationWarning
from uqsonet.fields import Field
from uqsonet.laws.choice import input_sample
from uqsonet.laws.mixture import MixtureLaw
from uqsonet.models.karhunen_loeve import KarhunenLoeveModel
from uqsonet.operator_fields import OperatorFields

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


def linear_model() -> KarhunenLoeveModel:
    """Return a model that knows the linear operator: all modes, and no perceptron."""
    config = KarhunenLoeveNetwork(input_modes=N, output_modes=N, branch=[])
    model = KarhunenLoeveModel(FIELDS, config, 0.0)
    with torch.no_grad():
        model.fit_constants(pairs(0.0))
    return model.eval()


@pytest.fixture(scope="module")
def linear() -> KarhunenLoeveModel:
    return linear_model()


class Bent(torch.nn.Module):
    """A branch that is known: what a square adds to the linear map, in the first coefficients."""

    def forward(self, a: Tensor) -> Tensor:
        found = torch.zeros(*a.shape[:-1], 6)
        found[..., 0] = 0.15 * (a[..., 0].square() - 1)
        found[..., 1] = 0.1 * (0.8 * a[..., 1] + 0.3 * a[..., 0]).exp()
        return found


def curved_model() -> KarhunenLoeveModel:
    """Return a model whose branch is far from linear."""
    config = KarhunenLoeveNetwork(input_modes=6, output_modes=6, branch=[4])
    model = KarhunenLoeveModel(FIELDS, config, 0.0)
    with torch.no_grad():
        model.fit_constants(pairs(0.0))
    model.network = Bent()  # type: ignore[assignment]
    return model.eval()


@pytest.fixture(scope="module")
def curved() -> KarhunenLoeveModel:
    return curved_model()


def dense(
    model: KarhunenLoeveModel, ik: list[int], iu: list[int], y: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Return mean and covariance of (k, u) on the grid by textbook conditioning."""
    bases = model.bases
    factor = bases.input_factor.double()
    weight, offset = model.straight()
    modes = (bases.output_modes * bases.output_scale.double()).double()
    both = torch.cat([factor, modes @ weight])
    mean = torch.cat([bases.input_mean, bases.output_mean + modes @ offset])
    covariance = both @ both.T
    rows = ik + [N + i for i in iu]
    gain = torch.linalg.solve(
        covariance[rows][:, rows] + torch.diag(noise.square()), covariance[rows]
    ).T
    return mean + gain @ (y - mean[rows]), covariance - gain @ covariance[rows]


@pytest.mark.parametrize(("ik", "iu"), [([3, 15], [7, 20]), ([], [5, 11, 19]), ([4], [4])])
def test_a_linear_operator_gives_the_closed_form(linear, ik, iu):
    linear.bases.input_remainder.zero_()
    generator = torch.Generator().manual_seed(1)
    y = torch.randn(len(ik) + len(iu), generator=generator, dtype=torch.float64) * 0.3
    noise = torch.tensor([0.1] * len(ik) + [0.02] * len(iu), dtype=torch.float64)
    least = linear.output_error()
    level = noise.clone()
    level[len(ik) :] = (level[len(ik) :].square() + least**2).sqrt()
    mean, covariance = dense(linear, ik, iu, y, level)
    seen = X[ik], y[: len(ik)], None, noise[: len(ik)]
    read = X[iu], y[len(ik) :], None, noise[len(ik) :]
    found = linear.condition_jointly(seen, read)
    std = covariance.diagonal().clamp_min(0).sqrt()
    for law, rows in ((found.input, slice(0, N)), (found.output, slice(N, 2 * N))):
        torch.testing.assert_close(law.mean(), mean[rows], rtol=0, atol=1e-8)
        torch.testing.assert_close(law.std(), std[rows], rtol=0, atol=1e-7)
    assert found.effective_size.isinf().all()


def test_samples_of_both_fields_belong_together(linear):
    found = linear.condition_jointly(NOTHING, (X[[6, 18]], [0.1, -0.2], None, 0.05))
    kappa = found.input.sample(500, generator=torch.Generator().manual_seed(3))
    u = found.output.sample(500, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(kappa @ integral().T, u, rtol=0, atol=1e-4)


@pytest.mark.parametrize("baseline", ["cokriging", "regression"])
def test_baselines_agree_with_the_exact_law_where_it_is_gaussian(baseline):
    """From 3,000 pairs of a linear operator, with padding in the second set."""
    kernel_k = torch.from_numpy(kernel(0.3))
    both = torch.cat([torch.eye(N, dtype=torch.float64), integral()])
    covariance = both @ kernel_k @ both.T
    rows, noise = [3, 15, N + 7, N + 20], torch.tensor([0.1, 0.1, 0.02, 0.02]).double()
    y = torch.tensor([0.5, -0.4, 0.1, 0.05], dtype=torch.float64)
    model = build_baseline(baseline, pairs(0.0, size=3000), 0.0)
    places, pad = X[[3, 15]].expand(2, 2, 1), torch.tensor([[True, True], [True, False]])
    read = X[[7, 20]].expand(2, 2, 1)
    found = model.condition_jointly(
        (places, y[:2].expand(2, 2), pad, 0.1), (read, y[2:].expand(2, 2), None, 0.02)
    )
    for row, used in enumerate(([0, 1, 2, 3], [0, 2, 3])):
        at = [rows[i] for i in used]
        seen = covariance[at]
        gain = torch.linalg.solve(seen[:, at] + torch.diag(noise[used].square()), seen).T
        mean, left = gain @ y[used], (covariance - gain @ seen).diagonal().clamp_min(0).sqrt()
        for law, part in ((found.input, slice(0, N)), (found.output, slice(N, 2 * N))):
            assert (law.mean()[row] - mean[part]).norm() < 0.1 * left[part].norm()
            assert (law.std()[row] - left[part]).norm() < 0.05 * left[part].norm()
            drawn = law.sample(4000, generator=torch.Generator().manual_seed(1))[row]
            assert (drawn.std(0) - left[part]).norm() < 0.08 * left[part].norm()
    alone = model.condition(places, y[:2].expand(2, 2), pad, 0.1)
    nothing = torch.zeros(2, 0, 1), torch.zeros(2, 0), None, None
    same = model.condition_jointly((places, y[:2].expand(2, 2), pad, 0.1), nothing).output
    torch.testing.assert_close(alone.mean(), same.mean(), rtol=0, atol=1e-8)


def brute(
    model: KarhunenLoeveModel, seen: tuple, read: tuple, size: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return mean and std of input and output by weighting samples of the law given the input."""
    given = model.input_posterior(*seen)
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


@pytest.mark.parametrize("level", [0.02, 0.1])
def test_a_curved_operator_agrees_with_brute_force(curved, level):
    seen = X[[4]], torch.tensor([0.5]).double(), None, 0.05
    read = X[[9, 21]], torch.tensor([0.12, 0.3]).double(), None, level
    found = curved.condition_jointly(seen, read)
    assert 3000 < float(found.effective_size) <= 4096
    mean_k, std_k, mean_u, std_u = brute(curved, seen, read, 2_000_000 if level < 0.05 else 200_000)
    assert (found.input.mean() - mean_k).norm() < 0.05 * std_k.norm()
    assert (found.output.mean() - mean_u).norm() < 0.05 * std_u.norm()
    assert (found.input.std() - std_k).norm() < 0.04 * std_k.norm()
    assert (found.output.std() - std_u).norm() < 0.05 * std_u.norm()
    straight = linear_of(curved).condition_jointly(seen, read)
    wrong = (straight.input.mean() - mean_k).norm() / std_k.norm()
    assert wrong > 0.2  # what the closed form alone would miss


def linear_of(model: KarhunenLoeveModel) -> KarhunenLoeveModel:
    """Return a model without its perceptron."""
    config = model.config.model_copy(update={"branch": []})
    found = KarhunenLoeveModel(FIELDS, config, 0.0)
    found.load_state_dict({k: v for k, v in model.state_dict().items() if "network" not in k})
    return found.eval()


@pytest.mark.parametrize("law", ["mixture", "two fields"])
def test_laws_that_are_not_gaussian(law):
    """A mixture is conditioned in closed form; and its answer agrees with brute force."""
    rng = np.random.default_rng(2)
    kappa = torch.from_numpy(LAWS["mixture"](rng, 1500))
    u = (kappa + 0.3 * kappa.square()) @ integral().T
    functions = Functions(FIELDS, "training", kappa.float(), u.float())
    branch = [] if law == "mixture" else [4]
    config = KarhunenLoeveNetwork(input_modes=6, output_modes=6, branch=branch)
    model = KarhunenLoeveModel(FIELDS, config, 0.0)
    with torch.no_grad():
        model.fit_constants(functions)
    if branch:
        model.network = Bent()  # type: ignore[assignment]
    model.use_law(MixtureLaw.fit(input_sample(model, functions), np.random.default_rng(0)))
    seen = X[[4]], kappa[0, [4]], None, 0.05
    answer = model.bases.output_basis(X)
    with torch.no_grad():
        c = model.branch(model.bases.coefficients_of(kappa[:1])).double()
    truth = (answer[0] + c @ answer[1].T)[0]
    read = X[[9, 21]], truth[[9, 21]], None, 0.1
    found = model.condition_jointly(seen, read)
    mean_k, std_k, mean_u, std_u = brute(model, seen, read, 300_000)
    assert (found.input.mean() - mean_k).norm() < 0.06 * std_k.norm()
    assert (found.output.mean() - mean_u).norm() < 0.06 * std_u.norm()
    assert (found.input.std() - std_k).norm() < 0.05 * std_k.norm()
    assert bool(found.effective_size.isinf()) == (law == "mixture")


def test_without_sensors_of_the_output_nothing_changes(curved):
    seen = X[[4, 12]], torch.tensor([0.5, -0.1]).double(), None, 0.05
    found = curved.condition_jointly(seen, NOTHING)
    alone = curved.condition(*seen)
    assert torch.equal(found.output.mean(), alone.mean())
    assert torch.equal(found.output.sample(7), alone.sample(7))


def test_a_set_has_the_same_answer_alone_padded_and_in_any_company(curved):
    xk, yk = X[torch.tensor([[4, 4], [10, 4]])], torch.tensor([[0.5, 0.0], [0.1, 0.5]]).double()
    xu, yu = X[torch.tensor([[9, 21], [15, 15]])], torch.tensor([[0.12, 0.3], [0.05, 9.0]]).double()
    mk, mu = (
        torch.tensor([[True, False], [True, True]]),
        torch.tensor([[True, True], [True, False]]),
    )
    both = curved.condition_jointly((xk, yk, mk, 0.05), (xu, yu, mu, 0.05), 512)
    first = curved.condition_jointly(
        (X[[4]], yk[0, :1], None, 0.05), (X[[9, 21]], yu[0], None, 0.05), 512
    )
    torch.testing.assert_close(both.input.mean()[0], first.input.mean(), rtol=0, atol=1e-5)
    torch.testing.assert_close(both.output.std()[0], first.output.std(), rtol=0, atol=1e-5)


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
    assert float(found.effective_size) > 1000
    assert "given 3 sensors of k, u" in repr(found)
    lower, upper = found["k"].band(0.9)
    assert bool((lower < found["k"].mean()).all() and (found["k"].mean() < upper).all())
    # Samples with the same seed belong together, in more parts than one, too.
    many = emulator.condition(u=(np.full((20, 1, 1), 0.4), np.full((20, 1), 0.12), 0.05))
    k, u = (many[name].sample(3, seed=5) for name in "ku")
    with torch.no_grad():
        a = curved.bases.coefficients_of(torch.from_numpy(k))
        c = curved.branch(a).double()
    offset, basis = curved.bases.output_basis(X)
    left = float(curved.bases.input_remainder)
    assert np.abs((offset + c @ basis.T).numpy() - u).max() < 6 * left + 1e-3


def test_inputs_without_sensors_of_the_output_have_a_law_too(curved):
    emulator = Emulator.around(curved)
    found = emulator.condition([0.2], [0.5], noise_std=0.05)
    law = curved.condition_jointly((X[:0], [], None, None), NOTHING).input
    assert np.all(
        found["k"].std() <= np.asarray(law.std()) + 1e-6 + 2 * float(curved.bases.input_remainder)
    )
    assert abs(float(found["k"].mean([[0.2]])[0]) - 0.5) < 0.05


def test_wrong_calls_are_refused_in_words(curved):
    emulator = Emulator.around(curved)
    seen = X[[4]], torch.tensor([0.5]).double(), None, 0.05
    with pytest.raises(ObservationError, match="come in 1 sets, those of the output in 2"):
        curved.condition_jointly(seen, (X[[9]].expand(2, 1, 1), [[0.1], [0.2]], None, 0.05))
    with pytest.raises(ObservationError, match="'w' is unknown; there are k, u"):
        emulator.condition(w=([0.2], [0.5]))
    with pytest.raises(ObservationError, match=r"sensor of u .* outside the domain"):
        emulator.condition(u=([1.2], [0.5]))
    with pytest.raises(ObservationError, match="kind='plain' alone"):
        emulator.condition(u=([0.4], [0.12], 0.05)).band(0.9, kind="conformal")
    with pytest.raises(ObservationError, match="noise_std must be finite"):
        emulator.condition(u=([0.4], [0.12], -0.1))


def test_models_without_a_law_of_the_input_say_so():
    emulator = uqsonet.load("diffusion1d")
    assert hasattr(emulator.operator, "condition_jointly")

    class Other:
        method, fields, noise_std = "other", emulator.fields, 0.0

        def condition(self, *_: object, **__: object) -> None: ...

    with pytest.raises(ObservationError, match="other has no law of its input"):
        Emulator.around(Other()).condition(u=([0.4], [0.12])).mean()  # type: ignore[arg-type]


def test_weights_that_do_not_say_what_output_modes_leave_out(linear):
    config = linear.config.model_copy(update={"held_out_residuals": True})
    models = [KarhunenLoeveModel(FIELDS, config, 0.0) for _ in range(2)]
    state = {k: v for k, v in models[0].state_dict().items() if k != "output_remainder"}
    models[1].load_state_dict(state)
    assert float(models[1].output_remainder) == 0.0
    del state["residuals"]
    with pytest.raises(RuntimeError, match="residuals"):
        models[1].load_state_dict(state)

"""Where the next sensors belong: against brute force, exact laws and drawn values."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.test_joint import (
    FIELDS,
    PARTS,
    N,
    X,
    curved_model,
    fitted,
    linear_model,
    mixture_model,
    pairs,
    side_by_side,
    under_log,
)
from uqsonet.emulator.emulator import Emulator
from uqsonet.emulator.site import Site, periods_of
from uqsonet.errors import DataError, ObservationError
from uqsonet.fields.field import Field
from uqsonet.fields.grid import Grid
from uqsonet.operator.config import KarhunenLoeveNetwork
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.runs.functions import Functions
from uqsonet_study.baselines import SensorFree
from uqsonet_study.least_squares import LeastSquares
from uqsonet_study.problems.poisson2d import Poisson2D, source_field
from uqsonet_study.reference.affine import ClosedForm
from uqsonet_study.reference.sampling import posterior_law


@pytest.fixture(scope="module")
def linear() -> Emulator:
    return Emulator.around(linear_model())


@pytest.fixture(scope="module")
def curved() -> Emulator:
    return Emulator.around(curved_model())


class Coarse(Poisson2D):
    """Section 4.2 on a coarser grid."""

    output_stride = 1

    def __init__(self) -> None:
        self.grid = Grid((0.0, 0.0), (1.0, 1.0), (26, 26))
        self.prior = source_field(self.grid)


@pytest.fixture(scope="module")
def poisson() -> tuple[Poisson2D, Emulator]:
    """The problem, and the model that has its exact law: modes of the covariances themselves."""
    problem, rank = Coarse(), Coarse().gaussian_prior.rank
    f = problem.gaussian_prior.fluctuation(torch.eye(rank, dtype=torch.float64))
    u = problem.solve_affine(None, f)[0]
    config = KarhunenLoeveNetwork(input_modes=rank, output_modes=64, branch=[])
    model = KarhunenLoeveModel(problem.fields, config, 0.0)
    vectors, sizes, right = torch.linalg.svd(u.T, full_matrices=False)
    with torch.no_grad():
        model.bases.input_factor.copy_(f.T)
        model.bases.output_modes.copy_(vectors[:, :64])
        model.bases.linear_weight.copy_(sizes[:64, None] * right[:64])
    return problem, Emulator.around(model.eval())


def mean_variance(emulator: Emulator, std: object) -> float:
    share = emulator.outputs[0].domain.quadrature()
    return float((share / share.sum()) @ torch.as_tensor(std).square())


@pytest.mark.parametrize("before", [False, True])
def test_the_map_is_that_of_brute_force_on_exact_laws(poisson, before: bool) -> None:
    problem, emulator = poisson
    noise, places = 0.3, torch.tensor([27, 100, 340, 350, 475, 630])
    x, there = problem.grid.points(), torch.tensor([338] if before else [], dtype=torch.long)
    given = (x[there], torch.ones(len(there)), noise) if before else None
    exact = ClosedForm(problem, torch.zeros(problem.grid.size, 0).double())
    found = emulator.place(1, x[places], given=given, noise_std=noise)

    def left(*index: int) -> float:
        seen = torch.cat([there, torch.tensor(index, dtype=torch.long)])
        law = posterior_law(problem, x[seen], torch.zeros(len(seen)).double(), noise)
        return mean_variance(emulator, exact.moments(law).std)

    expected = np.array([left() - left(j) for j in places.tolist()])
    np.testing.assert_allclose(found.reduction[0], expected, rtol=1e-2)
    assert abs(found.before[0] / left() - 1) < 1e-3
    assert found.chosen[0] == expected.argmax() and expected.max() > 1.5 * expected.min()


def test_later_choices_know_the_earlier(linear) -> None:
    noise = {"k": 0.05, "u": 0.02}
    found = linear.place(3, {"k": X, "u": X}, noise_std=noise)
    assert set(found.candidate_fields) == {"k", "u"} and found.reduction.shape == (3, 2 * N)
    for k in range(1, 3):
        seen: dict[str, Any] = {}
        for name in set(found.fields[:k]):
            x = [found.places[i, 0] for i in range(k) if found.fields[i] == name]
            seen[name] = x, [0.0] * len(x), noise[name]
        next_one = linear.place(1, {"k": X, "u": X}, noise_std=noise, given=seen)
        np.testing.assert_allclose(found.reduction[k], next_one.reduction[0], rtol=1e-6, atol=1e-12)
        assert found.places[k] == next_one.places[0]
    np.testing.assert_allclose(found.after[:-1], found.before[1:], rtol=1e-6)
    steps = found.reduction[range(3), found.chosen]
    np.testing.assert_allclose(found.before - found.after, steps, rtol=1e-9)


def test_places_do_not_depend_on_the_order_of_candidates(linear, poisson) -> None:
    for emulator, noise in ((linear, 0.0), (poisson[1], 0.2)):  # the square has eight symmetries
        x = emulator.inputs[0].domain.points()
        order = torch.from_numpy(np.random.default_rng(3).permutation(len(x)))
        first, second = (emulator.place(4, some, noise_std=noise) for some in (x, x[order]))
        np.testing.assert_array_equal(first.places, second.places)
        np.testing.assert_array_equal(first.chosen, order.numpy()[second.chosen])
        again = emulator.place(4, x, noise_std=noise)
        np.testing.assert_array_equal(first.reduction, again.reduction)


def test_no_place_is_taken_twice_without_noise(linear) -> None:
    twice = torch.cat([X[::3], X[::3]])
    found = linear.place(6, twice)
    assert len(np.unique(found.places)) == 6
    assert all(later <= earlier for earlier, later in pairwise(found.after))
    used = found.reduction[-1, found.chosen[:-1]]
    assert used.max() < 1e-3 * found.reduction[0].max()


def test_places_of_sensors_are_enough_for_a_linear_model(linear, curved) -> None:
    x = [0.2], [0.6]
    alone = linear.place(2, given={"k": (x[0],), "u": (x[1],)})
    valued = linear.place(2, given={"k": (x[0], [0.4]), "u": (x[1], [3.0])})
    np.testing.assert_allclose(alone.reduction, valued.reduction, rtol=1e-6, atol=1e-10)
    np.testing.assert_array_equal(alone.given[:, 0], [0.2, 0.6])
    with pytest.raises(ObservationError, match="depends on what the sensors read"):
        curved.place(1, given=(x[0],))


def test_a_functional_is_a_target(linear) -> None:
    weights = torch.zeros(N, dtype=torch.float64)
    weights[20:] = 0.1
    found = linear.place(1, X[[4, 18]], target={"u": weights}, noise_std=0.1)

    def left(**sensors: Any) -> float:
        return float(weights @ torch.as_tensor(linear.condition(**sensors).covariance()) @ weights)

    after = [left(k=(X[[j]], [0.0], 0.1)) for j in (4, 18)]
    np.testing.assert_allclose(found.before[0], left(), rtol=1e-6)
    np.testing.assert_allclose(found.before[0] - found.reduction[0], after, rtol=1e-6)
    same = linear.place(1, X[[4, 18]], target=weights.numpy(), noise_std=0.1)
    np.testing.assert_array_equal(found.reduction, same.reduction)


def test_what_a_random_operator_leaves_over_belongs_to_the_output() -> None:
    rng = np.random.default_rng(5)
    data = pairs(0.0, size=1000)
    own = torch.from_numpy(rng.normal(size=(1000, 1))) * torch.sin(3 * X[:, 0])
    u = data.u + 0.3 * (own * (1 + 0.5 * data.kappa[:, :1])).float()
    fields = replace(FIELDS, random_operator=True)
    emulator = Emulator.around(fitted(Functions(fields, "training", data.kappa, u), 8))
    given = {"k": ([0.1], [0.8], 0.05), "u": ([0.5], [0.1], 0.05)}
    found = emulator.place(1, X[[10, 20]], field="u", given=given, noise_std=0.05)
    before = mean_variance(emulator, emulator.condition(**given).std())
    assert found.before[0] == pytest.approx(before, rel=1e-6)
    both = {"k": given["k"], "u": ([0.5, float(X[20, 0])], [0.1, 0.2], 0.05)}
    after = mean_variance(emulator, emulator.condition(**both).std())
    assert before - found.reduction[0, 1] == pytest.approx(after, rel=1e-6)


@pytest.mark.parametrize("side", ["k", "u"])
def test_samples_serve_a_curved_operator(curved, side: str) -> None:
    """The mean over drawn values of the posterior variance is what a reading leaves.

    It is no more than what the best linear prediction leaves, and here little less.
    """
    place, noise, size = 12, *((0.3, 512) if side == "k" else (0.1, 48))
    found = curved.place(1, X[[place]], field=side, noise_std=noise)
    before = curved.condition()
    assert found.before[0] == pytest.approx(mean_variance(curved, before.std()), rel=1e-6)
    drawn = before[side].sample(size, X[[place]], rng=4)[:, 0]
    y = drawn + noise * torch.randn(size, generator=torch.Generator().manual_seed(8)).double()
    answers = curved.condition(**{side: (X[[place]].expand(size, 1, 1), y[:, None], noise)})
    share = curved.outputs[0].domain.quadrature()
    left = torch.as_tensor(answers.std()).square() @ (share / share.sum())
    error, gained = 3 * float(left.std()) / size**0.5, found.after[0] - float(left.mean())
    assert error < 0.06 * found.reduction[0, 0]
    assert -error < gained < error + 0.02 * found.reduction[0, 0]


@pytest.mark.parametrize("answers_by", ["mixture", "regression"])
def test_other_laws_and_methods_place_by_samples(answers_by: str) -> None:
    model, functions = mixture_model()
    regression = answers_by == "regression"
    emulator = Emulator.around(LeastSquares(functions, 0.0) if regression else model)
    given = {"k": (X[[4]], [0.4], 0.1), "u": (X[[9]], [0.1], 0.1)}
    found = emulator.place(1, {"k": X, "u": X}, given=given, noise_std=0.1)
    posterior = emulator.condition(**given)
    assert found.before[0] == pytest.approx(mean_variance(emulator, posterior.std()), rel=1e-6)
    # The best linear prediction of u from each reading, over samples of both.
    k, u = (torch.as_tensor(posterior[name].sample(20_000, rng=9)).double() for name in "ku")
    share = emulator.outputs[0].domain.quadrature()
    y, u = torch.cat([k, u], 1), u - u.mean(0)
    y = y - y.mean(0)
    variance = y.square().mean(0) + 0.1**2
    expected = ((y.T @ u / len(y)).square() @ (share / share.sum())) / variance
    off = (torch.from_numpy(found.reduction[0]) - expected).abs().max()
    assert off < 0.085 * expected.max()


def test_a_field_under_log_is_read_as_its_logarithm(linear) -> None:
    logs, more = under_log(linear.operator), {"noise_std": 0.05, "target": "k"}
    found = logs.place(2, given=([0.3], [float(np.exp(0.5))], 0.1), **more)
    same = linear.place(2, given=([0.3], [0.5], 0.1), **more)
    np.testing.assert_allclose(found.reduction, same.reduction, rtol=1e-6, atol=1e-12)


def test_fields_side_by_side_have_their_own_units() -> None:
    emulator = side_by_side(remainder=(torch.full((N, 2), 0.01), torch.full((N, 1), 0.02)))
    found = emulator.place(1, noise_std={"a": 0.3, "b": 0.02})
    assert found.candidate_fields == ["a"] * PARTS["a"] + ["b"] * PARTS["b"]
    assert found.before[0] == pytest.approx(mean_variance(emulator, emulator.condition().std()))
    for name, x, noise, j in (("a", 0.0, 0.3, 0), ("b", 1.0, 0.02, N - 1)):
        after = emulator.condition(**{name: ([x], [0.1], noise)}).std()
        expected = found.before[0] - mean_variance(emulator, after)
        assert found.reduction[0, j] == pytest.approx(expected, rel=1e-6)


def test_sensors_keep_their_distance_from_each_other_and_from_those_that_are_there(linear) -> None:
    there = 0.5
    near = linear.place(4, given=([there],))
    apart = linear.place(4, given=([there],), distance=0.1)
    every = np.append(apart.places[:, 0], there)
    gaps = np.abs(every[:, None] - every) + np.eye(5)
    assert gaps.min() >= 0.1 - 1e-9 and apart.after[-1] >= near.after[-1]
    with pytest.raises(ObservationError, match=r"leaves room for [12] of .* lower n or distance"):
        linear.place(4, distance=0.9)


def test_a_distance_goes_around_an_axis_that_repeats() -> None:
    grid = Grid((0.0,), (1.0,), (20,), periodic=True)
    site = Site(
        grid.points().numpy(), np.ones(20), np.inf, 0.2,
        periods_of([Field("k", grid)], 1),
    )  # fmt: skip
    free = site.free([0], np.empty((0, 1)))
    assert free.nonzero()[0].tolist() == list(range(4, 17))


def test_costs_are_weighed_and_a_budget_is_kept(linear) -> None:
    x = linear.inputs[0].domain.points().numpy()
    cost = np.where(x[:, 0] < 0.5, 4.0, 1.0)
    first = linear.place(1)
    weighed = linear.place(1, cost=cost)
    gain = first.reduction[0] / cost
    assert weighed.chosen[0] == gain.argmax() and weighed.cost[0] == cost[gain.argmax()]
    cheap = linear.place(len(x), cost=cost, budget=5.5)
    assert cheap.cost.sum() <= 5.5 < cheap.cost.sum() + 1 or len(cheap.cost) == len(x)
    assert linear.place(3, budget=2.0).places.shape[0] == 2
    by_field = linear.place(1, {"k": [[0.2]], "u": [[0.7]]}, cost={"u": 1e6})
    assert by_field.fields == ["k"]


def test_pictures(linear, poisson, tmp_path: Path) -> None:
    line = linear.place(2, {"k": X, "u": X}, given={"k": ([0.2], [0.1])}, noise_std=0.05)
    assert len(line.plot(tmp_path / "line.png").axes) == 2
    plane = poisson[1].place(2, given=([[0.5, 0.5]], [1.0]))
    plane.plot(tmp_path / "plane.png")
    for name in ("line", "plane"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(DataError, match=r"map.bmp: pictures end in \.png"):
        plane.plot("map.bmp")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"n": 0}, f"whole number from 1 to the number of candidates, {N}; found 0"),
    ({"n": 3, "candidates": [0.1, 0.2]}, "number of candidates, 2; found 3"),
    ({"n": 1.5}, "found 1.5"),
    ({"field": "w"}, "'w' is unknown; there are k, u"),
    ({"candidates": {"q": [0.1]}}, "candidates: field 'q' is unknown"),
    ({"candidates": {}}, "candidates: no field is named"),
    ({"candidates": {"k": [0.1]}, "field": "k"}, "leave out field"),
    ({"candidates": [0.5, 1.2]}, "candidates of k: 1 at [1.2] lies outside the domain"),
    ({"candidates": [[0.1, 0.2]]}, "candidates of k must have shape (M, 1), found (1, 2)"),
    ({"candidates": [float("nan")]}, "candidates of k must be finite"),
    ({"noise_std": -1.0}, "noise_std must be finite, at most 1e+30 and not negative, found -1"),
    ({"noise_std": [0.1, 0.2]}, f"one for each of the {N} candidates of k; found shape (2,)"),
    ({"noise_std": {"w": 0.1}}, "noise_std: field 'w' is unknown"),
    ({"target": "w"}, "target: field 'w' is unknown"),
    ({"target": [1.0, 2.0]}, f"weights on the {N} points of u"),
    ({"target": np.zeros(N)}, "not all zero"),
    ({"target": {"k": np.ones(N), "u": np.ones(N)}}, "weights of one field expected, found 2"),
    ({"distance": -1.0}, "distance not negative"),
    ({"cost": 0.0}, "cost must be finite and positive"),
    ({"budget": 0.5}, "the cheapest candidate costs 1, more than the budget of 0.5"),
    ({"given": {"k": ([0.1],), "u": ([0.1], [0.2])}}, "of all fields or of none"),
    ({"given": ([1.3],)}, "given of k: 0 at [1.3] lies outside"),
    ({"given": (np.full((2, 1, 1), 0.4), np.zeros((2, 1)))}, "one set of sensors, found 2"),
]


@pytest.mark.parametrize(("words", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_calls_are_refused_in_words(linear, words: dict[str, Any], message: str) -> None:
    with pytest.raises(ObservationError) as error:
        linear.place(**({"n": 1} | words))
    assert message in str(error.value)


def test_a_model_without_a_law_of_the_input_says_so() -> None:
    pairs = Functions(FIELDS, "training", torch.rand(9, len(X)), torch.rand(9, len(X)))
    emulator = Emulator.around(SensorFree(pairs))
    for ask in (lambda: emulator.place(1), lambda: emulator.condition(u=([0.4], [0.1])).mean()):
        with pytest.raises(ObservationError, match="sensor_free has no law of its input"):
            ask()

"""The floor: what answers sensors of each side, few runs, and a field from sensors of itself."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import uqsonet
from tests.own.conftest import quiet
from uqsonet.errors import DataError, ObservationError
from uqsonet.fitting import fit as fitting
from uqsonet.operator import regression
from uqsonet.operator.baselines import plain
from uqsonet.operator.closed_form import targets
from uqsonet.operator.regression import Regression
from uqsonet.operator.weight_files import read_weights, write_weights
from uqsonet.runs.functions import Functions
from uqsonet.runs.runs import rows_of, split_runs
from uqsonet.show.explore import page

LINE = np.linspace(0, 1, 25)


def smooth(size: int, seed: int = 0) -> np.ndarray:
    """Return Gaussian functions (size, 25) of four modes."""
    rng = np.random.default_rng(seed)
    modes = np.cos(np.pi * np.arange(1, 5)[:, None] * LINE) / np.arange(1, 5)[:, None]
    return rng.standard_normal((size, 4)) @ modes


def bent(a: np.ndarray) -> np.ndarray:
    """Return what no linear operator explains."""
    return np.tanh(2 * np.cumsum(a, 1) / 25) + 0.3 * a**2


@pytest.fixture(scope="module")
def model() -> uqsonet.Emulator:
    """A linear model of two fields, far behind a kernel at five sensors of its input."""
    a = smooth(200)
    runs = uqsonet.Runs({"a": a}, {"u": bent(a)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "MIN_LEFT", np.inf)
        return uqsonet.fit(runs, sensors=[1, 5], bar=False)


def read(values: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    index = np.linspace(2, 22, count).astype(int)
    return np.broadcast_to(LINE[index, None], (len(values), count, 1)), values[:, index]


def error(model: uqsonet.Emulator, a: np.ndarray, count: int) -> float:
    answer = quiet(model, *read(a, count)).mean()
    truth = bent(a)
    return float(np.linalg.norm(answer - truth) / np.linalg.norm(truth))


def test_a_better_plain_answer_is_taken_and_the_card_says_so(model: uqsonet.Emulator) -> None:
    assert isinstance(model.given_inputs, Regression)
    row = model.card["recipe"]["answers"][0]
    assert row["read"] == "inputs" and row["sensors"] == [1, 5] and row["layouts"] == 6
    assert row["taken"] == "regression" and row["less"] > 2 * row["standard_error"] > 0
    assert "Sensors of inputs are answered by regression" in str(model).replace("\n  ", " ")
    fresh = smooth(50, 1)
    own = error(model.with_operator(model.operator), fresh, 5)
    assert error(model, fresh, 5) < 0.3 * own
    assert error(model, fresh, 6) < 0.5 * error(model.with_operator(model.operator), fresh, 6)


def test_a_named_law_keeps_the_model_and_says_what_would_be_better() -> None:
    a = smooth(150)
    runs = uqsonet.Runs({"a": a}, {"u": bent(a)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "MIN_LEFT", np.inf)
        found = uqsonet.fit(runs, sensors=5, bar=False, law="gaussian")
    assert found.given_inputs is None is found.given_outputs
    assert "would be better" in str(found)


def test_sensors_of_outputs_of_which_the_model_makes_nothing_are_answered_by_regression() -> None:
    """Squares have two roots: from outputs the model finds neither, and says one is sure."""
    z = np.random.default_rng(0).standard_normal((240, 4))
    modes = np.cos(np.pi * np.arange(1, 5)[:, None] * LINE) / np.arange(1, 5)[:, None]
    k, u = z @ modes, (z @ modes) ** 2 + 0.5 * (z @ modes)
    model = uqsonet.fit(uqsonet.Runs({"k": k[:220]}, {"u": u[:220]}), sensors=[12], bar=False)
    assert isinstance(model.given_outputs, Regression)
    row = model.card["recipe"]["answers"][1]
    assert row["read"] == "outputs" and row["above_uqsonet"] > 0.5
    sensors = np.broadcast_to(LINE[1::2, None], (20, 12, 1)), u[220:, 1::2]
    found, own = (
        np.abs(np.asarray(quiet(one, u=sensors)["k"].mean()) - k[220:]).mean()
        for one in (model, model.with_operator(model.operator))
    )
    assert found < 0.7 * own


def test_a_file_answers_the_same(model: uqsonet.Emulator, tmp_path: Path) -> None:
    model.save(tmp_path / "one.safetensors")
    loaded = uqsonet.load(tmp_path / "one.safetensors")
    loaded.save(tmp_path / "two.safetensors")
    files = [tmp_path / f"{name}.safetensors" for name in ("one", "two")]
    assert files[0].read_bytes() == files[1].read_bytes()
    sensors = tuple(part[0] for part in read(smooth(1, 2), 5))
    one, two = quiet(model, *sensors), quiet(loaded, *sensors)
    for name in ("a", "u"):
        np.testing.assert_array_equal(one[name].sample(5), two[name].sample(5))
        np.testing.assert_array_equal(one[name].band(0.9), two[name].band(0.9))
    text = page(loaded, "bent")
    assert "shows the model alone" in text and re.search(r"For sensors of a.* plainer answer", text)
    tensors, meta = read_weights(files[0])
    meta["emulator"]["floor"] = {"inputs": {"5": "kernel_regression"}}
    write_weights(files[1], tensors, meta)
    with pytest.raises(DataError, match="fit again"):
        uqsonet.load(files[1])


def test_sets_of_different_counts_and_any_order_have_the_answers_that_they_have_alone(
    model: uqsonet.Emulator,
) -> None:
    a = smooth(1, 3)
    ones = [tuple(part[0] for part in read(a, count)) for count in (1, 5, 0)]
    together = quiet(model, [*ones[:2], (LINE[:0], LINE[:0])])
    for row, one in enumerate(ones[:2]):
        np.testing.assert_allclose(together.mean()[row], quiet(model, *one).mean(), atol=1e-12)
        np.testing.assert_allclose(
            together["a"].std()[row], quiet(model, *one)["a"].std(), atol=1e-12
        )
    x, y = ones[1]
    for noise in (0.0, 0.1):
        np.testing.assert_allclose(
            quiet(model, x[::-1], y[::-1], noise_std=noise).sample(3),
            quiet(model, x, y, noise_std=noise).sample(3),
            atol=1e-12,
        )


def test_sensors_of_outputs_and_places(model: uqsonet.Emulator) -> None:
    a = smooth(1, 4)
    u = bent(a)[0]
    answer = quiet(model, u=(LINE[[4, 9, 14, 19, 24]], u[[4, 9, 14, 19, 24]]))
    assert np.abs(answer.mean() - u).max() < 0.5 * np.abs(u).max()
    given = tuple(part[0] for part in read(a, 5))
    found = model.place(2, given=given)
    assert np.all(found.after < found.before)


def test_bands_of_inputs_are_conformal_and_hold_what_they_promise(model: uqsonet.Emulator) -> None:
    a = smooth(300, 5)
    answer = quiet(model, *read(a, 5))["a"]
    lower, upper = answer.band(0.8)
    assert not np.array_equal(lower, answer.band(0.8, kind="plain")[0])
    held = (a >= lower) & (a <= upper)
    spread = (0.8 * 0.2 / 32) ** 0.5  # of what 30 calibration runs promise
    assert abs(float(held.mean()) - 0.8) < 2.5 * spread
    answer = quiet(model, u=(LINE[:2], LINE[:2]))
    plain = answer.band(0.8, kind="plain")
    assert not np.array_equal(answer.band(0.8, kind="conformal")[0], plain[0])
    odd = quiet(model, u=(LINE[:2], LINE[:2]), noise_std=0.1, likelihood="student")
    with pytest.raises(ObservationError, match="given a likelihood"):
        odd.band(0.8, kind="conformal")


def test_leaving_a_pair_out_is_what_the_closed_form_says() -> None:
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.standard_normal((30, 3)))
    target = torch.sin(rows[:, :1]) + 0.1 * torch.from_numpy(rng.standard_normal((30, 1)))
    kernel = regression.Kernel(2.0, 0.1, 0.0)
    square = kernel.between(rows, rows) + 0.01 * torch.eye(30, dtype=torch.float64)
    inverse = torch.linalg.inv(square)
    left = (inverse @ target) / inverse.diagonal()[:, None]
    for out in (0, 7):
        kept = torch.arange(30) != out
        weights = torch.linalg.solve(square[kept][:, kept], target[kept])
        predicted = kernel.between(rows[[out]], rows[kept]) @ weights
        assert float(left[out]) == pytest.approx(float(target[out] - predicted), rel=1e-9)


def test_least_squares_and_no_information_are_ends_of_the_kernel() -> None:
    rng = np.random.default_rng(1)
    a = rng.standard_normal((120, 4)) @ np.cos(np.outer(np.arange(1, 5), np.pi * LINE))
    runs = uqsonet.Runs({"a": a}, {"u": np.cumsum(a, 1) / 25})
    linear = uqsonet.fit(runs, sensors=[4], bar=False, law="gaussian")
    functions = Functions(
        linear.fields,
        "training",
        rows_of(runs.inputs, linear.inputs).whole(),
        rows_of(runs.outputs, linear.outputs).whole(),
    )
    a_of, c = targets(linear.bases, functions).values()
    x, y = (part[0] for part in read(a[:1], 4))
    found = linear.with_operator(Regression(linear.bases, a_of, c))
    np.testing.assert_allclose(
        quiet(found, x, y).mean(), np.cumsum(a[0]) / 25, atol=0.02 * np.abs(a).max()
    )
    shuffled = Regression(linear.bases, a_of[rng.permutation(120)], c)
    answer = quiet(linear.with_operator(shuffled), x, y)
    spread = (np.cumsum(a, 1) / 25).std(0).mean()
    assert 0.8 * spread < answer.std().mean() < 1.3 * spread
    with pytest.raises(DataError, match="no answer by 'nobody'"):
        plain("nobody", linear.operator, c, {})


def front(a: np.ndarray) -> np.ndarray:
    """Return fronts whose place is no smooth function of few readings for one length."""
    place = 0.5 + 0.25 * np.sin(3 * a[:, :1]) + 0.1 * a[:, 12:13]
    return np.tanh((LINE - place) / 0.15)


def test_many_runs_are_regressed_on_where_they_are_near(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Chosen by held-out runs, the same from a file, alone and in company, in any order."""
    monkeypatch.setattr(regression, "NEAR_PAIRS", 40)
    monkeypatch.setattr(regression, "ALL_PAIRS", 80)
    monkeypatch.setattr(fitting, "MIN_LEFT", np.inf)
    a = smooth(400)
    near = uqsonet.fit(uqsonet.Runs({"a": a}, {"u": front(a)}), sensors=[5], bar=False)
    assert isinstance(near.given_inputs, Regression)
    near.save(tmp_path / "one.safetensors")
    loaded = uqsonet.load(tmp_path / "one.safetensors")
    fresh = smooth(40, 1)
    x, y = read(fresh, 5)
    answer = quiet(near, x, y)
    np.testing.assert_allclose(quiet(loaded, x, y).mean(), answer.mean(), atol=1e-9)
    np.testing.assert_allclose(quiet(near, x[3], y[3]).mean(), answer.mean()[3], atol=1e-9)
    turned = quiet(near, x[3][::-1], y[3][::-1])
    np.testing.assert_allclose(turned.std(), answer.std()[3], atol=1e-9)
    lower, upper = answer.band(0.8)
    held = (front(fresh) >= lower) & (front(fresh) <= upper)
    assert 0.7 < float(held.mean()) < 0.9


@pytest.mark.parametrize("size", [8, 13, 30])
def test_few_runs_have_an_answer(size: int) -> None:
    a = smooth(size)
    runs = uqsonet.Runs({"a": a}, {"u": bent(a)})
    few = uqsonet.fit(runs, sensors=[5], bar=False)
    assert few.card["recipe"]["law"] == "gaussian"
    assert few.card["data"] == dict.fromkeys(("training", "validation", "calibration"), size) | {
        "runs": size
    }
    fresh = smooth(100, 6)
    answer, truth = quiet(few, *read(fresh, 5)), bent(fresh)
    lower, upper = answer.band(0.8, kind="plain")
    assert 0.55 < float(((truth >= lower) & (truth <= upper)).mean()) < 0.98
    lower, upper = answer.band(0.8)
    held = float(((truth >= lower) & (truth <= upper)).mean())
    assert 0.8 - 3 * (0.16 / size) ** 0.5 < held < 0.98
    with pytest.raises(ObservationError, match=f"this model has {size}"):
        answer.band(0.99)


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(DataError, match="7 runs; at least 8"):
        uqsonet.fit(uqsonet.Runs({"a": smooth(7)}))


def test_minutes_of_training_are_no_longer_asked_for() -> None:
    runs = uqsonet.Runs({"a": smooth(8)})
    with pytest.warns(FutureWarning, match="no effect: .* closed form"):
        uqsonet.fit(runs, 0, bar=False)
    with pytest.warns(FutureWarning, match="no effect: .* closed form"):
        uqsonet.fit(runs, minutes=0.5, bar=False)


def test_few_runs_all_validate_once() -> None:
    from uqsonet.fitting.candidates import EncodedRuns

    runs = uqsonet.Runs({"a": smooth(33)})
    data = EncodedRuns.of(runs, {"a": "identity"}, split_runs(33, 0), [3], 0.0, 0)
    folds = [one.split for one in data.folds()]
    assert len(folds) == 5
    assert sorted(np.concatenate([one.validation for one in folds])) == list(range(33))
    for one in folds:
        assert sorted([*one.validation, *one.training]) == list(range(33))
        np.testing.assert_array_equal(one.calibration, one.validation)


def test_a_field_from_sensors_of_itself() -> None:
    a = smooth(150)
    alone = uqsonet.fit(uqsonet.Runs({"a": a}), sensors=[5], bar=False)
    assert {row["branch"] for row in alone.card["recipe"]["tried"]} == {"linear"}  # it is exact
    twice = uqsonet.fit(uqsonet.Runs({"a": a}, {"a": a}), sensors=[5], bar=False)
    fresh = smooth(40, 7)
    one, two = (quiet(found, *read(fresh, 5)) for found in (alone, twice))
    np.testing.assert_array_equal(one.mean(), two["a"].mean())
    assert np.linalg.norm(one.mean() - fresh) < 0.05 * np.linalg.norm(fresh)
    lower, upper = one.band(0.8)
    assert 0.65 < float(((fresh >= lower) & (fresh <= upper)).mean()) < 0.95
    with pytest.raises(DataError, match="an input and another output"):
        uqsonet.Runs({"a": a}, {"a": a + 1})


def test_a_header_with_numbers_as_keys_is_read_again(tmp_path: Path) -> None:
    """As numbers 3, 10 and 30 have another order than as text; what is stored has one digest."""
    path = tmp_path / "model.safetensors"
    write_weights(path, {"a": torch.zeros(1)}, {"floor": {3: "mean", 10: "kriging", 30: "mean"}})
    assert read_weights(path)[1] == {"floor": {"3": "mean", "10": "kriging", "30": "mean"}}


@pytest.mark.parametrize("scale", [1.0, 3.0, 1e-24])
def test_rounding_does_not_choose_what_answers(scale: float) -> None:
    a = scale * np.exp(0.3 * smooth(80))
    field = uqsonet.FieldRuns.of(a, transform="log")
    found = uqsonet.fit(uqsonet.Runs({"a": field}, {"u": a}), sensors=[4], bar=False)
    # All answers are exact, but for the rounding of values.
    assert found.given_inputs is None is found.given_outputs


@pytest.mark.parametrize(("length", "scaled"), [(0.02, True), (2.0, False)])
def test_few_rough_runs_do_not_count_their_variance_twice(length: float, scaled: bool) -> None:
    """Modes of as many as all runs hold all their variance, and leave much out of other runs."""
    x = np.linspace(0, 1, 150)
    root = np.linalg.cholesky(np.exp(-np.abs(x[:, None] - x) / length))
    runs = np.random.default_rng(0).standard_normal((60, 150)) @ root.T
    model = uqsonet.fit(uqsonet.Runs({"k": runs}, {"u": runs.cumsum(1)}), sensors=[5], bar=False)
    assert (model.operator.bases.mode_std.min() < 0.95) == scaled
    assert np.mean(model.condition(np.zeros((0, 1)), [])["k"].std()) == pytest.approx(1, abs=0.12)

"""`fit` and `Runs`: reproducible, resumable, and right about the data that it is given."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import uqsonet
from tests.own.conftest import Linear, waves
from uqsonet import fitting
from uqsonet.description import distance_from_gaussian, proposed_transform
from uqsonet.errors import DataError, TrainingError
from uqsonet.fields import Grid
from uqsonet.runs import split_runs

LINE = np.linspace(0, 1, 12)
of = uqsonet.FieldRuns.of


def smooth(size: int, seed: int = 0) -> np.ndarray:
    """Return smooth Gaussian functions (size, 12)."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((size, 4)) @ waves(LINE[:, None], 4, 1).T


def squares() -> uqsonet.Runs:
    """Return pairs that no linear operator explains."""
    a = smooth(150)
    return uqsonet.Runs({"a": a}, {"u": a**2 + a})


def saved(model: uqsonet.Emulator, path: Path) -> bytes:
    model.save(path)
    return path.read_bytes()


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    runs = squares()
    first, again, other = (
        saved(uqsonet.fit(runs, 0, sensors=[3], seed=s, bar=False), path) for s in (1, 1, 2)
    )
    assert first == again != other


def test_a_saved_model_gives_the_same_answers(linear: uqsonet.Emulator, tmp_path: Path) -> None:
    linear.save(tmp_path / "model.safetensors")
    loaded = uqsonet.load(tmp_path / "model.safetensors")
    assert saved(loaded, tmp_path / "again.safetensors") == saved(
        linear, tmp_path / "m.safetensors"
    )
    law = Linear()
    sensors = law.points[[2, 60, 90]], 0.3 * law.given[[2, 60, 90]].sum(1)
    one, two = (model.condition(*sensors, noise_std=0.1) for model in (linear, loaded))
    for answer in ("mean", "std", "band"):
        np.testing.assert_array_equal(getattr(one, answer)(), getattr(two, answer)())
    np.testing.assert_array_equal(one.sample(9), two.sample(9))
    assert loaded.card == linear.card and str(loaded) == str(linear)
    assert one.band(0.8, whole=True)[1].tolist() == two.band(0.8, whole=True)[1].tolist()


MINUTES = 0.01
"""Eighty iterations of a perceptron or so."""


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch):
    """Send SIGTERM to this process when a validator is asked for the second time."""

    def at(validator: type) -> None:
        calls, columns = [], validator.columns

        def stopping(self: object, model: object) -> dict[str, float]:
            calls.append(1)
            if len(calls) == 2:
                os.kill(os.getpid(), signal.SIGTERM)
            return columns(self, model)

        monkeypatch.setattr(validator, "columns", stopping)

    return at


def test_a_fit_that_was_killed_goes_on_to_the_same_bytes(interrupted, tmp_path: Path) -> None:
    def fit(state: Path | None) -> bytes:
        model = uqsonet.fit(squares(), MINUTES, sensors=[3], state=state, bar=False)
        assert model.card["recipe"]["branch"] == "linear and perceptron"
        return saved(model, tmp_path / "model.safetensors")

    undisturbed, state = fit(None), tmp_path / "state"
    for validator, stage in ((fitting.HeldOutValidator, "choice-0"), (fitting._Unwatched, "final")):
        interrupted(validator)
        with pytest.raises(TrainingError, match="stopped by signal 15 at iteration"):
            fit(state)
        assert (state / f"{stage}.state").is_file()
    assert fit(state) == undisturbed
    assert not list(state.glob("*.state"))
    assert fit(state) == undisturbed, "a finished fit is read, not trained again"


def test_the_folder_of_another_fit_is_not_continued(tmp_path: Path) -> None:
    state, path = tmp_path / "state", tmp_path / "model.safetensors"
    uqsonet.fit(squares(), MINUTES, sensors=[3], state=state, bar=False)
    other = uqsonet.Runs({"a": smooth(150, 5)}, {"u": smooth(150, 5) ** 2})
    found = uqsonet.fit(other, MINUTES, sensors=[3], state=state, bar=False)
    fresh = uqsonet.fit(other, MINUTES, sensors=[3], bar=False)
    assert saved(found, path) == saved(fresh, path)


@given(size=st.integers(20, 5000), seed=st.integers(0, 1000))
def test_parts_of_the_runs(size: int, seed: int) -> None:
    split = split_runs(size, seed)
    parts = split.training, split.validation, split.calibration
    assert sorted(np.concatenate(parts).tolist()) == list(range(size))
    assert 4 <= len(split.validation) <= 500
    assert min(10, size // 4) <= len(split.calibration) <= 200
    assert len(split.training) >= size / 2
    again = split_runs(size, seed)
    assert all(np.array_equal(getattr(split, k), getattr(again, k)) for k in vars(split))


def test_calibration_runs_have_no_influence_on_the_operator(tmp_path: Path) -> None:
    """Otherwise bands would hold less than they promise."""
    a = smooth(150)
    u = np.cumsum(a, 1)
    model = uqsonet.fit(uqsonet.Runs({"a": a}, {"u": u}), 0, sensors=[3], bar=False)
    changed = u.copy()
    changed[split_runs(150, 0).calibration] = 0.0
    other = uqsonet.fit(uqsonet.Runs({"a": a}, {"u": changed}), 0, sensors=[3], bar=False)
    one, two = (m.condition(LINE[[2, 7]], [0.3, -0.1]) for m in (model, other))
    scale = model.outputs[0].scale / other.outputs[0].scale  # of units alone
    assert scale != 1
    np.testing.assert_allclose(one.mean(), two.mean(), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(one.std(), two.std(), rtol=1e-2, atol=1e-3)


def test_missing_values() -> None:
    a = smooth(50)
    holes = a.copy()
    holes[[4, 9], [3, 7]] = np.nan
    runs = uqsonet.Runs({"a": of(holes, missing="drop")}, {"u": a})
    assert len(runs) == 48
    kept = np.delete(a, [4, 9], axis=0).astype(np.float32)
    np.testing.assert_allclose(runs.inputs["a"].values, kept, rtol=1e-6)
    np.testing.assert_allclose(runs.outputs["u"].values, kept, rtol=1e-6)
    filled = of(holes, missing="fill")
    assert np.abs(filled.values - a).max() < 0.02 * a.std()
    untouched = ~np.isnan(holes)
    np.testing.assert_array_equal(filled.values[untouched], a[untouched])


def test_runs_at_other_points_each() -> None:
    """The error of interpolation that is stated is near the true one."""
    rng = np.random.default_rng(0)
    modes = 3 * rng.standard_normal((4, 2))

    def field(xi: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.cos(x @ modes.T) @ xi

    xi = rng.standard_normal((25, 4))
    clouds = [rng.random((120, 2)) for _ in xi]
    onto = 0.1 + 0.8 * rng.random((60, 2))
    pairs = [(x, field(z, x)) for z, x in zip(xi, clouds, strict=True)]
    found = uqsonet.FieldRuns.from_scattered(pairs, onto)
    truth = np.stack([field(z, onto) for z in xi])
    true = np.sqrt(np.mean((found.values - truth) ** 2)) / truth.std()
    assert true < 0.1
    assert 0.5 * true < found.interpolation_error < 5 * true  # the ends of the cloud are harder
    assert uqsonet.FieldRuns.from_scattered(pairs).domain.size == 120
    runs = uqsonet.Runs({"a": found}, {"u": truth})
    assert "interpolated to common points" in str(runs.describe())


def test_axes_that_fall_are_turned() -> None:
    rng = np.random.default_rng(0)
    values, x, y = rng.standard_normal((30, 5, 4)), np.linspace(0, 1, 5), np.array([0, 1, 2, 3.0])
    plain, turned = of(values, (x, y)), of(values[:, ::-1, ::-1], (x[::-1], y[::-1]))
    np.testing.assert_array_equal(plain.values, turned.values)
    assert plain.domain == turned.domain == Grid((0.0, 0.0), (1.0, 3.0), (5, 4))
    stretched = of(values[:, :, ::-1], (x, y[::-1] ** 2))
    where = torch.tensor([[x[2], y[3] ** 2]])
    read = stretched.domain.interpolate(torch.tensor(stretched.values.T.copy()), where)
    np.testing.assert_allclose(read[0], values[:, 2, 3], rtol=1e-6)


def test_periodic_grids() -> None:
    x = np.arange(16) / 16
    rng = np.random.default_rng(0)
    phase, size = rng.random((60, 1)), rng.standard_normal((60, 1))
    a = size * np.cos(2 * np.pi * (x + phase))
    for field in (of(a, (x,), periodic=True), of(a, x, periodic=True), of(a, periodic=True)):
        assert field.domain == Grid((0.0,), (1.0,), (16,), True)
    runs = uqsonet.Runs({"a": of(a, periodic=True)}, {"u": of(a, periodic=True)})
    model = uqsonet.fit(runs, 0, sensors=[3], bar=False)
    places = np.array([0.0, 0.98])
    posterior = model.condition(places, size[0] * np.cos(2 * np.pi * (places + phase[0])))
    # Both sensors are near the seam, and the answer is smooth across it.
    wanted = np.array([0.99, 0.01])
    exact = size[0] * np.cos(2 * np.pi * (wanted + phase[0]))
    np.testing.assert_allclose(posterior.mean(wanted), exact, atol=0.02)
    plane = of(rng.standard_normal((30, 4, 6)), periodic=True)
    assert plane.domain.shape == (4, 6) and plane.domain.periodic
    assert plane.domain.upper == pytest.approx((1, 1))


def test_grids_that_are_given_in_several_ways_are_one() -> None:
    values = smooth(30).reshape(30, 3, 4)
    axes = np.linspace(0, 1, 3), np.linspace(0, 1, 4)
    flat, grid = values.reshape(30, 12), Grid((0.0, 0.0), (1.0, 1.0), (3, 4))
    pairs = [(values, None), (values, axes), (values, list(axes)), (flat, axes), (values, grid)]
    fields = [of(*pair) for pair in pairs]
    for field in fields:
        assert field.domain == fields[0].domain
        np.testing.assert_array_equal(field.values, fields[0].values)
    line = [
        of(smooth(30)),
        of(smooth(30), LINE),
        of(smooth(30), (LINE,)),
        of(smooth(30), LINE[:, None]),
    ]
    assert len({field.domain for field in line}) == 1


def test_transforms_that_are_proposed() -> None:
    gaussian = smooth(200)
    laws = {
        "identity": [gaussian, gaussian + 50, np.where(gaussian > 1, 9.0, 0.1)],
        "log": [np.exp(gaussian), 1e-12 * np.exp(gaussian)],
    }
    for expected, fields in laws.items():
        for values in fields:
            assert proposed_transform(of(values)) == expected
    assert proposed_transform(of(np.exp(gaussian), transform="identity")) == "identity"


def test_the_transform_is_chosen_by_scores() -> None:
    """The operator is linear in the logarithm."""
    a = smooth(150)
    model = uqsonet.fit(uqsonet.Runs({"k": np.exp(a)}, {"u": a.copy()}), 0, sensors=[3], bar=False)
    assert model.inputs[0].transform.name == "log"
    posterior = model.condition(LINE[[1, 4, 6, 10]], np.exp(a[0, [1, 4, 6, 10]]))
    np.testing.assert_allclose(posterior.mean(), a[0], atol=0.02)


@pytest.mark.parametrize("size", [50, 1000])
def test_distance_from_a_gaussian_law(size: int) -> None:
    generator = np.random.default_rng(4)
    chance = 1.73 / np.sqrt(size)
    normal = generator.standard_normal((size, 8))
    heavy = normal / np.sqrt(generator.chisquare(2, (size, 1)) / 2)
    assert distance_from_gaussian(torch.tensor(normal)) < chance
    assert distance_from_gaussian(torch.tensor(heavy / heavy.std(0))) > chance


def test_a_field_of_low_rank_is_described_by_its_own_modes() -> None:
    """Modes beyond the rank are rounding; they once counted as far from Gaussian."""
    description = Linear().runs(400).describe()
    for one in description.fields:
        assert one.distance < one.chance and max(one.modes.values()) <= 6
    assert "no evidence against a Gaussian law" in str(description)


def test_units_and_scales_do_not_matter() -> None:
    a = smooth(150)
    plain = uqsonet.fit(uqsonet.Runs({"a": a}, {"u": a**2}), 0, sensors=[3], bar=False)
    runs = uqsonet.Runs({"a": 1e-9 * a}, {"u": of(1e9 * a**2, units="Pa")})
    scaled = uqsonet.fit(runs, 0, sensors=[3], bar=False)
    assert scaled.outputs[0].label == "u [Pa]"
    one = plain.condition(LINE[[2, 8]], [0.5, -0.2], noise_std=0.1)
    two = scaled.condition(LINE[[2, 8]], [0.5e-9, -0.2e-9], noise_std=0.1e-9)
    np.testing.assert_allclose(two.mean(), 1e9 * one.mean(), rtol=1e-3, atol=1e5)
    np.testing.assert_allclose(two.std(), 1e9 * one.std(), rtol=1e-3)


def test_an_offset_does_not_matter() -> None:
    """An absolute pressure: small variations of a large value."""
    a = smooth(150)
    plain = uqsonet.fit(uqsonet.Runs({"a": a}, {"u": a}), 0, sensors=[3], bar=False)
    moved = uqsonet.fit(
        uqsonet.Runs({"a": a + 101_325}, {"u": a + 101_325}), 0, sensors=[3], bar=False
    )
    one = plain.condition(LINE[[2, 8]], [0.5, -0.2])
    two = moved.condition(LINE[[2, 8]], np.array([0.5, -0.2]) + 101_325)
    np.testing.assert_allclose(two.mean() - 101_325, one.mean(), atol=0.05)
    np.testing.assert_allclose(two.std(), one.std(), atol=0.05)


def test_a_field_that_is_zero_somewhere_is_accepted() -> None:
    """A boundary condition: no variance at some points."""
    u = smooth(100) * LINE * (1 - LINE)
    model = uqsonet.fit(uqsonet.Runs({"a": u}, {"u": u.copy()}), 0, sensors=[3], bar=False)
    posterior = model.condition(LINE[[3, 6]], u[0, [3, 6]])
    lower, upper = posterior.band(0.9)
    assert abs(lower[0]) < 1e-6 and abs(upper[-1]) < 1e-6
    assert (upper - lower)[1:-1].min() > 0
    assert np.isfinite([*lower, *upper]).all()


def test_too_few_runs_for_a_level() -> None:
    a = smooth(20)
    model = uqsonet.fit(uqsonet.Runs({"a": a}, {"u": a}), 0, sensors=[3], bar=False)
    assert model.calibration is not None and len(model.calibration) == 5
    posterior = model.condition(LINE[[3, 6]], a[0, [3, 6]])
    posterior.band(0.8)
    with pytest.raises(uqsonet.UQSONetError, match="needs 9 calibration runs, this model has 5"):
        posterior.band(0.9)


def test_float32_and_whole_numbers_are_runs() -> None:
    values = np.round(10 * smooth(30))
    for dtype in (np.float16, np.float32, np.int64, np.uint8, bool):
        assert (
            of((values > 0 if dtype is bool else np.abs(values)).astype(dtype)).values.dtype
            == np.float32
        )
    assert of(values).values.dtype in (np.float32, np.float64)
    tensor = of(torch.tensor(values))
    np.testing.assert_array_equal(tensor.values, of(values).values)


def test_some_of_the_runs() -> None:
    runs = squares()
    assert len(runs[:30]) == 30 and len(runs[np.arange(7)]) == 7 and len(runs[[1, 5]]) == 2
    np.testing.assert_array_equal(runs[[5]].inputs["a"].values[0], runs.inputs["a"].values[5])
    assert len(runs) == 150
    with pytest.raises(DataError, match="19 runs; at least 20"):
        uqsonet.fit(runs[:19], 0)

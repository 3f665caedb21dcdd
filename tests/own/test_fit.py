"""`fit` and `Runs`: reproducible, and right about the operator and the data that it is given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import uqsonet
from tests.own.conftest import Linear, waves
from uqsonet import Emulator, Runs
from uqsonet.errors import DataError
from uqsonet.fields.grid import Grid
from uqsonet.fitting import choose_answer
from uqsonet.runs.runs import distance_from_gaussian, proposed_transform, split_runs

LINE = np.linspace(0, 1, 12)
of = uqsonet.FieldRuns.of


def smooth(size: int, seed: int = 0) -> np.ndarray:
    """Return smooth Gaussian functions (size, 12)."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((size, 4)) @ waves(LINE[:, None], 4, 1).T


def fit(a: object, u: object, **named: object) -> Emulator:
    return uqsonet.fit(Runs({"a": a}, {"u": u}), sensors=[3], bar=False, **named)


def squares(**named: object) -> Emulator:
    """Fit pairs that no linear operator explains."""
    a = smooth(150)
    return fit(a, a**2 + a, **named)


def saved(model: Emulator, path: Path) -> bytes:
    model.save(path / "model.safetensors")
    return (path / "model.safetensors").read_bytes()


def test_a_saved_model_gives_the_same_answers(linear_runs: Runs, tmp_path: Path) -> None:
    model = uqsonet.fit(linear_runs, sensors=[4], bar=False)
    written = saved(model, tmp_path)
    loaded = uqsonet.load(tmp_path / "model.safetensors")
    assert saved(loaded, tmp_path) == written
    law = Linear()
    sensors = law.points[[2, 60, 90]], 0.3 * law.given[[2, 60, 90]].sum(1)
    one, two = (m.condition(*sensors, noise_std=0.1) for m in (model, loaded))
    for answer in ("mean", "std", "band"):
        np.testing.assert_array_equal(getattr(one, answer)(), getattr(two, answer)())
    np.testing.assert_array_equal(one.sample(9), two.sample(9))
    assert loaded.card == model.card and str(loaded) == str(model)
    assert one.band(0.8, whole=True)[1].tolist() == two.band(0.8, whole=True)[1].tolist()


def test_another_seed_gives_another_model(tmp_path: Path) -> None:
    assert saved(squares(), tmp_path) != saved(squares(rng=1), tmp_path)


def test_a_kernel_is_taken_where_no_line_explains_the_outputs(tmp_path: Path) -> None:
    model = squares()
    assert model.card["recipe"]["branch"] == "linear and kernel"
    compared = {row["read"] for row in model.card["recipe"]["answers"]}
    assert compared == {"inputs", "outputs"}
    assert saved(squares(), tmp_path) == saved(model, tmp_path), "the same call, the same bytes"
    a = smooth(40, seed=9)
    found = model.condition(np.tile(LINE[:, None], (40, 1, 1)), a).mean()
    assert np.abs(found - a**2 - a).mean() < 0.1 * np.abs(a**2 + a).mean()


def test_a_number_of_two_kinds_is_an_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose_answer, "NAMES", ("gaussian", "mixture"))  # others take seconds
    z = np.random.default_rng(0).standard_normal(100)
    k = z / 5 + np.sign(z)
    u = k[:, None] * (1 + LINE)
    model = uqsonet.fit(Runs({"k": k}, {"u": u}), sensors=[1], bar=False)
    np.testing.assert_allclose(model.condition([0.5], k[:1]).mean(), u[0], atol=1e-4)


@given(size=st.integers(200, 5000), seed=st.integers(0, 1000))
def test_parts_of_many_runs(size: int, seed: int) -> None:
    (split,), (again,) = (split_runs(size, seed) for _ in range(2))
    parts = split.training, split.validation, split.calibration
    assert sorted(np.concatenate(parts).tolist()) == list(range(size))
    assert 34 <= len(split.validation) <= 500
    assert 30 <= len(split.calibration) <= 200
    assert len(split.training) >= size / 2
    assert all(np.array_equal(getattr(split, k), getattr(again, k)) for k in vars(split))


@given(size=st.integers(8, 199), share=st.integers(1, 4), seed=st.integers(0, 1000))
def test_few_runs_are_held_out_in_turn_with_their_groups(size: int, share: int, seed: int) -> None:
    groups = np.random.default_rng(seed).permutation(np.arange(size) // share)
    splits = split_runs(size, seed, groups)
    assert 4 <= len(splits) <= 6 or len(set(groups)) < 8
    assert sorted(np.concatenate([one.validation for one in splits])) == list(range(size))
    calibrating = np.concatenate([one.calibration for one in splits])
    assert sorted(groups[calibrating]) == sorted(set(groups)), "one run of each group"
    for one in splits:
        assert not set(groups[one.training]) & set(groups[one.validation])
        assert set(one.calibration) <= set(one.validation)


def test_calibration_runs_have_no_influence_on_the_operator() -> None:
    """Otherwise bands would hold less than they promise."""
    a = smooth(220)
    u = np.cumsum(a, 1)
    changed = u.copy()
    changed[split_runs(220, 0)[0].calibration] = 0.0
    model, other = fit(a, u), fit(a, changed)
    one, two = (m.condition(LINE[[2, 7]], [0.3, -0.1]) for m in (model, other))
    assert model.outputs[0].scale != other.outputs[0].scale  # units alone
    np.testing.assert_allclose(one.mean(), two.mean(), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(one.std(), two.std(), rtol=1e-2, atol=1e-3)


def test_missing_values() -> None:
    a = smooth(50)
    holes = a.copy()
    holes[[4, 9], [3, 7]] = np.nan
    runs = Runs({"a": of(holes, missing="drop")}, {"u": a})
    kept = np.delete(a, [4, 9], axis=0).astype(np.float32)
    for field in (runs.inputs["a"], runs.outputs["u"]):
        np.testing.assert_allclose(field.values, kept, rtol=1e-6)
    filled = of(holes, missing="fill")
    assert np.abs(filled.values - a).max() < 0.02 * a.std()
    untouched = ~np.isnan(holes)
    np.testing.assert_array_equal(filled.values[untouched], a[untouched])


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
    """Both sensors are near the seam, and the answer is smooth across it."""
    rng, x = np.random.default_rng(0), np.arange(16) / 16
    phase, size = rng.random((60, 1)), rng.standard_normal((60, 1))
    a = size * np.cos(2 * np.pi * (x + phase))
    for field in (of(a, (x,), periodic=True), of(a, x, periodic=True), of(a, periodic=True)):
        assert field.domain == Grid((0.0,), (1.0,), (16,), True)
    model = fit(of(a, periodic=True), of(a, periodic=True))
    read, wanted = np.array([0.0, 0.98]), np.array([0.99, 0.01])
    posterior = model.condition(read, size[0] * np.cos(2 * np.pi * (read + phase[0])))
    exact = size[0] * np.cos(2 * np.pi * (wanted + phase[0]))
    np.testing.assert_allclose(posterior.mean(wanted), exact, atol=0.02)
    plane = of(rng.standard_normal((30, 4, 6)), periodic=True)
    assert plane.domain.shape == (4, 6) and plane.domain.periodic
    assert plane.domain.upper == pytest.approx((1, 1))


def test_grids_that_are_given_in_several_ways_are_one() -> None:
    line = smooth(30)
    values, flat = line.reshape(30, 3, 4), line.reshape(30, 12)
    axes = np.linspace(0, 1, 3), np.linspace(0, 1, 4)
    grid = Grid((0.0, 0.0), (1.0, 1.0), (3, 4))
    pairs = [(values, None), (values, axes), (values, list(axes)), (flat, axes), (values, grid)]
    for field in (of(*pair) for pair in pairs):
        assert field.domain == grid
        np.testing.assert_array_equal(field.values, of(values).values)
    for points in (None, LINE, (LINE,), LINE[:, None]):
        assert of(line, points).domain == Grid((0.0,), (1.0,), (12,))


def test_the_transform_that_is_proposed_and_chosen() -> None:
    gaussian = smooth(200)
    laws = {
        "identity": [gaussian, gaussian + 50, np.where(gaussian > 1, 9.0, 0.1)],
        "log": [np.exp(gaussian), 1e-12 * np.exp(gaussian)],
    }
    for expected, fields in laws.items():
        assert [proposed_transform(of(values)) for values in fields] == [expected] * len(fields)
    assert proposed_transform(of(np.exp(gaussian), transform="identity")) == "identity"
    # An operator that is linear in the logarithm.
    model = fit(np.exp(gaussian), gaussian)
    assert model.inputs[0].transform.name == "log"
    posterior = model.condition(LINE[[1, 4, 6, 10]], np.exp(gaussian[0, [1, 4, 6, 10]]))
    np.testing.assert_allclose(posterior.mean(), gaussian[0], atol=0.02)


def test_distance_from_a_gaussian_law(linear_runs: Runs) -> None:
    generator = np.random.default_rng(4)
    for size in (50, 1000):
        chance = 1.73 / np.sqrt(size)
        normal = generator.standard_normal((size, 8))
        heavy = normal / np.sqrt(generator.chisquare(2, (size, 1)) / 2)
        assert distance_from_gaussian(torch.tensor(normal)) < chance
        assert distance_from_gaussian(torch.tensor(heavy / heavy.std(0))) > chance
    # A field has modes up to its rank; those beyond are rounding, which is not Gaussian.
    for one in linear_runs.describe().fields:
        assert one.distance < one.chance


@pytest.mark.parametrize(
    ("power", "scales", "shift"),
    [(2, (1e-9, 1e9), 0.0), (1, (1.0, 1.0), 101_325.0)],  # an absolute pressure varies a little
    ids=["units", "offset"],
)
def test_units_and_offsets_do_not_matter(
    power: int, scales: tuple[float, float], shift: float
) -> None:
    a, (of_a, of_u) = smooth(150), scales
    plain = fit(a, a**power)
    changed = fit(of_a * a + shift, of(of_u * a**power + shift, units="Pa"))
    assert changed.outputs[0].label == "u [Pa]"
    y = np.array([0.5, -0.2])
    one = plain.condition(LINE[[2, 8]], y, noise_std=0.1)
    two = changed.condition(LINE[[2, 8]], of_a * y + shift, noise_std=0.1 * of_a)
    rounding = 0.05 if shift else 1e-3  # of single precision
    np.testing.assert_allclose((two.mean() - shift) / of_u, one.mean(), atol=rounding)
    np.testing.assert_allclose(two.std() / of_u, one.std(), atol=rounding)


def test_a_field_that_is_zero_somewhere_is_accepted() -> None:
    """A boundary condition: no variance at some points."""
    u = smooth(100) * LINE * (1 - LINE)
    lower, upper = fit(u, u.copy()).condition(LINE[[3, 6]], u[0, [3, 6]]).band(0.9)
    assert abs(lower[0]) < 1e-6 and abs(upper[-1]) < 1e-6
    assert (upper - lower)[1:-1].min() > 0
    assert np.isfinite([*lower, *upper]).all()


def test_numbers_of_any_type_and_some_of_the_runs() -> None:
    values = np.abs(np.round(10 * smooth(30)))
    for dtype in (np.float16, np.float32, np.int64, np.uint8, bool):
        assert of((values % 2).astype(dtype)).values.dtype == np.float32
    np.testing.assert_array_equal(of(torch.tensor(values)).values, of(values).values)
    runs = Runs({"a": smooth(150)}, {"u": smooth(150)})
    assert len(runs[:30]) == 30 and len(runs[np.arange(7)]) == 7 and len(runs[[1, 5]]) == 2
    np.testing.assert_array_equal(runs[[5]].inputs["a"].values[0], runs.inputs["a"].values[5])
    with pytest.raises(DataError, match="7 runs; at least 8"):
        uqsonet.fit(runs[:7])

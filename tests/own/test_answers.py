"""`FieldPosterior`: kinds of arrays, shapes, seeds, consistency, memory, warnings."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import uqsonet
from tests.own.conftest import Linear, quiet
from uqsonet.errors import ObservationWarning

LAW = Linear()
PLACES = LAW.points[[3, 40, 77, 120]]
VALUES = (0.5 * LAW.given @ np.array([1.0, -1, 0.5, 0.3, -0.8, 0.2]))[[3, 40, 77, 120]]
WANTED = np.array([[0.3, 0.4], [0.5, 0.5], [0.7, 0.2]])


@pytest.fixture(scope="module")
def answer(linear: uqsonet.Emulator) -> uqsonet.FieldPosterior:
    return linear.condition(PLACES, VALUES)


@pytest.fixture(scope="module")
def answers(linear: uqsonet.Emulator) -> uqsonet.FieldPosterior:
    """Of 100 sets; more than are worked on at a time."""
    rng = np.random.default_rng(1)
    at = np.stack([rng.choice(150, 4, replace=False) for _ in range(100)])
    a = rng.standard_normal((100, 6)) @ LAW.given.T
    return quiet(linear, LAW.points[at], np.take_along_axis(a, at, 1))


def test_the_kind_of_array_comes_back(linear: uqsonet.Emulator) -> None:
    numpy = linear.condition(PLACES, VALUES)
    tensors = linear.condition(torch.tensor(PLACES), torch.tensor(VALUES))
    frame = pd.DataFrame(WANTED, columns=["x", "y"], index=["a", "b", "c"])
    expected = numpy.mean(WANTED)
    assert isinstance(numpy.mean(), np.ndarray) and isinstance(tensors.mean(), torch.Tensor)
    for posterior in (numpy, tensors):
        assert isinstance(posterior.mean(WANTED), np.ndarray)
        assert isinstance(posterior.std(torch.tensor(WANTED)), torch.Tensor)
        series = posterior.mean(frame)
        assert isinstance(series, pd.Series)
        assert list(series.index) == ["a", "b", "c"] and series.name == "p"
        np.testing.assert_allclose(series.to_numpy(), expected)
    np.testing.assert_allclose(numpy.mean(frame[["y", "x"]]).to_numpy(), expected)
    assert isinstance(numpy.band(0.5, frame)[0], pd.Series)


def test_sensors_of_every_kind_are_the_same_sensors(
    linear: uqsonet.Emulator, answer: uqsonet.FieldPosterior, tmp_path: Path
) -> None:
    frame = pd.DataFrame(PLACES, columns=["x", "y"]).assign(value=VALUES)
    frame.to_csv(tmp_path / "sensors.csv", index=False)
    columns = {name: frame[name].tolist() for name in frame}
    two = pd.concat([frame.assign(set="one"), frame[:2].assign(set="two")])
    sets = [
        linear.condition(frame),
        linear.condition(tmp_path / "sensors.csv"),
        linear.condition(columns),
        linear.condition((PLACES, VALUES)),
        linear.condition(a=(PLACES, VALUES)),
        linear.condition({"a": (PLACES, VALUES)}),
        linear.condition(PLACES.tolist(), VALUES.tolist()),
        linear.condition(torch.tensor(PLACES), torch.tensor(VALUES), torch.ones(4, dtype=bool)),
    ]
    for posterior in sets:
        np.testing.assert_allclose(np.asarray(posterior.mean()), answer.mean(), atol=1e-10)
    short = linear.condition(PLACES[:2], VALUES[:2]).mean()
    for both in (linear.condition(two), linear.condition([frame, (PLACES[:2], VALUES[:2])])):
        assert both.mean().shape == (2, 150)
        np.testing.assert_allclose(both.mean(), [answer.mean(), short], atol=1e-10)


def test_shapes(answer: uqsonet.FieldPosterior, answers: uqsonet.FieldPosterior) -> None:
    for posterior, lead in ((answer, ()), (answers, (100,))):
        assert posterior.mean().shape == posterior.std().shape == (*lead, 150)
        assert posterior.mean(WANTED).shape == (*lead, 3)
        assert posterior.covariance(WANTED).shape == (*lead, 3, 3)
        assert posterior.sample(7, WANTED).shape == (*lead, 7, 3)
        assert posterior.quantile(0.5, WANTED, 100).shape == (*lead, 3)
        assert posterior.quantile([0.5], WANTED, 100).shape == (*lead, 1, 3)
        assert posterior.quantile([0.1, 0.9], WANTED, 100).shape == (*lead, 2, 3)
        assert [end.shape for end in posterior.band(0.8, WANTED, "plain")] == [(*lead, 3)] * 2
        assert posterior.mean(WANTED[:0]).shape == (*lead, 0)


def test_seeds(answer: uqsonet.FieldPosterior) -> None:
    first, again, other = (answer.sample(5, seed=s) for s in (3, 3, 4))
    assert np.array_equal(first, again) and not np.allclose(first, other)
    q = [answer.quantile(0.9, size=200, seed=s) for s in (3, 3, 4)]
    assert np.array_equal(q[0], q[1]) and not np.array_equal(q[0], q[2])
    drawn = answer.sample(5, seed=np.random.default_rng(1))
    assert np.array_equal(drawn, answer.sample(5, seed=np.random.default_rng(1)))
    assert np.array_equal(answer.band(0.9)[0], answer.band(0.9)[0])


def test_samples_have_the_moments_and_quantiles_that_are_stated(
    answer: uqsonet.FieldPosterior,
) -> None:
    samples, std = answer.sample(20_000, WANTED, seed=2), answer.std(WANTED)
    np.testing.assert_allclose(samples.mean(0), answer.mean(WANTED), atol=0.03 * std.max())
    np.testing.assert_allclose(samples.std(0), std, rtol=0.03)
    covariance = answer.covariance(WANTED)
    np.testing.assert_allclose(covariance.diagonal(), std**2, rtol=1e-9)
    np.testing.assert_allclose(np.cov(samples.T), covariance, atol=0.05 * std.max() ** 2)
    levels = [0.0, 0.05, 0.5, 0.8, 1.0]
    found = answer.quantile(levels, WANTED, size=20_000, seed=2)
    spread = 0.05 * std.max()
    np.testing.assert_allclose(found[1:4], np.quantile(samples, levels[1:4], axis=0), atol=spread)
    assert (np.diff(found, axis=0) > 0).all()


def test_without_sensors_it_is_the_law_of_the_runs(
    linear: uqsonet.Emulator, linear_runs: uqsonet.Runs
) -> None:
    u = linear_runs.outputs["p"].values
    prior = linear.condition()
    for nothing in (prior, linear.condition([], []), linear.condition(np.zeros((0, 2)), [])):
        assert np.abs(nothing.mean() - u.mean(0)).max() < 0.3 * u.std()
        np.testing.assert_allclose(nothing.std(), prior.std())
    assert np.median(np.abs(prior.std() / u.std(0) - 1)) < 0.05
    assert (linear.condition(PLACES, VALUES).std() < 1.02 * prior.std()).all()


def test_order_repetition_padding_and_batches_change_nothing(
    linear: uqsonet.Emulator, answer: uqsonet.FieldPosterior
) -> None:
    order = [2, 0, 3, 1]
    same = [
        linear.condition(PLACES[order], VALUES[order]),
        linear.condition(PLACES[[0, 1, 2, 3, 1]], VALUES[[0, 1, 2, 3, 1]]),
        linear.condition(
            np.concatenate([np.full((2, 2), np.nan), PLACES]),
            np.concatenate([[np.nan, -1e9], VALUES]),
            np.array([False, False, True, True, True, True]),
        ),
    ]
    for posterior in same:
        np.testing.assert_allclose(posterior.mean(), answer.mean(), atol=1e-6)
        np.testing.assert_allclose(posterior.std(), answer.std(), atol=1e-6)


def test_a_batch_is_its_sets_one_by_one(
    linear: uqsonet.Emulator, answers: uqsonet.FieldPosterior
) -> None:
    sets = answers.sensors
    mean, std, (lower, upper) = answers.mean(), answers.std(), answers.band(0.8, kind="plain")
    for k in range(0, 100):
        one = quiet(linear, sets.locations[k].numpy(), sets.values[k].numpy())
        np.testing.assert_allclose(one.mean(), mean[k], atol=1e-9)
        np.testing.assert_allclose(one.std(), std[k], atol=1e-9)
        if k % 25 == 0:  # drawn functions differ; what they estimate does not
            for alone, among in zip(one.band(0.8, kind="plain"), (lower[k], upper[k]), strict=True):
                np.testing.assert_allclose(alone, among, atol=0.3 * std[k].max())


def test_noise_of_each_sensor_in_a_ragged_batch(linear: uqsonet.Emulator) -> None:
    """Padding, zero noise and different noise side by side, against the sets one by one."""
    sets = [(PLACES, VALUES, [0.0, 0.3, 0.0, 1.0]), (PLACES[:2], VALUES[:2], [0.2, 0.1]),
            (PLACES[1:], VALUES[1:], 0.0)]  # fmt: skip
    both = linear.condition(sets)
    for k, one in enumerate(sets):
        alone = linear.condition(one)
        np.testing.assert_allclose(both.mean()[k], alone.mean(), atol=1e-5)
        np.testing.assert_allclose(both.std()[k], alone.std(), atol=1e-5)


MEMORY = """
import resource, sys, warnings
import numpy as np, uqsonet
warnings.simplefilter("ignore")
model = uqsonet.load(sys.argv[1])
rng = np.random.default_rng(0)
points = 0.1 + 0.8 * rng.random((1000, 2))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
if sys.argv[2] == "mean":
    sets = 0.1 + 0.8 * rng.random((2000, 4, 2)), 0.1 * rng.standard_normal((2000, 4))
    found = model.condition(*sets).mean(points)
else:
    found = model.condition(points[:4], np.zeros(4)).sample(20_000, points)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) / 1024**2 - found.nbytes / 1024**3)
"""


@pytest.mark.parametrize("what", ["mean", "sample"])
def test_memory(linear: uqsonet.Emulator, tmp_path: Path, what: str) -> None:
    """2,000 sets, or 20,000 functions, at 1,000 points: less than 2 GB beyond the result."""
    linear.save(tmp_path / "model.safetensors")
    command = [sys.executable, "-c", MEMORY, str(tmp_path / "model.safetensors"), what]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 2


def test_ordinary_sensors_give_no_warning(linear: uqsonet.Emulator) -> None:
    rng = np.random.default_rng(7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for count in (1, 4, 30):
            at = rng.choice(150, count, replace=False)
            linear.condition(LAW.points[at], LAW.given[at] @ rng.standard_normal(6))
        linear.condition()


def test_unusual_sensors_give_a_warning_that_says_which(linear: uqsonet.Emulator) -> None:
    high = linear.inputs[0].highest
    values = np.where(np.arange(4) == 2, 3 * high, VALUES)
    with pytest.warns(ObservationWarning) as caught:
        linear.condition(PLACES, values)
    first, second = (str(w.message) for w in caught)
    assert f"sensor 2 of a reads {3 * high:g}; training saw" in first and "improbable" in second
    zigzag = np.tile([1.0, -1.0], 15)  # every value is ordinary, all of them together are not
    with pytest.warns(ObservationWarning, match="improbable.* where about 30 is expected"):
        linear.condition(LAW.points[:30], zigzag)


def test_far_from_the_points_of_a_cloud_there_is_a_warning() -> None:
    rng = np.random.default_rng(3)
    points = rng.random((100, 2))
    points = points[((points - 0.5) ** 2).sum(1) > 0.12]  # a ring: nothing near the middle
    xi = rng.standard_normal((100, 3))
    given = np.cos(points @ rng.standard_normal((2, 3)))
    runs = uqsonet.Runs({"a": (xi @ given.T, points)}, {"p": (xi @ given.T, points)})
    model = uqsonet.fit(runs, 0, sensors=[3], bar=False)
    with pytest.warns(ObservationWarning, match=r"a sensor of a at \[0.5, 0.5\] is .* apart"):
        model.condition([[0.5, 0.5]], [0.1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.condition(points[:2], given[:2] @ xi[0])


def test_pictures_of_any_dimension(linear: uqsonet.Emulator, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    linear.condition(PLACES, VALUES).plot(tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 10_000
    axis = np.linspace(0, 1, 6)
    rows = np.random.default_rng(0).standard_normal((40, 6))
    model = uqsonet.fit(uqsonet.Runs({"a": rows}, {"p": rows}), 0, sensors=[2], bar=False)
    model.condition(axis[:2], rows[0, :2]).plot(tmp_path / "b.pdf", level=0.5)
    assert (tmp_path / "b.pdf").read_bytes().startswith(b"%PDF")


def test_as_xarray(linear: uqsonet.Emulator, answer: uqsonet.FieldPosterior) -> None:
    pytest.importorskip("xarray")
    found = answer.to_xarray(0.8)
    np.testing.assert_array_equal(found["p_mean"].to_numpy(), answer.mean())
    np.testing.assert_array_equal(found["p_lower"].to_numpy(), answer.band(0.8)[0])
    assert found.attrs == {"level": 0.8, "sensors": 4}

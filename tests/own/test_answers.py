"""`FieldPosterior`: kinds of arrays, shapes, seeds, consistency, memory, warnings."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import uqsonet
from tests.own.conftest import Linear, quiet
from uqsonet import Emulator, FieldPosterior, Runs, WeightedPoints
from uqsonet.errors import ConfigError, ObservationError, ObservationWarning
from uqsonet.fields.cloud import PointCloud, triangles

LAW = Linear()
PLACES = LAW.points[[3, 40, 77, 120]]
VALUES = (0.5 * LAW.given @ np.array([1.0, -1, 0.5, 0.3, -0.8, 0.2]))[[3, 40, 77, 120]]
WANTED = np.array([[0.3, 0.4], [0.5, 0.5], [0.7, 0.2]])


@pytest.fixture(scope="module")
def answer(linear: Emulator) -> FieldPosterior:
    return linear.condition(PLACES, VALUES)


@pytest.fixture(scope="module")
def answers(linear: Emulator) -> FieldPosterior:
    """Of 100 sets; more than are worked on at a time."""
    rng = np.random.default_rng(1)
    at = np.stack([rng.choice(150, 4, replace=False) for _ in range(100)])
    a = rng.standard_normal((100, 6)) @ LAW.given.T
    return quiet(linear, LAW.points[at], np.take_along_axis(a, at, 1))


def test_the_kind_of_array_comes_back(linear: Emulator, answer: FieldPosterior) -> None:
    tensors = linear.condition(torch.tensor(PLACES), torch.tensor(VALUES))
    frame = pd.DataFrame(WANTED, columns=["x", "y"], index=["a", "b", "c"])
    expected = answer.mean(WANTED)
    assert isinstance(answer.mean(), np.ndarray) and isinstance(tensors.mean(), torch.Tensor)
    together = linear.condition((torch.tensor(PLACES), torch.tensor(VALUES)))
    assert torch.equal(together.mean(), tensors.mean())
    for posterior in (answer, tensors):
        assert isinstance(posterior.mean(WANTED), np.ndarray)
        assert isinstance(posterior.std(torch.tensor(WANTED)), torch.Tensor)
        series = posterior.mean(frame)
        assert isinstance(series, pd.Series)
        assert list(series.index) == ["a", "b", "c"] and series.name == "p"
        np.testing.assert_allclose(series.to_numpy(), expected)
    np.testing.assert_allclose(answer.mean(frame[["y", "x"]]).to_numpy(), expected)
    assert isinstance(answer.band(0.5, frame)[0], pd.Series)


def test_sensors_of_every_kind_are_the_same_sensors(
    linear: Emulator, answer: FieldPosterior, tmp_path: Path
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
    padded = np.concatenate([np.full((2, 2), np.nan), PLACES]), [np.nan, -1e9, *VALUES]
    again = [2, 0, 3, 1, 0]  # in another order, and one of them twice
    for sensors in ((*padded, np.array([False] * 2 + [True] * 4)), (PLACES[again], VALUES[again])):
        posterior = linear.condition(*sensors)
        np.testing.assert_allclose(posterior.mean(), answer.mean(), atol=1e-6)
        np.testing.assert_allclose(posterior.std(), answer.std(), atol=1e-6)
    short = linear.condition(PLACES[:2], VALUES[:2]).mean()
    for both in (linear.condition(two), linear.condition([frame, (PLACES[:2], VALUES[:2])])):
        assert both.mean().shape == (2, 150)
        np.testing.assert_allclose(both.mean(), [answer.mean(), short], atol=1e-10)


def test_columns_of_places_go_by_name(linear: Emulator, answer: FieldPosterior) -> None:
    swapped, other = pd.DataFrame(PLACES, columns=["x", "y"])[["y", "x"]], np.eye(4)
    weighted = WeightedPoints(swapped, other), VALUES
    batch, mask = np.stack([VALUES, 2 * VALUES]), np.ones((2, 4), dtype=bool)
    for posterior in (
        linear.condition(swapped, VALUES),
        linear.condition((swapped, VALUES)),
        linear.condition(a=(swapped, VALUES)),
        linear.condition([(swapped, VALUES)]),
        linear.condition(swapped.set_index(["y", "x"]), VALUES),
        linear.condition(swapped, batch, mask),
        linear.condition(*weighted),
        linear.condition(a=weighted),
    ):
        first = np.atleast_2d(posterior.mean())[0]
        np.testing.assert_allclose(first, answer.mean(), atol=1e-10)
    given = linear.place(1, given=(swapped, VALUES))
    np.testing.assert_array_equal(given.places, linear.place(1, given=(PLACES, VALUES)).places)
    for name in ("one", "value"):
        with pytest.raises(ObservationError, match=rf"columns y, x, {name}; .*\(x, y\) and no"):
            linear.condition(swapped.assign(**{name: 1.0}), VALUES)


TABLE = pd.DataFrame(np.eye(4))
STRANGE = pd.DataFrame(PLACES, columns=["a", "b"])


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda m: m.condition(STRANGE, VALUES), "locations: columns a, b; .*coordinates of a"),
        (lambda m: m.condition(a=(STRANGE, VALUES)), "locations: columns a, b; .*coordinates of a"),
        (lambda m: m.condition(WeightedPoints(STRANGE, np.eye(4)), VALUES), "points: columns a, b"),
        (lambda m: m.condition(WeightedPoints(PLACES, TABLE), VALUES), r"weights: a table \(0, 1"),
        (lambda m: m.condition(PLACES, TABLE), r"values: a table \(0, 1, 2, 3\)"),
        (lambda m: m.condition(PLACES, VALUES, TABLE > 0), r"mask: a table \(0, 1, 2, 3\)"),
        (lambda m: m.condition(PLACES, VALUES, noise_std=TABLE), r"noise_std: a table \(0, 1"),
        (lambda m: m.place(1, avoid={"x": (0, 1)}), "avoid is no argument any more: leave places"),
        (lambda m: m.validate(None, pairs=None), "pairs is no argument any more"),
        (lambda m: m.condition(PLACES, VALUES).plot(truth=(STRANGE, VALUES)), "no column 'x'"),
    ],
)
def test_columns_that_have_no_name_here_are_refused(linear: Emulator, ask, message) -> None:
    with pytest.raises((ObservationError, ConfigError), match=message):
        ask(linear)


@pytest.mark.parametrize("noise", [1e6, 1e30])
def test_a_sensor_that_its_noise_switches_off_leaves_exact_ones_exact(
    linear: Emulator, noise: float
) -> None:
    levels = np.array([0.0, noise, 0.0, 0.0])
    for field in ("a", "p"):
        found = quiet(linear, **{field: (PLACES, VALUES, levels)})
        alone = quiet(linear, **{field: (PLACES[levels == 0], VALUES[levels == 0])})
        for one, other in ((found["a"], alone["a"]), (found["p"], alone["p"])):
            np.testing.assert_allclose(one.mean(), other.mean(), atol=1e-6)
            np.testing.assert_allclose(one.std(), other.std(), atol=1e-6)


def test_noise_is_the_same_however_it_is_stated(linear: Emulator, answer: FieldPosterior) -> None:
    noise = np.array([0.1, 0.5, 0.2, 0.3])
    frame = pd.DataFrame(PLACES, columns=["x", "y"]).assign(value=VALUES, noise_std=noise)
    expected = linear.condition(PLACES, VALUES, noise_std=noise)
    assert np.abs(expected.mean() - answer.mean()).max() > 0.01, "noise tells nothing here"
    for posterior in (
        linear.condition((PLACES, VALUES, noise)),
        linear.condition((PLACES, VALUES), noise_std=noise),
        linear.condition(a=(PLACES, VALUES, noise)),
        linear.condition({"a": (PLACES, VALUES, noise)}),
        linear.condition(frame),
    ):
        np.testing.assert_allclose(posterior.mean(), expected.mean(), atol=1e-10)
        np.testing.assert_allclose(posterior.std(), expected.std(), atol=1e-10)


def test_shapes(answer: FieldPosterior, answers: FieldPosterior) -> None:
    for posterior, lead in ((answer, ()), (answers, (100,))):
        assert posterior.mean().shape == posterior.std().shape == (*lead, 150)
        assert posterior.mean(WANTED).shape == (*lead, 3)
        assert posterior.mean(WANTED[:0]).shape == (*lead, 0)
        assert posterior.covariance(WANTED).shape == (*lead, 3, 3)
        assert posterior.sample(7, WANTED).shape == (*lead, 7, 3)
        assert posterior.quantile(0.5, WANTED, 100).shape == (*lead, 3)
        assert posterior.quantile([0.1, 0.9], WANTED, 100).shape == (*lead, 2, 3)
        assert [end.shape for end in posterior.band(0.8, WANTED, "plain")] == [(*lead, 3)] * 2


def test_seeds(answer: FieldPosterior) -> None:
    for ask in (answer.sample, lambda size, rng: answer.quantile(0.9, size=size, rng=rng)):
        first, again, other = (ask(50, rng=s) for s in (3, 3, 4))
        assert np.array_equal(first, again) and not np.array_equal(first, other)
    samples = answer.sample(20_000, rng=2)
    np.testing.assert_allclose(samples.mean(0), answer.mean(), atol=0.05 * answer.std().max())
    np.testing.assert_allclose(samples.std(0), answer.std(), rtol=0.03)
    assert np.array_equal(answer.band(0.9)[0], answer.band(0.9)[0])


@pytest.mark.parametrize(
    "make",
    [np.random.default_rng, np.random.SeedSequence, torch.Generator().manual_seed],
)
def test_a_seed_may_be_a_sequence_or_a_generator(
    answer: FieldPosterior, make: Callable[[int], Any]
) -> None:
    first, again, other = (answer.sample(5, rng=make(n)) for n in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    generator = make(1)
    drawn, next_drawn = (answer.sample(5, rng=generator) for _ in range(2))
    same = isinstance(generator, np.random.SeedSequence)  # it has no state that moves on
    assert np.array_equal(drawn, first) and np.array_equal(drawn, next_drawn) == same
    with pytest.raises(ConfigError, match=r"seed \(rng\) must be .* found None"):
        answer.sample(5, rng=None)


def test_a_seed_by_its_earlier_name_still_counts(answer: FieldPosterior) -> None:
    with pytest.warns(DeprecationWarning, match="seed= is rng= now"):
        drawn = answer.sample(5, seed=4)  # pyright: ignore[reportCallIssue]
    np.testing.assert_array_equal(drawn, answer.sample(5, rng=4))
    with pytest.warns(DeprecationWarning), pytest.raises(ConfigError, match="found -1"):
        uqsonet.fit(uqsonet.Runs({"a": np.eye(9)}), seed=-1)  # pyright: ignore[reportCallIssue]


def test_without_sensors_it_is_the_law_of_the_runs(
    linear: Emulator, answer: FieldPosterior, linear_runs: Runs
) -> None:
    u = linear_runs.outputs["p"].values
    prior = linear.condition()
    for nothing in (prior, linear.condition([], []), linear.condition(np.zeros((0, 2)), [])):
        assert np.abs(nothing.mean() - u.mean(0)).max() < 0.3 * u.std()
        np.testing.assert_allclose(nothing.std(), prior.std())
    assert np.median(np.abs(prior.std() / u.std(0) - 1)) < 0.05
    assert (answer.std() < 1.02 * prior.std()).all()


def test_a_batch_is_its_sets_one_by_one(linear: Emulator, answers: FieldPosterior) -> None:
    sets = answers.sensors
    mean, std, (lower, upper) = answers.mean(), answers.std(), answers.band(0.8, kind="plain")
    for k in range(0, 100, 9):
        one = quiet(linear, sets.locations[k].numpy(), sets.values[k].numpy())
        np.testing.assert_allclose(one.mean(), mean[k], atol=1e-9)
        np.testing.assert_allclose(one.std(), std[k], atol=1e-9)
        # Drawn functions differ; what they estimate does not.
        for alone, among in zip(one.band(0.8, kind="plain"), (lower[k], upper[k]), strict=True):
            np.testing.assert_allclose(alone, among, atol=0.3 * std[k].max())


def test_only_unusual_sensors_give_a_warning_that_says_which(linear: Emulator) -> None:
    rng = np.random.default_rng(7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for count in (0, 1, 4, 30):
            at = rng.choice(150, count, replace=False)
            linear.condition(LAW.points[at], LAW.given[at] @ rng.standard_normal(6))
    high = linear.inputs[0].highest
    with pytest.warns(ObservationWarning) as caught:
        linear.condition(PLACES, np.where(np.arange(4) == 2, 3 * high, VALUES))
    first, second = (str(w.message) for w in caught)
    assert f"sensor 2 of a reads {3 * high:g}, outside the range that training saw" in first
    assert "improbable" in second
    zigzag = np.tile([1.0, -1.0], 15)  # every value is ordinary, all of them together are not
    with pytest.warns(ObservationWarning, match="improbable under.*probability"):
        linear.condition(LAW.points[:30], zigzag)


def test_far_from_the_points_of_a_cloud_there_is_a_warning() -> None:
    rng = np.random.default_rng(3)
    points = rng.random((100, 2))
    points = points[((points - 0.5) ** 2).sum(1) > 0.12]  # a ring: nothing near the middle
    xi = rng.standard_normal((100, 3))
    given = np.cos(points @ rng.standard_normal((2, 3)))
    runs = uqsonet.Runs({"a": (xi @ given.T, points)}, {"p": (xi @ given.T, points)})
    model = uqsonet.fit(runs, sensors=[3], bar=False)
    with pytest.warns(ObservationWarning, match=r"a sensor of a at \[0.5, 0.5\] is .* apart"):
        model.condition([[0.5, 0.5]], [0.1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.condition(points[:2], given[:2] @ xi[0])


def test_a_picture_is_drawn_at_the_points_asked_for(answer: FieldPosterior) -> None:
    figure = answer.plot(points=WANTED)
    (axes,) = [one for one in figure.axes if one.get_title() == "mean"]
    shown = axes.collections[0].get_array().compressed()
    np.testing.assert_allclose(np.sort(shown), np.sort(answer.mean(WANTED)))


def test_pictures_of_any_dimension(answer: FieldPosterior, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    answer.plot(tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 10_000
    rows = np.random.default_rng(0).standard_normal((40, 6))
    model = uqsonet.fit(uqsonet.Runs({"a": rows}, {"p": rows}), sensors=[2], bar=False)
    model.condition([0, 0.2], rows[0, :2]).plot(tmp_path / "b.pdf", level=0.5)
    assert (tmp_path / "b.pdf").read_bytes().startswith(b"%PDF")


def area_of(points: np.ndarray) -> float:
    """Return the area that the triangles of points (n, 2) cover."""
    mesh, inside = triangles(points)
    corners = points[mesh.simplices[inside]]
    return float(np.abs(np.linalg.det(corners[:, 1:] - corners[:, :1])).sum() / 2)


def test_no_colour_stands_where_a_scattered_field_is_not() -> None:
    rng = np.random.default_rng(2)
    corner = 2 * rng.random((900, 2))
    corner = corner[(corner < 1).any(1)]  # an L of area 3 in a square
    area = area_of(corner)
    assert 2.6 < area < 3.06
    assert area_of(corner * [1, 1000]) == pytest.approx(1000 * area)  # whatever the units
    assert 0.85 < area_of(rng.random((400, 2))) < 1  # gaps by chance are no holes
    fine = np.geomspace(0.01, 1, 40)  # steps of a mesh that grow by a hundred
    graded = np.stack(np.meshgrid(fine, np.linspace(0, 1, 40)), -1).reshape(-1, 2)
    assert area_of(graded) == pytest.approx(0.99, rel=1e-3)
    cloud = PointCloud.of(corner)
    places = torch.tensor([[0.5, 0.5], [1.5, 0.5], [1.5, 1.5], [1.15, 1.15]]).double()
    assert cloud.holds(places).tolist() == [True, True, False, False]


def test_readings_are_drawn_in_the_colours_of_the_map_that_they_are_of(linear: Emulator) -> None:
    pytest.importorskip("matplotlib")
    figure = linear.condition(a=(PLACES, VALUES), p=([[0.5, 0.4]], [0.3]))["p"].plot()
    shown = {axes.get_title(): axes for axes in figure.axes if axes.get_title()}
    for title, places, values in (
        ("4 sensors of a, and its mean", PLACES, VALUES), ("mean", [[0.5, 0.4]], [0.3]),
    ):  # fmt: skip
        field, *_, readings = shown[title].collections
        np.testing.assert_array_equal(readings.get_offsets(), places)
        np.testing.assert_allclose(readings.get_array(), values)
        assert readings.get_clim() == field.get_clim() and readings.cmap == field.cmap
    other = shown["one function of the law"].collections[0]
    assert other.get_clim() == shown["mean"].collections[0].get_clim()
    bars = [axes.get_ylabel() for axes in figure.axes if not axes.get_title()]
    assert sorted(bars) == ["a", "p", "p"]  # one of the mean of a, one of p, one of its std


def test_a_number_is_drawn_as_histograms_and_a_mesh_without_its_hole() -> None:
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(0)
    angle, radius = np.meshgrid(np.linspace(0, 2 * np.pi, 40, False), np.linspace(1, 3, 12))
    ring = (radius * np.stack([np.cos(angle), np.sin(angle)])).reshape(2, -1).T
    waves = rng.standard_normal((60, 3)) @ np.stack([ring[:, 0], ring[:, 1], ring.prod(1)])
    peak = waves.max(1, keepdims=True)
    model = uqsonet.fit(uqsonet.Runs({"a": (waves, ring)}, {"peak": peak}), sensors=[2], bar=False)
    answer = model.condition(ring[[30, 200]], waves[0, [30, 200]])
    axes = answer["peak"].plot(truth=peak[0]).axes[1]
    names = ["without sensors", "given the sensors", "90 % band", "mean", "truth"]
    assert [one.get_text() for one in axes.get_legend().get_texts()] == names
    mean, truth = (line.get_xdata()[0] for line in axes.lines)
    assert (mean, truth) == (answer["peak"].mean()[0], peak[0, 0])
    assert area_of(ring) == pytest.approx(8 * np.pi, rel=0.01)
    assert answer["a"].plot().axes[1].collections[0].__class__.__name__ == "TriMesh"


def test_a_picture_of_runs_has_a_row_for_each_field(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rng, points = np.random.default_rng(0), np.random.default_rng(1).random((30, 2))
    line, cloud, box = (rng.standard_normal((2, *shape)) for shape in ((6,), (30,), (4, 5, 3)))
    runs = uqsonet.Runs({"a": line, "b": (cloud, points)}, {"p": box})
    panels = runs.plot(tmp_path / "runs.svg").axes
    assert [one.get_title() for one in panels if one.get_title()] == [
        f"{name}, run {number}" for name in "abp" for number in range(2)
    ]
    drawn = panels[0].lines[0].get_xydata()
    np.testing.assert_allclose(drawn[:, 1], line[0])
    shown = panels[4].collections[0].get_array()
    np.testing.assert_allclose(shown, box[0, :, :, 1].T)
    assert (tmp_path / "runs.svg").stat().st_size > 10_000


def test_as_xarray(answer: FieldPosterior) -> None:
    pytest.importorskip("xarray")
    found = answer.to_xarray(0.8)
    np.testing.assert_array_equal(found["p_mean"].to_numpy(), answer.mean())
    np.testing.assert_array_equal(found["p_lower"].to_numpy(), answer.band(0.8)[0])
    assert found.attrs == {"level": 0.8, "sensors": 4}


def test_the_probability_of_more_than_a_threshold(answer: FieldPosterior) -> None:
    mean, std = answer.mean(), answer.std()
    limits = [0.0, float(mean.mean())]
    found = answer.exceedance(limits)
    assert found.shape == (2, len(mean)) and answer.exceedance(0.0).shape == mean.shape
    free = std > 1e-3 * std.max()
    for limit, shares in zip(limits, found, strict=True):
        expected = 1 - torch.special.ndtr(torch.as_tensor((limit - mean) / std)).numpy()
        assert np.abs(shares - expected)[free].max() < 0.03

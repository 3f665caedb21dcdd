"""Sensors over time: exact where the step is linear, close to that elsewhere, and honest bands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray
from typer.testing import CliRunner

import uqsonet
from uqsonet.cli import app
from uqsonet.dynamics import conformal
from uqsonet.dynamics.filters import (
    EnsemblePath,
    GaussianPath,
    LeftOver,
    Library,
    Model,
    Readings,
    _changed,
)
from uqsonet.dynamics.steps import Step
from uqsonet.errors import DataError, ObservationError, ObservationWarning
from uqsonet.show.over_time import _frames

X = np.linspace(0, 1, 24)
AT = X[[3, 10, 17]]


def simulate(runs: int, steps: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return fields (N, T, 24) that move and are driven by noise, and what drives them, by run."""
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky(np.exp(-(((X[:, None] - X) / 0.2) ** 2) / 2) + 1e-6 * np.eye(24))
    force, u = rng.uniform(0, 2, runs), rng.standard_normal((runs, 24)) @ root.T
    found = [u]
    for _ in range(steps - 1):
        drawn = rng.standard_normal((runs, 24)) @ root.T
        u = 0.8 * u + 0.3 * force[:, None] * np.sin(np.pi * X) + 0.3 * drawn
        found.append(u)
    return np.stack(found, 1), force


@pytest.fixture(scope="module")
def model() -> uqsonet.Dynamics:
    """Return a model of 90 runs of 12 instants."""
    u, force = simulate(90, 12, 0)
    runs = uqsonet.Trajectories({"u": (u, X)}, 0.5 * np.arange(12), constants={"force": force})
    return uqsonet.fit_dynamics(runs, {"u": 0.1}, bar=False)


@pytest.fixture(scope="module")
def readings() -> Any:
    """Return 8 instants of three sensors, one of which fails, and the truth of 12."""
    u, force = simulate(1, 12, 5)
    values = u[0, :8][:, [3, 10, 17]] + 0.1 * np.random.default_rng(1).standard_normal((8, 3))
    values[2, 1], values[5] = np.nan, np.nan
    return values, u[0], force[0]


def linear_case(size: int = 4000) -> tuple[Model, Readings]:
    """Return a linear step of two coefficients, and five instants of one sensor."""
    step, rng = Step(torch.ones(2), 2), torch.Generator().manual_seed(0)
    step.weight.copy_(torch.tensor([[-0.2, 0.3], [-0.3, -0.2]]))
    root = torch.tensor([[0.5, 0.0], [0.2, 0.4]]).double()
    states = torch.randn(size, 2, generator=rng, dtype=torch.float64)
    library = Library(states, torch.arange(size), torch.zeros(size, dtype=torch.long))
    rows = torch.tensor([[1.0, 0.5]]).double().expand(5, 1, 1, 2)
    values = torch.tensor([0.7, -0.4, 1.2, 0.1, 0.0]).double().view(5, 1, 1)
    mask = torch.tensor([True, True, True, True, False]).view(5, 1, 1)
    noise = 0.3 * torch.ones(5, 1, 1).double()
    left = LeftOver(root, states[:0].float(), states[:0])
    return Model(step, left, library), Readings(rows, values, noise, mask)


def exact(model: Model, read: Readings, until: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean (10,) and covariance of all five instants given readings before `until`."""
    matrix, start = model.step.matrix, model.library.states
    assert matrix is not None
    into = torch.zeros(10, 10).double()  # of the start and of what each step leaves over
    for t in range(5):
        for s in range(t + 1):
            part = torch.linalg.matrix_power(matrix, t - s)
            into[2 * t : 2 * t + 2, 2 * s : 2 * s + 2] = part
    pieces = [torch.cov(start.T), *[model.left.root @ model.left.root.T] * 4]
    prior = into @ torch.block_diag(*pieces) @ into.T
    mean = into[:, :2] @ start.mean(0)
    rows = torch.block_diag(*[read.rows[t, 0] for t in range(until)])
    rows = torch.cat([rows, torch.zeros(until, 10 - 2 * until)], 1).double()
    whole = rows @ prior @ rows.T + 0.09 * torch.eye(until).double()
    gain = torch.linalg.solve(whole, rows @ prior).T
    off = read.values[:until].flatten() - rows @ mean
    return mean + gain @ off, prior - gain @ rows @ prior


def test_filter_and_smoother_of_a_linear_step_are_exact() -> None:
    model, read = linear_case()
    path = model.followed(read, 0, 0)
    assert isinstance(path, GaussianPath)
    (means, covariances), (filtered, _) = (path.law(0, s).moments() for s in (True, False))
    mean, covariance = exact(model, read, 4)
    torch.testing.assert_close(means.flatten(), mean)
    for t in range(5):
        here = slice(2 * t, 2 * t + 2)
        torch.testing.assert_close(covariances[t], covariance[here, here])
        before, _ = exact(model, read, min(t + 1, 4))
        torch.testing.assert_close(filtered[t], before[here])


def test_samples_of_a_smoother_are_trajectories() -> None:
    model, read = linear_case()
    law = model.followed(read, 0, 0).law(0, smooth=True)
    drawn = law.sample(40_000, torch.Generator().manual_seed(1)).transpose(0, 1).flatten(1)
    mean, covariance = exact(model, read, 4)
    assert (drawn.mean(0) - mean).abs().max() < 0.02
    assert (torch.cov(drawn.T) - covariance).abs().max() < 0.02


def test_an_ensemble_comes_near_the_exact_law() -> None:
    model, read = linear_case()
    twice = Readings(*(one.repeat_interleave(2, 2) for one in read))  # as one of less noise
    twice = twice._replace(noise=2**0.5 * twice.noise)
    several = []
    for seed in range(0, 1200, 100):
        path = EnsemblePath(model, 0, seed).going_on(twice)
        assert path.filtered[0].shape == (1, 300, 2)
        means, covariances = path.law(0, smooth=True).moments()
        several.append(torch.cat([means, covariances.diagonal(0, 1, 2).sqrt()], 1))
    mean, covariance = exact(model, read, 4)
    known = torch.cat([mean.view(5, 2), covariance.diagonal().sqrt().view(5, 2)], 1)
    assert (torch.stack(several).mean(0) - known).abs().max() < 0.06


def test_members_that_have_lost_the_track_begin_anew_in_their_case_alone() -> None:
    model, read = linear_case()
    values = read.values.repeat(1, 2, 1)
    known = EnsemblePath(model, 0, 0).going_on(read._replace(values=values))
    values = values.clone()
    values[4, 1], mask = 5.0, torch.ones_like(read.mask)
    found = EnsemblePath(model, 0, 0).going_on(read._replace(values=values, mask=mask))
    assert found.filtered[4].shape == known.filtered[4].shape == (2, 300, 2)
    seen = found.filtered[4].mean(1) @ read.rows[0, 0, 0]
    assert seen[1] > 3
    assert abs(seen[0]) < 0.5
    assert (found.smoothed[3][0] - known.smoothed[3][0]).abs().mean() < 0.5
    assert (found.smoothed[3][1] - known.smoothed[3][1]).abs().mean() > 0.5


def test_many_readings_tell_nothing_about_what_they_are_not_tied_to() -> None:
    rng = torch.Generator().manual_seed(3)
    history = torch.randn(2, 1, 300, 40, generator=rng, dtype=torch.float64)
    rows = torch.eye(40).double()[None, :20]
    before = history.std(2)
    for _ in range(20):
        values = torch.randn(1, 20, generator=rng, dtype=torch.float64)
        read = Readings(rows, values, 0.5 * torch.ones(1, 20), torch.ones(1, 20).bool())
        history = _changed(history, 1, read)
        history[1] = torch.randn(1, 300, 40, generator=rng, dtype=torch.float64)  # a new instant
    assert (history.std(2)[0] / before[0]).mean() == pytest.approx(1, abs=0.1)


def test_later_readings_give_what_all_at_once_would(model: uqsonet.Dynamics, readings: Any) -> None:
    values, _, _ = readings
    whole = model.condition(u=(AT, values), until=5.5)
    first = model.condition(u=(AT, values[:4]))
    later = model.update(first, u=(AT, values[4:]), until=5.5)
    np.testing.assert_array_equal(later.times, whole.times)
    for smooth in (whole["u"].mean(), later["u"].mean()):
        assert smooth.shape == (12, 24)
    np.testing.assert_allclose(later["u"].mean(), whole["u"].mean(), atol=1e-9)
    with pytest.raises(ObservationError, match="begin before"):
        model.update(first, u=(AT, values[:1]), times=[0.0])


def test_later_sensors_may_average_other_numbers_of_points(
    model: uqsonet.Dynamics, readings: Any
) -> None:
    def mean(points: int) -> uqsonet.WeightedPoints:
        return uqsonet.WeightedPoints(X[:points, None], np.full((1, points), 1 / points))

    truth = readings[1]
    first = model.condition(u=(mean(2), truth[:3, :2].mean(1)[:, None]))
    later = model.update(first, u=(mean(5), truth[3:6, :5].mean(1)[:, None]))
    exact = model.update(first, u=(X[:5], truth[3:6, :5]))
    assert later.sensors.mask.sum() == 6
    assert exact.sensors.mask.sum() == 3 + 15
    assert later["u"].std()[4, :5].mean() < 0.8 * later["u"].std()[4].mean()


def test_runs_are_followed_once_for_all_answers_of_the_same_sensors(
    model: uqsonet.Dynamics, readings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, read_by = [], conformal.read_by
    monkeypatch.setattr(conformal, "read_by", lambda *a: calls.append(1) or read_by(*a))
    bands = []
    for shift in (0.0, 0.1):
        answer = model.condition(u=(AT[:2], readings[1][:6, :2] + shift))["u"]
        bands += [answer.band(0.9, kind="conformal"), answer.band(0.8, kind="conformal")]
    assert len(calls) == 1
    assert (bands[0][1] > bands[1][1]).mean() > 0.9
    model.condition(u=(AT[:2], readings[1][:7, :2]))["u"].band(0.9, kind="conformal")
    assert len(calls) == 2


def test_readings_narrow_the_field_and_what_drives_it(
    model: uqsonet.Dynamics, readings: Any
) -> None:
    values, truth, force = readings
    smooth, past = (model.condition(u=(AT, values), until=5.5, smooth=s) for s in (True, False))
    nothing = model.condition(times=[0.0], until=5.5)
    error = [np.square(a["u"].mean()[:8] - truth[:8]).mean() for a in (smooth, past, nothing)]
    assert error[0] < error[1] < 0.6 * error[2]
    assert smooth["u"].std()[11].mean() == pytest.approx(past["u"].std()[11].mean(), rel=1e-6)
    assert smooth["force"].std()[0, 0] < 0.9 * nothing["force"].std()[0, 0]
    assert abs(smooth["force"].mean()[0, 0] - force) < 3 * smooth["force"].std()[0, 0]
    lower, upper = smooth["u"].band(0.8, kind="conformal")
    assert 0.5 < np.mean((lower <= truth) & (truth <= upper)) <= 1
    assert smooth["u"].to_xarray().sizes["time"] == 12


def test_few_trajectories_have_a_plain_band_and_say_so(
    model: uqsonet.Dynamics, readings: Any
) -> None:
    answer = model.condition(u=(AT, readings[0]))["u"]
    runs = model.factors.runs(answer.law)  # 15 % of 90
    level = (runs + 0.5) / (runs + 1.5)
    with pytest.warns(ObservationWarning, match=f"a plain band: .* model has {runs}"):
        band = answer.band(level)
    for end, plain in zip(band, answer.band(level, kind="plain"), strict=True):
        np.testing.assert_array_equal(end, plain)
    with pytest.raises(ObservationError, match=f"needs {runs + 1} calibration runs"):
        answer.band(level, kind="conformal")


def test_scores_by_lead(model: uqsonet.Dynamics, tmp_path: Path) -> None:
    u, force = simulate(20, 10, 7)
    runs = uqsonet.Trajectories({"u": (u, X)}, 0.5 * np.arange(10), constants={"force": force})
    report = model.validate(runs, 4, read=6)
    assert [one.lead for one in report.rows] == [0] * 6 + [1, 2, 3, 4]
    assert report.rows[5].rmse < 0.6 * report.rows[5].runs
    assert report.rows[5].rmse < report.rows[9].rmse
    for one in report.rows[2:]:
        assert one.spread == pytest.approx(one.rmse, rel=0.3)
        assert sum(one.ranks) == pytest.approx(1)
    assert np.mean([one.held_90 for one in report.rows]) == pytest.approx(0.9, abs=0.06)
    report.save(tmp_path / "scores.csv")
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == 11


def test_a_table_with_times_is_the_same_and_a_file_keeps_all(
    model: uqsonet.Dynamics, readings: Any, tmp_path: Path
) -> None:
    values = np.nan_to_num(readings[0])
    table = {
        "time": np.repeat(0.5 * np.arange(8), 3)[::-1], "x": np.tile(AT, 8)[::-1],
        "value": values.ravel()[::-1], "field": ["u"] * 24,
    }  # fmt: skip
    known = model.condition(u=(AT, values))["u"].mean()
    np.testing.assert_allclose(model.condition(table)["u"].mean(), known, atol=1e-9)
    model.save(tmp_path / "model.safetensors")
    again = uqsonet.Dynamics.load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(again.condition(table)["u"].mean(), known, rtol=0, atol=1e-12)
    with pytest.raises(DataError, match=r"Dynamics\.load"):
        uqsonet.load(tmp_path / "model.safetensors")


def test_the_next_reading_is_the_one_that_tells_most(
    model: uqsonet.Dynamics, readings: Any, tmp_path: Path
) -> None:
    answer = model.condition(u=(AT, readings[0]), until=5.5)["u"]
    (one,) = answer.place(1, [[0.5]], times=[4.0, 5.0, 5.5], target=5.5)
    assert (one.time, one.place[0]) == (5.5, 0.5)
    assert one.after < one.before
    with pytest.raises(ObservationError, match="belong together"):
        model.condition(u=(AT, readings[0]), smooth=False)["u"].place(1)
    answer.plot(tmp_path / "strips.png", truth=readings[1])
    answer.film(tmp_path / "film.gif")
    assert (tmp_path / "film.gif").read_bytes()[:3] == b"GIF"
    lower, upper = answer.band(0.9)
    figure, frames = _frames(answer, None)
    next(frames)
    low, high = figure.axes[0].get_ylim()
    assert low < lower.min()
    assert high > upper.max()
    assert figure.axes[0].get_xlabel() == "x"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"times": [0, 1, 1.4, 3]}, "lies between two steps"),
        ({"times": [0, 2, 1, 3]}, "times must rise"),
        ({"times": [0, 1]}, r"times: shape \(2,\)"),
        ({"constants": {"u": np.ones(9)}}, "name them differently"),
        ({"constants": {"c": np.arange(8.0)}}, "one for each of 9 runs"),
        ({"groups": [1, 2]}, "one label for each of 9 runs"),
    ],
)
def test_trajectories_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        uqsonet.Trajectories({"u": simulate(9, 4, 0)[0]}, **change)


def test_runs_may_be_short_or_have_holes() -> None:
    u = simulate(9, 6, 0)[0]
    u[2, 3:], u[4, 2] = np.nan, np.nan
    runs = uqsonet.Trajectories({"u": u})
    before, after = runs.pairs()
    assert len(before) == 9 * 5 - 3 - 2
    assert (runs.instant[after] - runs.instant[before] == 1).all()
    assert len(runs[[2, 4]].run) == 3 + 5
    u[5, 1, 0] = np.nan
    with pytest.raises(DataError, match="u: "):
        uqsonet.Trajectories({"u": u})


def test_what_a_step_leaves_over_may_depend_on_the_state() -> None:
    case, _ = linear_case(200)
    states = torch.tensor([[-1.0, 0.0], [1.0, 0.0]]).repeat_interleave(50, 0)
    left = torch.tensor([[0.1, 0.0], [5.0, 0.0]]).double().repeat_interleave(50, 0)
    near = replace(case, left=LeftOver(case.left.root, states, left))
    members = torch.tensor([[-1.0, 0.0], [1.0, 0.0]]).double()[:, None].expand(2, 400, 2)
    spread = near.advanced(members, torch.Generator().manual_seed(0)).std(1)[:, 0]
    assert spread[0] == pytest.approx(0.1, rel=0.1)
    assert spread[1] > 1


def test_a_file_of_runs_becomes_a_forecast_on_the_command_line(tmp_path: Path) -> None:
    u, force = simulate(60, 10, 0)
    dated = np.datetime64("2020-01-01") + np.arange(10)
    xarray.Dataset(
        {"u": (("valid_time", "trajectory", "x"), u.transpose(1, 0, 2), {"units": "m"}),
         "force": ("trajectory", force)},
        {"valid_time": dated, "x": X},
    ).to_netcdf(tmp_path / "runs.nc", engine="h5netcdf")  # fmt: skip
    lines = [
        f"{t},{x},{v}"
        for t, row in zip(dated, u[0], strict=True)
        for x, v in zip(AT, row[[3, 10, 17]], strict=True)
    ]
    (tmp_path / "read.csv").write_text("\n".join(["time,x,value", *lines[:12]]))
    model, answer = tmp_path / "model.safetensors", tmp_path / "answer.nc"

    def ran(*words: object) -> str:
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == 0, result.output
        return result.stdout

    fields = "--fields", "u", "--constants", "force", "--noise-std", "0.1"
    assert "Dynamics(u, force" in ran("fit-dynamics", tmp_path / "runs.nc", *fields, "-o", model)
    sensors = tmp_path / "read.csv", "--until", "2020-01-06"
    ran("forecast", model, *sensors, "-o", answer)
    found = xarray.load_dataset(answer)
    known = uqsonet.Dynamics.load(model).condition(tmp_path / "read.csv", until="2020-01-06")["u"]
    np.testing.assert_array_equal(found.time.values, dated[:6])
    np.testing.assert_allclose(found.u_mean, known.mean())
    table = ran("forecast", model, *sensors, "--field", "force", "--filter").splitlines()
    assert table[0].startswith("time,")
    assert [line[:10] for line in table[1:]] == [str(day) for day in dated[:6]]

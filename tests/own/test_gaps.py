"""Runs with gaps: laws from readings, the model that they become, and its bands."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr

import uqsonet
from uqsonet.errors import ConfigError, DataError, DataWarning, ObservationError
from uqsonet.fitting.gap_readings import hidden_readings
from uqsonet.fitting.gap_recipes import Seen
from uqsonet.fitting.gaps import model_of
from uqsonet.fitting.plan import SensorPlan
from uqsonet.gauss.incomplete import (
    Correlation,
    Factors,
    PairMoments,
    Readings,
    fitted_correlation,
    regressed,
    shrunk,
    smoothing,
)
from uqsonet.gauss.metrics import ascending, crps
from uqsonet.runs.field_runs import FieldRuns
from uqsonet.runs.gaps import gaps_of, unit_points

POINTS, RUNS = 16, 400
X = np.linspace(0, 1, POINTS)
ONES = torch.ones(POINTS, 1, dtype=torch.float64)


def fields(size: int, seed: int = 0) -> np.ndarray:
    """Return smooth random fields (size, POINTS) around a mean."""
    generator = np.random.default_rng(seed)
    modes = np.stack([np.cos(k * np.pi * X) / (1 + k) for k in range(4)])
    return 2 * X + generator.standard_normal((size, 4)) @ modes


def thin(values: np.ndarray, share: float, seed: int = 1) -> np.ndarray:
    """Return values of which this share is NaN, at random."""
    lacking = np.random.default_rng(seed).random(values.shape) < share
    return np.where(lacking, np.nan, values)


def noisy(size: int) -> np.ndarray:
    """Return fields with noise of a tenth."""
    return fields(size) + 0.1 * np.random.default_rng(3).standard_normal((size, POINTS))


def gappy(values: np.ndarray, name: str = "t") -> dict[str, FieldRuns]:
    """Return a field with gaps by its name."""
    return {name: FieldRuns.of(values, X, missing="model")}


def factors(seed: int = 0, rank: int = 3) -> Factors:
    """Return some law of POINTS values."""
    generator = torch.Generator().manual_seed(seed)
    mean, factor = (
        torch.randn(POINTS, generator=generator),
        torch.randn(POINTS, rank, generator=generator),
    )
    variance = torch.full((POINTS,), 0.3, dtype=torch.float64)
    return Factors(mean.double(), factor.double(), variance, torch.zeros(POINTS, dtype=torch.long))


@pytest.fixture(scope="module")
def model() -> uqsonet.Emulator:
    u = thin(fields(RUNS).cumsum(1), 0.6, 2)
    runs = uqsonet.Runs(gappy(thin(fields(RUNS), 0.6)), gappy(u, "u"))
    return uqsonet.fit(runs, sensors=[3, 5], bar=False)


def test_values_given_readings_are_those_of_the_joint_normal_law() -> None:
    law, at = factors(), torch.tensor([[2, 7, 11, 0]])
    seen = Readings(at, torch.randn(1, 4).double(), torch.tensor([[True, True, True, False]]))
    mean, variance = law.values_given(seen)
    covariance = law.factor @ law.factor.T + law.variance.diag()
    here = at[0, :3]
    gain = torch.linalg.solve(covariance[here][:, here], covariance[here]).T
    off = seen.values[0, :3] - law.mean[here]
    others = [k for k in range(POINTS) if k not in here]
    assert torch.allclose(mean[0, others], (law.mean + gain @ off)[others])
    exact = (covariance - gain @ covariance[here]).diagonal()
    assert torch.allclose(variance[0, others], exact[others])
    a, spread = law.given(seen)
    assert torch.allclose(law.mean + a @ law.factor.T, mean)
    assert torch.allclose(((law.factor @ spread[0]) * law.factor).sum(1) + 0.3, variance[0])


def test_of_complete_runs_pairs_give_the_sample_covariance() -> None:
    rows = torch.from_numpy(fields(50))
    moments = PairMoments.of(rows, [ONES])
    found = shrunk(moments, torch.zeros(POINTS, POINTS).double(), 0.0)
    known = torch.cov(rows.T, correction=0)
    apart = ~torch.eye(POINTS, dtype=torch.bool)
    assert torch.allclose(found[apart], known[apart])
    assert torch.allclose(moments.variance, known.diagonal())


def test_shrinking_goes_from_the_pairs_to_the_target() -> None:
    moments = PairMoments.of(torch.from_numpy(thin(fields(60), 0.5)), [ONES])
    target = torch.eye(POINTS).double()
    far, near = (shrunk(moments, target, weight) for weight in (1e9, np.inf))
    assert torch.equal(near, target) and torch.allclose(far, target, atol=1e-5)
    half = shrunk(moments, target, float(moments.pairs[0, 5]))[0, 5]
    assert torch.allclose(half, moments.products[0, 5] / moments.pairs[0, 5] / 2)


def test_the_kernel_leaves_quadratic_functions_as_they_are() -> None:
    x = torch.linspace(0, 1, 101).double()[:, None]
    kernel = smoothing(x, 2.0)
    for power in (0, 1, 2):
        values = x[:, 0] ** power
        smooth = kernel @ values / kernel.sum(1)
        assert torch.allclose(smooth[30:70], values[30:70], atol=1e-6)


def test_a_correlation_by_distance_is_found_again() -> None:
    known = Correlation(0.8, 0.3, 1.0)
    distances = torch.linspace(0.01, 1.5, 2000).double()
    found = fitted_correlation(distances, known.of(distances), torch.ones(2000).double())
    assert torch.allclose(found.of(distances), known.of(distances), atol=0.02)


def test_steps_of_maximisation_never_lower_the_likelihood() -> None:
    rows = torch.from_numpy(thin(noisy(200), 0.5))

    def likelihood(law: Factors) -> float:
        total, covariance = 0.0, law.factor @ law.factor.T + law.variance.diag()
        for row in rows:
            here = ~row.isnan()
            total += float(
                torch.distributions.MultivariateNormal(
                    law.mean[here], covariance[here][:, here]
                ).log_prob(row[here])
            )
        return total

    law, found = factors(), []
    for _ in range(4):
        found.append(likelihood(law))
        law = law.improved(rows, law)
    assert (np.diff(found) > 0).all()


def test_of_complete_runs_the_steps_end_at_principal_components() -> None:
    rows = torch.from_numpy(noisy(300))
    law = factors(rank=2)
    for _ in range(60):
        law = law.improved(rows, law)
    values, vectors = torch.linalg.eigh(torch.cov(rows.T, correction=0))
    left = values[:-2].mean()  # Tipping, Bishop, J. R. Stat. Soc. B 61, 1999, equation 8
    known = vectors[:, -2:] * (values[-2:] - left).sqrt()
    assert torch.allclose(law.variance[0], left, rtol=1e-3)
    assert torch.allclose(law.factor @ law.factor.T, known @ known.T, atol=1e-2)
    assert torch.allclose(law.mean, rows.mean(0), atol=1e-6)


def test_loadings_are_the_less_known_the_fewer_the_readings() -> None:
    rows = torch.from_numpy(fields(300))
    rows[20:, 3] = torch.nan
    unsure = factors().unsure(rows, 0.0)
    assert unsure[3] > 5 * unsure[4] and (unsure > 0).all()


def test_the_model_is_the_joint_law() -> None:
    k, u = thin(fields(60), 0.3), thin(fields(60).cumsum(1), 0.3, 2)
    data = Seen.of(uqsonet.Runs(gappy(k), gappy(u, "u")), None, {}, 0)
    both = Factors(
        torch.cat([factors(1).mean, factors(2).mean]),
        torch.cat([factors(1, 5).factor, factors(2, 5).factor]),
        torch.full((2 * POINTS,), 0.01).double(), data.groups,
    )  # fmt: skip
    operator, roots = model_of(data, both, torch.zeros(2 * POINTS).double())
    emulator = uqsonet.Emulator(operator, data.inputs, data.outputs, remainder=roots)
    read = np.array([0.3, -0.2, 0.5])
    answer = emulator.condition(X[[2, 8, 13]], read)
    seen = Readings(
        torch.tensor([[2, 8, 13]]), torch.from_numpy(read)[None] / data.inputs[0].scale,
        torch.ones(1, 3, dtype=torch.bool),
    )  # fmt: skip
    mean, variance = both.values_given(seen)
    scale = data.outputs[0].scale
    assert np.allclose(answer.mean(), mean[0, POINTS:].numpy() * scale, rtol=1e-4, atol=1e-5)
    assert np.allclose(answer.std(), variance[0, POINTS:].sqrt().numpy() * scale, rtol=1e-4)
    drawn = answer.sample(20_000).std(0)
    assert np.allclose(drawn, answer.std(), rtol=0.04)


def test_a_fit_is_near_the_truth_and_its_bands_hold_it(model: uqsonet.Emulator) -> None:
    k = fields(100, 9)
    at = [1, 6, 11, 14]
    answer = model.condition(np.broadcast_to(X[at, None], (100, 4, 1)), k[:, at])
    u = k.cumsum(1)
    off = np.abs(answer.mean() - u).mean() / np.abs(u - u.mean(0)).mean()
    assert off < 0.15
    low, high = answer.band(0.9)
    assert 0.8 < ((low <= u) & (u <= high)).mean()
    assert model.card["recipe"]["gaps"]["t"].endswith("scattered")
    assert {row["kind"] for row in model.card["recipe"]["tried"]} >= {"kriging", "pairs", "factors"}


def test_a_file_keeps_model_and_calibration(model: uqsonet.Emulator, tmp_path: Path) -> None:
    model.save(tmp_path / "m.safetensors")
    same = uqsonet.load(tmp_path / "m.safetensors")
    given = X[[2, 9]], [0.5, 1.0]
    bands = (one.condition(*given).band() for one in (model, same))
    for one, other in zip(*bands, strict=True):
        assert np.array_equal(one, other)


def test_the_same_seed_gives_the_same_model() -> None:
    runs = uqsonet.Runs(gappy(thin(fields(60), 0.4)))
    one, other = (uqsonet.fit(runs, sensors=3, bar=False) for _ in range(2))
    for name, tensor in one.operator.state_dict().items():
        assert torch.equal(tensor, other.operator.state_dict()[name])
    assert one.card == other.card and len(one.calibration) == 60


def test_completed_runs_keep_what_was_read(model: uqsonet.Emulator) -> None:
    k, u = fields(30, 8), fields(30, 8).cumsum(1)
    read = thin(k, 0.6, 4)
    found = model.complete(uqsonet.Runs(gappy(read), gappy(thin(u, 0.8, 5), "u")), samples=3)
    seen = ~np.isnan(read)
    assert np.array_equal(found.t_mean.values[seen], read[seen].astype(float))
    assert (found.t_std.values[seen] == 0).all() and (found.t_std.values[~seen] > 0).all()
    assert found.u_samples.shape == (30, 3, POINTS)
    assert np.abs(found.u_mean.values - u).mean() < 0.1 * u.std()
    away = np.abs(found.t_mean.values - k)[~seen] / found.t_std.values[~seen]
    assert 0.8 < (away < 1.645).mean()


@pytest.mark.parametrize("side", ["operator", "one field"])
def test_new_runs_with_gaps_are_scored_on_readings_that_no_sensor_has(side: str) -> None:
    k, new = fields(300), fields(80, 7)
    lost = thin(new, 0.4, 5)
    if side == "operator":
        model = uqsonet.fit(uqsonet.Runs({"k": k}, {"u": k.cumsum(1)}), sensors=[2], bar=False)
        whole = uqsonet.Runs({"k": new}, {"u": new.cumsum(1)})
        some = uqsonet.Runs(gappy(lost, "k"), gappy(thin(new.cumsum(1), 0.5, 6), "u"))
    else:
        model = uqsonet.fit(uqsonet.Runs(gappy(thin(k, 0.6))), sensors=[2], bar=False)
        whole, some = uqsonet.Runs({"t": new}), uqsonet.Runs(gappy(lost))
    (output,) = whole.outputs.values()
    generator = np.random.default_rng(2)
    at = np.stack([generator.choice(POINTS, 2, replace=False) for _ in new])
    answer = model.condition(X[at][..., None], np.take_along_axis(new, at, 1))
    drawn, truth = torch.from_numpy(answer.sample(200)), torch.from_numpy(output.values)
    expected = np.mean([crps(ascending(a), b) for a, b in zip(drawn, truth, strict=True)])
    found = {one.method: one for one in model.validate(some, [2]).scores}
    one, free = found["uqsonet"], found["sensor_free"]
    assert one.runs == 80 and one.crps == pytest.approx(expected, rel=0.2)
    assert one.crps < 0.7 * free.crps and one.roughness == pytest.approx(1, abs=0.15)
    assert one.plain[0.9] == pytest.approx(0.9, abs=0.06) and one.conformal[0.9] > 0.85


def test_days_that_resemble_their_neighbours_are_noticed_despite_gaps() -> None:
    days = np.repeat(fields(30), 8, 0) + 0.3 * fields(240, 1)
    archive = gappy(thin(days, 0.5))
    with pytest.warns(DataWarning, match="neighbouring runs are much alike"):
        uqsonet.fit(uqsonet.Runs(archive), sensors=3, bar=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        weeks = np.arange(240) // 8
        uqsonet.fit(uqsonet.Runs(archive, groups=weeks), sensors=3, bar=False)
        uqsonet.fit(uqsonet.Runs(gappy(thin(fields(240), 0.5))), sensors=3, bar=False)


def test_what_sensors_read_of_a_run_with_gaps_is_no_truth(model: uqsonet.Emulator) -> None:
    values = thin(fields(50, 5), 0.5)
    rows = torch.from_numpy(values)
    every, box = torch.arange(POINTS), [unit_points(torch.from_numpy(X)[:, None])]
    plan = SensorPlan.of([3, 12], model.inputs, 1, [torch.from_numpy(X)[:, None]])
    for count, most in enumerate((3, 12)):
        generator = np.random.default_rng(0)
        seen, truth = hidden_readings(rows, (every, every), box, plan, count, False, generator)
        read, left = ~seen.isnan(), ~truth.isnan()
        assert not (read & left).any() and torch.equal(read | left, ~rows.isnan())
        assert int(read.sum(1).max()) <= most and (left.sum(1) >= 1).all()


def test_a_table_of_records_becomes_runs(tmp_path: Path) -> None:
    values = thin(fields(12), 0.4)
    run, place = np.nonzero(~np.isnan(values))
    table = pd.DataFrame({"run": run, "x": X[place], "t": values[run, place]})
    table.sample(frac=1, random_state=0).to_csv(tmp_path / "t.csv", index=False)
    runs = uqsonet.open_runs(tmp_path / "t.csv", "t", "t", missing="model")
    assert np.allclose(runs.inputs["t"].values, values, equal_nan=True)
    with pytest.raises(DataError, match="missing='model' learns"):
        uqsonet.open_runs(tmp_path / "t.csv", "t", "t")
    pd.concat([table, table[:1]]).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match=f"row {len(table) + 1} is a second one"):
        uqsonet.open_runs(tmp_path / "t.csv", "t", "t", missing="model")
    table.drop(columns="x").to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match="no column says the place"):
        uqsonet.open_runs(tmp_path / "t.csv", "t", "t", missing="model")


def test_kinds_of_gaps_are_told_apart() -> None:
    values, generator = fields(300), np.random.default_rng(0)
    assert gaps_of(gappy(thin(values, 0.5))["t"]).kind == "scattered"
    rates = np.linspace(0.1, 0.9, POINTS)
    points = np.where(generator.random(values.shape) < rates, np.nan, values)
    assert gaps_of(gappy(points)["t"]).kind == "points"
    start = generator.integers(0, POINTS - 6, 300)[:, None]
    block = (np.arange(POINTS) >= start) & (np.arange(POINTS) < start + 6)
    assert gaps_of(gappy(np.where(block, np.nan, values))["t"]).kind == "blocks"


def test_bands_hold_in_a_region_that_half_of_the_runs_lack() -> None:
    values = thin(fields(RUNS), 0.3)
    values[: RUNS // 2, POINTS // 2 :] = np.nan
    model = uqsonet.fit(uqsonet.Runs(gappy(values)), sensors=3, bar=False)
    k, at = fields(150, 7), [0, 3, 6]
    answer = model.condition(np.broadcast_to(X[at, None], (150, 3, 1)), k[:, at])
    low, high = answer.band(0.9)
    held = ((low <= k) & (k <= high))[:, POINTS // 2 :].mean()
    assert 0.85 < held


def test_what_cannot_be_done_with_gaps_is_refused(model: uqsonet.Emulator) -> None:
    runs = uqsonet.Runs(gappy(thin(fields(60), 0.4)))
    for asked in ({"law": "mixture"}, {"drift": True}):
        with pytest.raises(ConfigError, match="runs with gaps have the law 'gaussian'"):
            uqsonet.fit(runs, bar=False, **asked)
    few = np.where(np.arange(POINTS) == 2, fields(20), np.nan)
    with pytest.raises(DataError, match="t: no run has a reading that 3 sensors leave over"):
        uqsonet.fit(runs, sensors=3, bar=False).validate(
            uqsonet.Runs({"t": FieldRuns(few, gappy(fields(20))["t"].domain)})
        )
    with pytest.raises(ObservationError, match="bands of single points"):
        model.condition(X[[2, 9]], [0.5, 1.0]).band(whole=True)
    with pytest.raises(DataError, match="no field of the model, u, t"):
        model.complete(uqsonet.Runs(gappy(thin(fields(20), 0.2), "w")))
    u = np.full((20, POINTS), np.nan)
    u[0] = X
    with pytest.raises(DataError, match="u: read in 1 runs, at least 8"):
        uqsonet.fit(uqsonet.Runs(gappy(thin(fields(20), 0.2)), gappy(u, "u")), bar=False)


def test_a_point_that_no_training_run_reads_has_the_mean_of_the_others() -> None:
    rows = torch.from_numpy(fields(40) + 50)
    rows[:, 3] = torch.nan
    moments = PairMoments.of(rows, [ONES])
    covariance = shrunk(moments, torch.eye(POINTS).double(), 10.0)
    law = Factors.of(moments, covariance, 3, torch.zeros(POINTS, dtype=torch.long))
    assert abs(float(law.mean[3]) - 51) < 0.5
    assert abs(float(law.improved(rows, law, 20.0).mean[3]) - 51) < 1


def test_a_column_that_is_named_counts_the_runs_and_fields_are_no_times(tmp_path: Path) -> None:
    table = pd.DataFrame({"month": [1, 1, 2], "x": [0.0, 1.0, 1.0], "t": [5.0, 6.0, 7.0]})
    table.to_csv(tmp_path / "a.csv", index=False)
    runs = uqsonet.open_runs(tmp_path / "a.csv", "t", "t", run="month", missing="model")
    np.testing.assert_array_equal(runs.inputs["t"].values, [[5.0, 6.0], [np.nan, 7.0]])
    for run, found in ((None, "named by run"), ("year", r"run \(year\)")):
        with pytest.raises(DataError, match=found):
            uqsonet.open_runs(tmp_path / "a.csv", "t", "t", run=run, missing="model")


def test_means_are_drawn_to_a_regression_as_its_errors_say() -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(400, generator=generator, dtype=torch.float64)
    design = torch.stack([torch.ones(400, dtype=torch.float64), z], 1)
    counts = torch.full((400,), 4.0, dtype=torch.float64)
    counts[:50] = 0
    off, noise = torch.randn(2, 400, generator=generator, dtype=torch.float64)
    true = 3 + 2 * z + 0.5 * off
    mean = torch.where(counts > 0, true + noise / 2, 0.0)  # readings have variance one
    found, unsure = regressed(mean, torch.ones(400).double(), counts, design)
    error = (found - true).square()
    # Of means with variance 1/4 about a regression that errs by 1/4: 1/8, and 1/4 without readings.
    assert 0.1 < float(error[50:].mean()) < 0.15 and 0.15 < float(error[:50].mean()) < 0.4
    expected = torch.tensor([0.25, 0.125], dtype=torch.float64)
    torch.testing.assert_close(unsure[[0, 399]], expected, rtol=0.35, atol=0)


def test_maps_that_are_known_everywhere_carry_the_mean_to_places_without_readings() -> None:
    generator = np.random.default_rng(1)
    places, height = generator.random((60, 2)), generator.random(60)
    waves = np.cos(places @ generator.normal(0, 2, (2, 12)) + generator.uniform(0, 6, 12))
    truth = 15 - 9 * height + generator.standard_normal((300, 12)) @ waves.T / 4
    read = thin(truth, 0.4)
    read[:, 40:] = np.nan
    maps = {"height": height}
    field = FieldRuns.of(read[:200], places, missing="model", covariates=maps)
    assert field.domain.size == 60 and field.absent == 0
    model = uqsonet.fit(uqsonet.Runs({"t": field}), sensors=[10], bar=False)
    answer = model.condition(places[:10], truth[200:, :10])
    error = answer.mean()[:, 40:] - truth[200:, 40:]
    assert np.sqrt(np.square(error).mean()) < 0.25 * truth[:, 40:].std()
    lower, upper = answer.band(0.9)
    inside = (lower <= truth[200:]) & (truth[200:] <= upper)
    assert inside[:, 40:].mean() > 0.8
    alone = FieldRuns.of(read[:200], places, missing="model")
    assert alone.domain.size == 40
    for wrong, message in (
        ({"height": height[:9]}, "covariates have the shape"),
        ({"height": np.where(np.arange(60) == 2, np.nan, height)}, "missing at point 2"),
    ):
        with pytest.raises(DataError, match=message):
            FieldRuns.of(read, places, missing="model", covariates=wrong)
    with pytest.raises(DataError, match="covariates are for missing='model'"):
        FieldRuns.of(truth, places, covariates=maps)
    named = xr.DataArray(read[:, :36].reshape(-1, 6, 6), dims=("run", "lat", "lon"))
    named = named.assign_coords(lat=np.arange(6.0), lon=np.arange(6.0))
    with pytest.raises(DataError, match="give its values and coordinates"):
        FieldRuns.of(named, missing="model", covariates=[height[:36].reshape(6, 6)])

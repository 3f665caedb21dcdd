"""Scores: what they are on known laws, and the rows that tables are made of."""

from dataclasses import replace

import pandas as pd
import pytest
import torch

from uqsonet.errors import DataError
from uqsonet.fields.grid import Grid
from uqsonet.gauss.given import Gaussian
from uqsonet.gauss.metrics import ascending, relative_error
from uqsonet.gauss.posterior import Posterior
from uqsonet.gauss.seeds import torch_generator
from uqsonet_study import BASELINES
from uqsonet_study.beyond.distances import quantile_bins
from uqsonet_study.evaluation import (
    Expansion,
    evaluate,
    load_targets,
    points_on,
    score_reference,
    score_set,
)
from uqsonet_study.evaluation.scores import narrower_share
from uqsonet_study.problems import get_problem
from uqsonet_study.references import compute_reference
from uqsonet_study.storage import load_functions


@pytest.fixture(scope="module")
def targets(toy_files):
    return load_targets(toy_files.functions, toy_files.test, toy_files.evaluation)


def exact_law(targets, s, noise_std, shift=0.0, stretch=1.0):
    """The exact posterior of a set, as a method could return it."""
    toy, o = get_problem("toy_linear"), targets.reference.observations
    keep = o.mask[s]
    a = toy.shapes(o.locations[s][keep][:, 0])
    gain = torch.linalg.solve(a @ a.T + noise_std**2 * torch.eye(len(a)), a).T
    xi = gain @ (o.values[s][keep] - 1)
    values, vectors = torch.linalg.eigh(torch.eye(2).double() - gain @ a)
    root = vectors * values.clamp_min(0).sqrt() * stretch

    def basis(queries):
        response = toy.responses(queries[:, 0].double())
        return response[:, 0], response

    return Posterior(toy.grid, basis, False, Gaussian(xi[None] + shift, root[None]))


def scores(targets, noise_std, s, **changes):
    law = exact_law(targets, s, noise_std, **changes)
    return score_set(law, Expansion.of(law, targets), targets, s, torch_generator(1, "score", s))


def test_the_exact_posterior_scores_at_the_monte_carlo_floor(targets, toy_files):
    ref, config = targets.reference, targets.config
    error = (1 / config.samples + 1 / config.model_samples) ** 0.5
    for s in range(12):
        found = scores(targets, toy_files.noise_std, s)
        mean, std = ref.mean[s].norm(), ref.std[s].norm()
        assert found["err_mean"] * mean < 3.5 * error * std
        assert found["err_std"] < 3.5 * error / 2**0.5
        assert found["w2_gaussian"] < 5 * error * std


def test_every_score_sees_a_wrong_law(targets, toy_files):
    toy = get_problem("toy_linear")
    good = scores(targets, toy_files.noise_std, 0)
    shifted = scores(targets, toy_files.noise_std, 0, shift=1.0)
    assert shifted["err_mean"] > 5 * good["err_mean"]
    shift = toy.responses(toy.grid.points()[:, 0]).sum(1)
    distance = float((toy.grid.quadrature() * shift**2).sum().sqrt())
    assert good["w2_gaussian"] < 0.2 * distance
    assert shifted["w2_gaussian"] == pytest.approx(distance, rel=0.05)
    wide = scores(targets, toy_files.noise_std, 0, stretch=3.0)
    assert wide["err_std"] == pytest.approx(2.0, abs=0.15)
    assert wide["mean_std"] == pytest.approx(3 * good["mean_std"], rel=0.1)
    assert wide["crps"] != pytest.approx(good["crps"], rel=0.05)


def test_distances_in_coordinates_are_those_of_functions(targets, toy_files):
    law = exact_law(targets, 3, toy_files.noise_std)
    grid, kept = targets.fields.training_grid()
    weights, generator = grid.quadrature(), torch_generator(1, "coordinates")
    drawn = law.law.sample(20, generator)[0]
    shape = 2, 5, len(kept)  # of no law that the basis could follow
    others = torch.randn(shape, generator=generator, dtype=torch.float64)
    samples, points, ones = Expansion.of(law, targets).coordinates(drawn, others, weights)
    offset, basis = (part[kept] for part in law.basis())
    functions = (offset + drawn @ basis.T) * weights.sqrt()
    assert points.shape == (2, 5, samples.shape[1]) and torch.equal(ones, torch.ones(len(ones)))
    for ours, theirs in ((samples, functions), (points[1], others[1] * weights.sqrt())):
        expected = torch.cdist(functions, theirs)
        torch.testing.assert_close(torch.cdist(samples, ours), expected, rtol=1e-5, atol=1e-6)


def test_the_reference_scores_itself_by_its_repetition(targets):
    ref = targets.reference
    found = score_reference(targets, 3)
    assert found["err_mean"] == float(relative_error(ref.repeat_mean[3], ref.mean[3])) > 0
    assert found["err_std"] < 0.06 and "w2" not in found


def test_truth_belongs_to_the_function_that_was_observed(targets, toy_files):
    o, toy = targets.reference.observations, get_problem("toy_linear")
    functions = load_functions(toy_files.functions, "test").kappa.double()
    kappa = functions[targets.reference.function]
    assert (targets.truth - toy.solve(kappa)).abs().max() < 1e-5

    def misfit(kappa):
        """Chi square of what is seen minus what is there, with a degree for each sensor."""
        pairs = zip(kappa, o.locations, strict=True)
        there = torch.stack([toy.grid.interpolate(k[:, None], x)[:, 0] for k, x in pairs])
        return float(((o.values - there)[o.mask] / toy_files.noise_std).square().sum())

    assert o.mask.sum() == 4 * (1 + 2 + 4)
    assert 9 < misfit(kappa) < 57  # 0.1 % lie outside, either way
    assert misfit(kappa.roll(1, 0)) > 2 * 57
    assert torch.equal(targets.truth[0], targets.truth[4]) and o.counts[0] != o.counts[4]


@pytest.fixture(scope="module")
def with_quantiles(targets, toy_files):
    """References with quantiles as those of laws that are not Gaussian have them."""
    _, kept = targets.fields.training_grid()
    bins = []
    for s in range(len(targets.sets.function)):
        law = exact_law(targets, s, toy_files.noise_std)
        drawn = law.sample(20_000, generator=torch_generator(2, "quantiles", s))[0]
        bins.append(quantile_bins(ascending(drawn[:, kept]), 200))
    size = len(bins)
    ref = replace(targets.reference, quantiles=torch.stack(bins).float(),
                  floor_w1=torch.linspace(0.01, 0.02, size))  # fmt: skip
    return replace(targets, sets=ref)


def test_w1_and_the_references_mass_in_bands_need_quantiles_alone(
    targets, with_quantiles, toy_files
):
    good, shifted, wide = (
        scores(with_quantiles, toy_files.noise_std, 5, **changes)
        for changes in ({}, {"shift": 0.5}, {"stretch": 2.0})
    )
    assert good["w1"] < 0.05
    _, kept = targets.fields.training_grid()
    toy, std = get_problem("toy_linear"), targets.reference.std[5, kept]
    moved = toy.responses(toy.grid.points()[kept, 0]).sum(1).abs() * 0.5
    assert shifted["w1"] == pytest.approx(float(moved.mean() / std.mean()), rel=0.05)
    assert wide["w1"] == pytest.approx((2 / torch.pi) ** 0.5, abs=0.1)  # of 2,000
    assert [good[f"within_{v}"] for v in (50, 90, 95)] == pytest.approx([0.5, 0.9, 0.95], abs=0.04)
    # Two std of the reference in what a law of twice the spread takes for one.
    assert wide["within_50"] == pytest.approx(2 * 0.9113 - 1, abs=0.04)
    assert score_reference(with_quantiles, 11)["w1"] == pytest.approx(0.02)
    # They change no other score.
    config = targets.config.model_copy(update={"model_samples": 1000})
    plain, more = (
        scores(replace(found, config=config), toy_files.noise_std, 2)
        for found in (targets, with_quantiles)
    )
    assert {key: more[key] for key in plain} == plain
    assert set(more) - set(plain) == {"w1", "within_50", "within_90", "within_95"}


def run(files, config, reference, path, training=None):
    """Score the baselines; returns the table."""
    source = files.noise_std, files.seed, files.functions, reference
    evaluate("baselines", "paper", config, *source, path, training=training)
    return pd.read_csv(path)


def test_rows_are_complete_and_repeat_byte_for_byte(toy_files, tmp_path):
    few = {"samples": 100, "model_samples": 100, "wasserstein": True}
    config, files = toy_files.evaluation.model_copy(update=few), toy_files
    source = files.functions, files.sensors, "test", "paper", config
    compute_reference(*source, files.noise_std, files.seed, tmp_path / "r.h5")
    table = run(files, config, tmp_path / "r.h5", tmp_path / "a.csv")
    columns = ["method", "trial", "evaluation", "sensors", "set", "metric", "value"]
    assert list(table.columns) == columns
    assert set(table.method) == {"reference", *BASELINES}
    for method, part in table.groupby("method"):
        metrics = {"err_mean", "err_std", "mean_std", "crps", "energy", "w2"}
        metrics |= {f"rank_{k}" for k in range(1, 11)}
        metrics |= {"coverage_50", "coverage_90", "coverage_95"}
        if method != "reference":
            metrics |= {"w2_gaussian", "narrower", "within_50", "within_90", "within_95"}
            metrics |= {"crps_expected", "energy_expected"}
        assert set(part.metric) == metrics and len(part) == 12 * len(metrics)
    assert table.value.notna().all() and (table.value >= 0).all()
    assert set(table.sensors) == {1, 2, 4} and set(table.set) == {0, 1, 2, 3}
    run(files, config, tmp_path / "r.h5", tmp_path / "b.csv")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_sensors_and_pairs_help_the_reference_and_cokriging(diffusion_files, tmp_path):
    files, of = diffusion_files, {}
    for pairs in (20, 400):
        table = run(files, files.evaluation, files.test, tmp_path / f"{pairs}.csv", pairs)
        means = table.groupby(["method", "metric", "sensors"]).value.mean()
        of[pairs] = {name: means[name] for name in ("reference", "cokriging", "sensor_free")}
    error, spread = ({name: t[m] for name, t in of[400].items()} for m in ("err_mean", "mean_std"))
    assert (error["reference"] < error["cokriging"]).all()
    assert error["cokriging"][4] < 0.5 * error["sensor_free"][4]
    assert spread["reference"][4] < spread["reference"][1]
    assert spread["sensor_free"][4] == pytest.approx(spread["sensor_free"][1], rel=0.05)
    # Baselines may be fitted to fewer pairs; the reference does not change.
    assert of[20]["cokriging"]["err_mean"].mean() > 1.5 * error["cokriging"].mean()
    assert of[20]["reference"].equals(of[400]["reference"])


def test_cut_lines_are_grid_lines():
    grid = Grid((0.0, 0.0), (1.0, 1.0), (11, 21))
    points = grid.points()
    for line, axis, count in (("x=0.7", 0, 21), ("y=0.55", 1, 11)):
        found = points[points_on(grid, line)]
        assert len(found) == count
        assert torch.allclose(found[:, axis], torch.tensor(float(line[2:])).double())
    with pytest.raises(DataError, match=r"x=0\.75: no points of the 11 x 21 grid"):
        points_on(grid, "x=0.75")
    with pytest.raises(DataError, match="y=0: no points of the 11 grid"):
        points_on(Grid((0.0,), (1.0,), (11,)), "y=0")


def test_errors_on_a_line_are_those_of_its_points(toy_files, tmp_path):
    targets = load_targets(toy_files.functions, toy_files.test, toy_files.evaluation, ["x=0.5"])
    (k,) = targets.lines["x=0.5"]
    law = exact_law(targets, 2, toy_files.noise_std, shift=0.1)
    found = score_set(law, Expansion.of(law, targets), targets, 2, torch_generator(1, "line"))
    truth = targets.reference.mean[2, k]
    assert found["err_mean@x=0.5"] == pytest.approx(
        float((law.mean()[0, k] - truth).abs() / truth.abs()), rel=0.05
    )
    assert found["err_std@x=0.5"] != found["err_std"]
    reference = score_reference(targets, 2)
    assert {"err_mean@x=0.5", "err_std@x=0.5"} <= set(reference)


def test_the_share_of_points_with_a_band_too_narrow_leaves_the_boundary_out():
    reference = torch.tensor([0.0, 1.0, 2.0, 3.0, 0.0])
    predicted = torch.tensor([0.0, 0.9, 2.1, 2.9, 0.0])
    assert narrower_share(predicted, reference) == pytest.approx(2 / 3)

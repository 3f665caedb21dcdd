"""The predictors without networks."""

import numpy as np
import pytest
import torch

from uqsonet.errors import ConfigError
from uqsonet.gauss.gaussian import condition
from uqsonet.operator import regression
from uqsonet.operator.base import Conditioned
from uqsonet.operator.baselines import Cokriging
from uqsonet.operator.closed_form import targets as coefficients_of
from uqsonet.operator.regression import Regression
from uqsonet.runs.functions import Functions
from uqsonet_study import least_squares
from uqsonet_study.baselines import SensorFree, build_baseline
from uqsonet_study.problems import get_problem
from uqsonet_study.storage import load_functions


@pytest.fixture(scope="module")
def functions():
    problem = get_problem("diffusion1d")
    kappa, u = problem.sample(np.random.default_rng(0), 400)
    return Functions(problem.fields, "training", kappa.float(), u[:, ::4].float())


def test_sensor_free_is_the_mean_and_spread_of_the_training_outputs(functions):
    baseline = SensorFree(functions)
    posterior = baseline.condition([0.1], [1.0])
    queries = functions.fields.training_grid()[0].points()
    u = functions.u.double()
    torch.testing.assert_close(posterior.mean(queries), u.mean(0), rtol=0, atol=1e-6)
    assert (posterior.std(queries) - u.std(0)).norm() < 1e-3 * u.std(0).norm()
    several = baseline.condition(torch.zeros(3, 2, 1), torch.ones(3, 2))
    assert several.mean().shape == (3, 401) and several.sample(2).shape == (3, 2, 401)
    torch.testing.assert_close(several.mean()[1], posterior.mean())


def test_cokriging_is_the_best_linear_predictor_of_the_training_moments(functions):
    """Against one joint covariance of (log kappa, u) conditioned by the textbook."""
    index, values, noise = torch.tensor([60, 210, 333]), torch.tensor([0.8, 1.5, 2.2]), 0.3
    field, u = functions.kappa.double().log(), functions.u.double()
    joint = torch.cat([field[:, index], u], 1)
    covariance = torch.cov(joint.T)
    gram = covariance[:3, :3] + noise**2 * torch.eye(3).double()
    gain = torch.linalg.solve(gram, covariance[:3, 3:]).T
    mean = u.mean(0) + gain @ (values.double().log() - field[:, index].mean(0))
    variance = covariance[3:, 3:].diagonal() - (gain * covariance[3:, :3]).sum(1)
    x = functions.fields.input.grid.points()[index]
    posterior = Cokriging(functions, noise).condition(x, values)
    queries = functions.fields.training_grid()[0].points()
    assert (posterior.mean(queries) - mean).norm() < 1e-2 * mean.norm()
    std = variance.clamp_min(0).sqrt()
    assert (posterior.std(queries) - std).norm() < 1e-2 * std.norm()


def test_cokriging_copes_with_inputs_of_low_rank(toy_files):
    """Two dimensions of functions; modes beyond them have no variance and must not divide."""
    functions = load_functions(toy_files.functions, "training")
    found = Cokriging(functions, 0.5).condition([0.25], [1.3])
    assert found.mean().isfinite().all() and found.std().isfinite().all()
    exact_mean, exact = get_problem(functions.fields.name).exact_posterior(
        torch.tensor([[0.25]]), torch.tensor([1.3]), 0.5, functions.fields.input.grid.points()
    )
    assert (found.mean() - exact_mean).norm() < 0.1 * exact_mean.norm()
    assert (found.std() - exact.diagonal().sqrt()).norm() < 0.1 * exact.diagonal().sqrt().norm()


def test_residuals_of_regression_are_those_of_pairs_left_out(functions, monkeypatch):
    """Each pair is predicted from the others, with the same penalty."""
    monkeypatch.setattr(least_squares, "RIDGES", (1e-12,))
    x, m, noise = np.linspace(-1, 1, 401)[[60, 200, 330], None], 3, 0.3
    answer = build_baseline("regression", functions, noise).condition(x, [1.0, 0.8, 1.3])
    found = answer.law.laws[0].one
    readings = functions.kappa[:, [60, 200, 330]].double().log()
    bases = build_baseline("cokriging", functions, noise).bases
    targets = coefficients_of(bases, functions)["c"].double()
    for left_out in (0, 17):
        rest = torch.arange(400) != left_out
        at, mean = readings[rest].mean(0), targets[rest].mean(0)
        rows = readings[rest] - at
        penalty = 400 * noise**2 * torch.eye(m, dtype=torch.float64)
        gain = torch.linalg.solve(rows.T @ rows + penalty, rows.T @ (targets[rest] - mean))
        expected = targets[left_out] - mean - (readings[left_out] - at) @ gain
        torch.testing.assert_close(
            found.residuals(slice(left_out, left_out + 1))[0].double(), expected, rtol=0, atol=1e-5
        )


@pytest.mark.parametrize("sensors", [4, 60])
def test_the_bases_of_cokriging_serve_as_well_as_those_that_regression_fits(functions, sensors):
    x, y = np.linspace(-1, 1, 401)[:: 400 // sensors, None], functions.kappa[3, :: 400 // sensors]
    bases = build_baseline("cokriging", functions, 0.1).bases
    shared = build_baseline("regression", functions, 0.1, bases).condition(x, y)
    own = build_baseline("regression", functions, 0.1).condition(x, y)
    torch.testing.assert_close(shared.mean(), own.mean(), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(shared.std(), own.std(), rtol=1e-5, atol=1e-9)


def test_a_sensor_that_reads_the_same_of_all_pairs_teaches_regression_nothing(functions):
    kappa = functions.kappa.clone()
    kappa[:, 0] = 1.0
    model = build_baseline(
        "regression", Functions(functions.fields, "training", kappa, functions.u), 0.0
    )
    free, found = model.condition(torch.zeros(0, 1), []), model.condition([[-1.0]], [1.0])
    torch.testing.assert_close(found.mean(), free.mean())
    torch.testing.assert_close(found.std(), free.std())


def of_method(method: str, functions: Functions) -> Conditioned:
    if method in ("cokriging", "regression"):
        return build_baseline(method, functions, 0.0)
    bases = build_baseline("cokriging", functions, 0.0).bases
    return Regression(bases, **coefficients_of(bases, functions))


@pytest.mark.parametrize("method", ["cokriging", "regression", "all pairs", "near pairs"])
@pytest.mark.parametrize("noise", [1e6, 1e15])
def test_a_sensor_that_its_noise_switches_off_is_as_if_absent(
    functions, method, noise, monkeypatch
):
    """Exact sensors stay exact, in any order."""
    monkeypatch.setattr(regression, "ALL_PAIRS", 1000 if method == "all pairs" else 100)
    model, at = of_method(method, functions), [60, 210, 333]
    x = torch.linspace(-1, 1, 401)[at, None].double()
    y = functions.kappa[3, at].double()
    alone = model.condition(x[:2], y[:2])
    for places in ([0, 1, 2], [2, 0, 1]):
        levels = torch.tensor([0.0, 0.0, noise])[places]
        found = model.condition(x[places], y[places], None, levels)
        torch.testing.assert_close(found.mean(), alone.mean(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(found.std(), alone.std(), rtol=1e-5, atol=1e-6)


def test_padding_has_no_noise():
    """Nor does it give any to sensors that are next to exact."""
    rows = torch.from_numpy(np.random.default_rng(3).standard_normal((3, 9)))
    residuals, levels = torch.tensor([0.5, -1.0, 7.0]).double(), torch.tensor([1e-9, 0, 1]).double()
    found = condition(rows, residuals, levels, torch.tensor([True, True, False]))
    alone = condition(rows[:2], residuals[:2], levels[:2], None)
    torch.testing.assert_close(found.mean, alone.mean, rtol=1e-9, atol=1e-12)
    assert float(found.spread(rows[:2]).norm(dim=-1).max()) < 1e-8


def test_unknown_baselines_are_refused(functions):
    with pytest.raises(ConfigError, match="'other' is unknown"):
        build_baseline("other", functions, 0.0)

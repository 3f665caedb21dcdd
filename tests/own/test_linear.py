"""Gradients of means, and linear answers as matrices: they are what conditioning gives.

A map is compared with answers to other readings than those that it was made from, a gradient with
the formula of its model or with differences along a random direction.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from typer.testing import CliRunner

import uqsonet
from tests.own.conftest import Linear, quiet
from uqsonet.cli import app
from uqsonet.errors import DataError, MissingLibraryError, ObservationError
from uqsonet.gauss.posterior import MOMENT_SAMPLES, MOMENT_SEED
from uqsonet.operator.baselines import Cokriging, Floor, kept_pairs
from uqsonet.operator.regression import Regression
from uqsonet.runs.functions import Functions
from uqsonet.runs.runs import rows_of

PLACES = Linear().points[:5]
RNG = np.random.default_rng(0)
READINGS, OTHERS = 0.5 * RNG.standard_normal(5), RNG.standard_normal((3, 5))


@pytest.fixture(scope="module")
def pairs(linear: uqsonet.Emulator, linear_runs: uqsonet.Runs) -> Functions:
    sides = (linear_runs.inputs, linear.inputs), (linear_runs.outputs, linear.outputs)
    return Functions(linear.fields, "training", *(rows_of(*side) for side in sides))


@pytest.fixture(scope="module")
def positive() -> uqsonet.Emulator:
    """A model of a positive input, which is read under a logarithm, beside another one."""
    xi = np.random.default_rng(1).standard_normal((200, 4))
    waves = np.cos(np.linspace(0, 3, 15) * np.arange(1, 5)[:, None])
    k = uqsonet.FieldRuns.of(np.exp(0.3 * xi @ waves), transform="log")
    runs = uqsonet.Runs({"k": k, "f": 5 * xi @ waves[:, ::2]}, {"u": xi @ waves.cumsum(1)})
    return uqsonet.fit(runs, minutes=0, sensors=[3], law="gaussian", bar=False)


def test_a_map_gives_the_answers_to_other_readings(linear, pairs):
    methods = [linear, linear.with_operator(Regression(pairs, 0.0))]
    methods.append(
        linear.with_operator(Cokriging.on(linear.operator.bases, linear.unexplained, 0.0))
    )
    for model in methods:
        found = quiet(model, (PLACES, READINGS, 0.1)).linear_map()
        other = quiet(model, [(PLACES, one, 0.1) for one in OTHERS])
        np.testing.assert_allclose(found(OTHERS), other.mean(), rtol=0, atol=1e-9)
        np.testing.assert_allclose(np.broadcast_to(found.std, (3, 150)), other.std(), rtol=1e-9)
        np.testing.assert_array_equal(found.places, PLACES)


def test_readings_of_both_sides_and_points_and_fields_of_ones_own(linear):
    wells, u = Linear().points[10:13], np.array([0.1, 0.2, 0.3])
    sensors = {"a": (PLACES, READINGS, 0.1), "p": (wells, u, 0.05)}
    points = Linear().points[20:24] + 1e-3
    found = quiet(linear, **sensors)["a"].linear_map(points)
    assert found.field == "a" and found.read == 5 * ["a"] + 3 * ["p"]
    u = quiet(linear, (PLACES, OTHERS[0], 0.1)).mean(wells)
    other = quiet(linear, a=(PLACES, OTHERS[0], 0.1), p=(wells, u, 0.05))["a"]
    np.testing.assert_allclose(found([*OTHERS[0], *u]), other.mean(points), atol=1e-9)


@pytest.mark.filterwarnings("ignore:invalid value encountered in log")  # of those not taken
def test_files_of_a_layout_give_the_same_and_onnx_computes_it(positive, tmp_path, monkeypatch):
    positive.save(tmp_path / "mine.safetensors")
    monkeypatch.chdir(tmp_path)
    Path("layout.csv").write_text("x,field,noise_std\n0.1,k,0.05\n0.9,f,0.2\n0.4,k,0.1\n")
    readings = np.array([[0.7, -2.0, 1.5], [1.1, 3.0, 0.9]])
    layout = {"x": [0.1, 0.9, 0.4], "field": ["k", "f", "k"], "noise_std": [0.05, 0.2, 0.1]}
    sets = [{**layout, "value": one} for one in readings]
    answer = quiet(positive, sets)
    for name in ("map.npz", "map.onnx"):
        words = ["export", "mine.safetensors", "--sensors", "layout.csv", "-o", name]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
    with np.load("map.npz") as file:
        assert file["logarithm"].tolist() == [True, False, True]
        assert file["read"].tolist() == ["k", "f", "k"] and file["field"] == "u"
        t = np.where(file["logarithm"], np.log(np.abs(readings)), readings)
        mean = t @ file["matrix"].T + file["offset"]
    np.testing.assert_allclose(mean, answer.mean(), atol=1e-9)
    onnx.checker.check_model(onnx.load("map.onnx"), full_check=True)
    mean, std = ReferenceEvaluator("map.onnx").run(None, {"readings": readings})
    np.testing.assert_allclose(mean, answer.mean(), atol=1e-9)
    np.testing.assert_allclose(std, answer.std()[0], rtol=1e-9)
    one = quiet(positive, sets[0]).linear_map()
    with pytest.raises(DataError, match=r"map.txt.*\.npz and \.onnx"):
        one.save("map.txt")
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(MissingLibraryError, match=r"uqsonet\[handover\]"):
        one.save("other.onnx")


def test_what_is_not_linear_is_refused_with_the_reason(linear, pairs):
    shipped = uqsonet.load("diffusion1d").condition([0.1], [1.0])
    with pytest.raises(ObservationError, match=r"not linear .*: the operator has a perceptron\."):
        shipped.linear_map()
    with pytest.raises(ObservationError, match="k has the transform log"):
        shipped["k"].linear_map()
    random = uqsonet.load("elliptic_sde2d")
    random.operator.network = None
    with pytest.raises(ObservationError, match="spread of a random operator"):
        random.condition([[0.2, 0.3]], [5.0]).linear_map()
    with pytest.raises(ObservationError, match="found 2 sets"):
        quiet(linear, [(PLACES, one) for one in OTHERS[:2]]).linear_map()
    nearest = uqsonet.load("poisson2d")
    nearest.operator.network = None
    nearest.operator.use_nearest(torch.zeros(2, 40), torch.zeros(2, 9), 1)
    with pytest.raises(ObservationError, match="outputs of held-out runs"):
        nearest.condition([[0.2, 0.3]], [5.0]).linear_map()
    floor = floor_of(linear, pairs)
    with pytest.raises(ObservationError, match="KernelRegression answers 5 sensors"):
        quiet(replace(linear, floor=floor), (PLACES, READINGS)).linear_map()


def floor_of(model: uqsonet.Emulator, pairs: Functions) -> Floor:
    """Answer any number of sensors by regression with a kernel."""
    kept = kept_pairs(model.bases, pairs)
    choice = {"inputs": {5: "kernel_regression"}}
    return Floor.of(model.operator, model.unexplained, kept, choice)


def test_gradients_of_linear_answers_are_the_rows_of_the_map_under_a_logarithm_too(positive):
    sensors = {"k": ([[0.1], [0.6]], [0.7, 1.5], 0.05), "f": ([[0.3]], [-2.0], 0.1)}
    answer = quiet(positive, **sensors)
    found = answer.gradient()
    matrix = answer.linear_map().matrix
    np.testing.assert_allclose(found, matrix / [0.7, 1.5, 1.0], rtol=1e-9)
    two = [{"x": [0.1, 0.6, 0.3][:m], "field": ["k", "k", "f"][:m], "value": [0.7, 1.5, -2.0][:m],
            "noise_std": [0.05, 0.05, 0.1][:m]} for m in (3, 1)]  # fmt: skip
    batch = quiet(positive, two).gradient()
    assert batch.shape == (2, 15, 3) and not batch[1, :, 1:].any()
    np.testing.assert_allclose(batch[0], found, rtol=1e-9)  # alone and in company


def test_the_gradient_of_a_perceptron_is_that_of_its_samples():
    """The mean of b(a) over a = mean + root z has the gradient E[J(a)] G."""
    model = uqsonet.load("diffusion1d")
    y = torch.tensor([0.8, 1.3, 0.4], dtype=torch.float64)
    places = torch.tensor([[-0.6], [0.1], [0.7]], dtype=torch.float64)
    answer = model.condition(places, y, noise_std=0.1)
    operator, one = model.operator, torch.eye(3, dtype=torch.float64)
    given = operator.input_posterior(places, y, noise_std=0.1)
    moved = [operator.input_posterior(places, y * torch.exp(e), noise_std=0.1) for e in one]
    gain = torch.cat([each.mean - given.mean for each in moved]).T
    a = given.sample(MOMENT_SAMPLES, torch.Generator().manual_seed(MOMENT_SEED))[0]

    def added(step: torch.Tensor) -> torch.Tensor:
        return operator.network(a + step).mean(0)

    jacobian = torch.func.jacrev(added)(torch.zeros(a.shape[1])).detach().double()
    slopes = (operator.straight()[0] + jacobian) @ gain
    _, basis = operator.bases.output_basis(model.outputs[0].domain.points())
    exact = basis @ slopes / y
    np.testing.assert_allclose(answer.gradient(), exact, atol=2e-5 * float(exact.abs().max()))


def test_other_smooth_means_have_a_gradient_and_the_rest_say_why_not(linear, linear_runs, pairs):
    direction = RNG.standard_normal(5)
    model = replace(linear, floor=floor_of(linear, pairs))
    slope = quiet(model, (PLACES, READINGS, 0.1)).gradient() @ direction
    ends = [(PLACES, READINGS + step * direction, 0.1) for step in (0.01, -0.01)]
    up, down = quiet(model, ends).mean()
    np.testing.assert_allclose(slope, (up - down) / 0.02, atol=1e-3 * np.abs(slope).max())
    for law, smooth in (("mixture", True), ("latent", False)):
        model = uqsonet.fit(linear_runs[:150], minutes=0, sensors=[4], law=law, bar=False)
        answer = quiet(model, (PLACES, READINGS, 0.3))
        with pytest.raises(ObservationError, match=f"the law of the input is {law}"):
            answer.linear_map()
        if not smooth:
            with pytest.raises(
                ObservationError, match=f"no gradient .* the law of the input is {law}"
            ):
                answer.gradient()
            continue
        up, down = quiet(model, [(*one[:2], 0.3) for one in ends]).mean()
        slope = answer.gradient() @ direction
        np.testing.assert_allclose(slope, (up - down) / 0.02, atol=1e-2 * np.abs(slope).max())
    with pytest.raises(ObservationError, match="no gradient that is known: k has the transform"):
        uqsonet.load("diffusion1d").condition([0.1], [1.0])["k"].gradient()
    both = uqsonet.load("diffusion1d").condition(k=([0.1], [1.0]), u=([0.3], [0.1], 0.01))
    with pytest.raises(ObservationError, match=r"no gradient that is known: .* perceptron"):
        both.gradient()

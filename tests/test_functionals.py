"""Sensors that read combinations of values: closed forms, plain sensors among them, tables."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from tests.laws.conftest import LAWS
from tests.test_joint import FIELDS, N, X, curved_model, dense, linear_model, pairs
from uqsonet import WeightedPoints
from uqsonet.baselines import build_baseline
from uqsonet.config import KarhunenLoeveNetwork
from uqsonet.data import Functions
from uqsonet.domains import join
from uqsonet.emulator import Emulator
from uqsonet.errors import ObservationError
from uqsonet.fields import Field, Grid, Transform
from uqsonet.laws.choice import input_sample
from uqsonet.laws.mixture import MixtureLaw
from uqsonet.models.karhunen_loeve import KarhunenLoeveModel
from uqsonet.named_fields import NamedField


@pytest.fixture(scope="module")
def linear() -> Emulator:
    return Emulator.around(linear_model())


@pytest.fixture(scope="module")
def curved() -> Emulator:
    return Emulator.around(curved_model())


def average(low: int, high: int) -> Tensor:
    """Return weights (N,) of the mean over some points of the grid."""
    weights = torch.zeros(N, dtype=torch.float64)
    weights[low:high] = 1 / (high - low)
    return weights


def flux(at: int) -> Tensor:
    """Return weights (N,) of a difference quotient."""
    weights = torch.zeros(N, dtype=torch.float64)
    weights[at], weights[at + 1] = -(N - 1), N - 1
    return weights


OF_K = torch.stack([average(3, 11), flux(18)])
OF_U = torch.stack([average(8, N), flux(4)])
VALUES = torch.tensor([0.3, 2.0, 0.1, -0.4], dtype=torch.float64)
NOISE = torch.tensor([0.05, 0.4, 0.01, 0.2], dtype=torch.float64)


def exact(model: Any, weights: Tensor, values: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and covariance of (k, u) given ``weights (k, u)``, by textbook conditioning."""
    mean, covariance = dense(model, [], [], values[:0], noise[:0])
    seen = weights @ covariance
    gain = torch.linalg.solve(seen @ weights.T + torch.diag(noise.square()), seen).T
    return mean + gain @ (values - weights @ mean), covariance - gain @ seen


def test_weights_on_both_sides_give_the_closed_form(linear) -> None:
    model = linear.operator
    weights = torch.block_diag(OF_K, OF_U)
    # What modes leave out differs from point to point; the error of the operator need not.
    left = float(model.bases.input_remainder) * OF_K.norm(dim=1)
    error = model.output_error() * OF_U.abs().sum(1)
    level = (NOISE.square() + torch.cat([left, error]).square()).sqrt()
    mean, covariance = exact(model, weights, VALUES, level)
    found = linear.condition(
        k=(WeightedPoints(X, OF_K), VALUES[:2], NOISE[:2]),
        u=(WeightedPoints(X, OF_U), VALUES[2:], NOISE[2:]),
    )
    assert found.effective_size.isinf()
    for name, rows in (("k", slice(0, N)), ("u", slice(N, 2 * N))):
        torch.testing.assert_close(found[name].mean(), mean[rows], rtol=0, atol=1e-8)
        own = covariance[rows, rows]
        if name == "k":
            own = own + float(model.bases.input_remainder) ** 2 * torch.eye(N)
        torch.testing.assert_close(found[name].covariance(), own, rtol=0, atol=1e-8)
    # What is known of the readings themselves is what the noise leaves.
    known = OF_U @ found["u"].covariance() @ OF_U.T
    assert (known.diagonal().sqrt() < 1.001 * level[2:]).all()


@pytest.mark.parametrize("kind", ["linear", "curved", "mixture", "cokriging", "regression"])
def test_one_point_of_weight_one_is_a_sensor_there(linear, curved, kind: str) -> None:
    emulator = {"linear": linear, "curved": curved}.get(kind)
    if kind == "mixture":
        kappa = torch.from_numpy(LAWS["mixture"](np.random.default_rng(2), 800))
        functions = Functions(FIELDS, "training", kappa.float(), kappa.cumsum(1).float() / N)
        config = KarhunenLoeveNetwork(input_modes=6, output_modes=6, branch=[])
        model = KarhunenLoeveModel(FIELDS, config, 0.0)
        with torch.no_grad():
            model.fit_constants(functions)
        model.use_law(MixtureLaw.fit(input_sample(model, functions), np.random.default_rng(0)))
        emulator = Emulator.around(model.eval())
    elif emulator is None:
        emulator = Emulator.around(build_baseline(kind, pairs(0.0, size=300), 0.0))
    x, y, eye = torch.tensor([[0.23], [0.61]]), torch.tensor([0.2, -0.3]), torch.eye(2)
    noise = torch.tensor([0.1, 0.2])
    weighted = WeightedPoints(torch.cat([x, x + 0.1]), torch.cat([eye, 0 * eye], 1))
    names = "u" if kind == "cokriging" else "ku"
    for sensors in ({"k": (y, noise)}, {"k": (y, noise), "u": (0.1 * y, 0.1 * noise)}):
        ones = (
            emulator.condition(**{name: (places, *rest) for name, rest in sensors.items()})
            for places in (weighted, x)
        )
        first, second = ([one[n] for n in names] for one in ones)
        for one, other in zip(first, second, strict=True):
            torch.testing.assert_close(one.mean(), other.mean(), rtol=1e-12, atol=1e-13)
            torch.testing.assert_close(one.std(), other.std(), rtol=1e-12, atol=1e-13)


def test_a_curved_operator_is_weighted_to_the_reading(curved) -> None:
    """Against all of 200,000 samples of the law without readings, weighted."""
    model, value, noise = curved.operator, 0.12, 0.05
    a = torch.randn(200_000, 6, generator=torch.Generator().manual_seed(5))
    offset, basis = model.bases.output_basis(X)
    with torch.no_grad():
        u = offset + model.branch(a).double() @ basis.T
    weights = average(10, 20)
    level = (noise**2 + model.output_error() ** 2) ** 0.5
    share = torch.softmax(-((value - u @ weights) / level).square() / 2, 0)
    assert 1 / float(share.square().sum()) > 10_000
    mean = share @ u
    std = (share @ (u - mean).square()).sqrt()
    found = curved.condition(u=(WeightedPoints(X, weights), torch.tensor([value]), noise))
    assert float(found.effective_size) > 1000
    assert float((found.mean() - mean).norm() / std.norm()) < 0.05
    assert float((found.std() - std).norm() / std.norm()) < 0.03


TABLE = """x,value,field,noise_std,sensor,weight
0.2,0.5,k,0.1,well,1
0.3,0.1,u,0.02,mean,0.25
0.4,,u,,mean,0.25
0.9,0.10,u,0.02,mean,0.5
0.5,0.4,k,0.3,slope,-10
0.6,0.4,k,,slope,10
"""


def test_rows_of_one_sensor_are_its_points(linear, tmp_path: Path) -> None:
    path = tmp_path / "sensors.csv"
    path.write_text(TABLE)
    k = WeightedPoints([[0.2], [0.5], [0.6]], [[1, 0, 0], [0, -10, 10]])
    u = WeightedPoints([0.3, 0.4, 0.9], [0.25, 0.25, 0.5])
    same = linear.condition(k=(k, [0.5, 0.4], [0.1, 0.3]), u=(u, [0.1], 0.02))
    frame = pd.read_csv(path)
    mapping = {name: frame[name].tolist() for name in frame.columns}
    for table in (path, frame, mapping):
        found = linear.condition(table)
        np.testing.assert_allclose(found["u"].mean(), same["u"].mean(), rtol=1e-12)
        np.testing.assert_allclose(found["k"].std(), same["k"].std(), rtol=1e-12)
    assert found.sensors.mask.sum() == 3 and found.sensors.at_points.sum() == 1


def test_several_sets_have_sensors_of_their_own(linear) -> None:
    """A set has the same answer alone, beside others, and in a table."""
    wide = WeightedPoints(X, OF_K[:1])
    sets = [
        {"k": (wide, [0.3], 0.05)},
        {"k": ([[0.1], [0.7]], [0.2, 0.1], 0.1), "u": (WeightedPoints(X, OF_U), [0.1, 0.2], 0.1)},
        {"k": ([[0.4]], [0.2], 0.1)},
    ]
    together = linear.condition(sets)
    for b, one in enumerate(sets):
        alone = linear.condition(**one)
        for name in "ku":
            np.testing.assert_allclose(together[name].mean()[b], alone[name].mean(), atol=1e-12)
            np.testing.assert_allclose(together[name].std()[b], alone[name].std(), atol=1e-12)
    batch = linear.condition(k=(wide, [[0.3], [0.6]], 0.05))
    np.testing.assert_allclose(batch.mean()[0], linear.condition(**sets[0]).mean(), atol=1e-12)
    rows = [line.split(",") for line in TABLE.splitlines()]
    table = {name: [row[k] for row in rows[1:]] * 2 for k, name in enumerate(rows[0])}
    table["set"] = ["a"] * 6 + ["b"] * 6
    found = linear.condition(table)
    np.testing.assert_array_equal(found.mean()[0], found.mean()[1])
    assert found.sensors.values.shape == (2, 3)


def test_a_sensor_of_several_fields_side_by_side_reads_its_own() -> None:
    scales, parts = (2.0, 0.1), [N // 2, N - N // 2]
    grids = [Grid((0.0,), (1.0,), (size,)) for size in parts]
    joint = replace(FIELDS, input=Field("ab", join(grids)))
    data = pairs(0.0, size=500)
    config = KarhunenLoeveNetwork(input_modes=10, output_modes=10, branch=[])
    model = KarhunenLoeveModel(joint, config, 0.0)
    with torch.no_grad():
        model.fit_constants(
            Functions(joint, "training", data.kappa_rows.whole(), data.u_rows.whole())
        )
    named = [NamedField(n, g, scale=s) for n, g, s in zip("ab", grids, scales, strict=True)]
    output = NamedField("u", joint.output.grid, scale=7.0)
    emulator = Emulator(model.eval(), named, [output], noise_std=0.0)
    for name, scale, grid in zip("ab", scales, grids, strict=True):
        x = grid.points()
        weights = torch.full((1, len(x)), 1 / len(x), dtype=torch.float64)
        found = emulator.condition(**{name: (WeightedPoints(x, weights), [0.4 * scale], 1e-4)})
        assert float(weights[0].numpy() @ found[name].mean()) == pytest.approx(
            0.4 * scale, rel=2e-2
        )


def test_places_know_of_weighted_sensors_that_are_there(linear) -> None:
    given = {
        "k": (WeightedPoints(X, OF_K), VALUES[:2], NOISE[:2]),
        "u": (WeightedPoints(X, OF_U), VALUES[2:], NOISE[2:]),
    }
    found = linear.place(1, given=given, noise_std=0.1)
    std = torch.as_tensor(linear.condition(**given).std())
    share = linear.outputs[0].domain.quadrature()
    expected = float((share / share.sum()) @ std.square())
    assert found.before[0] == pytest.approx(expected, rel=1e-6)
    assert len(found.given) == len(found.given_fields) == int((OF_K != 0).sum() + (OF_U != 0).sum())


def test_pictures(linear, tmp_path: Path) -> None:
    given = {"k": ([[0.2]], [0.1], 0.1), "u": (WeightedPoints(X, OF_U), [0.1, 0.2], 0.1)}
    linear.condition(**given)["u"].plot(tmp_path / "u.png")
    assert (tmp_path / "u.png").read_bytes().startswith(b"\x89PNG")


def test_the_example_of_the_page_runs() -> None:
    page = (Path(__file__).parents[1] / "docs/inverse.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"<!-- functionals -->\n(.*?)<!-- /functionals -->", page, flags=re.S)
    names: dict[str, Any] = {}
    exec(block.strip().removeprefix("```python").removesuffix("```"), names)
    weights = names["disc"].weights
    assert weights @ names["posterior"].mean(names["points"]) == pytest.approx(0.1, abs=0.02)
    table = re.findall(r"^```text\n(\S*,weight\n.*?)^```", page, flags=re.M | re.S)[0]
    columns = zip(*(line.strip().split(",") for line in table.splitlines()), strict=True)
    found = names["model"].condition({name: list(cells) for name, *cells in columns})
    assert found.sensors.mask.sum() == 2 and found.sensors.at_points.sum() == 1


def changed(old: str, new: str) -> str:
    assert old in TABLE
    return TABLE.replace(old, new)


WRONG = [
    (changed(",weight", ",wait"), "did you mean 'weight'?"),
    (TABLE.replace(",sensor", ",set"), "column 'weight', but no column 'sensor'"),
    (
        changed("0.9,0.10", "0.9,0.11"),
        "column 'value', row 2: points of one sensor state 0.1, 0.11",
    ),
    (changed("0.9,0.10,u,0.02", "0.9,0.10,u,0.03"), "column 'noise_std', row 2: points of one"),
    (changed("0.4,,u", "0.4,,k"), "row 3: sensor 'mean' reads two fields"),
    (changed("slope,10", ",10"), "column 'sensor', row 6: no name"),
    (changed("slope,10", "slope,"), "column 'weight', row 6: '' is no number"),
    (changed("well,1\n", "well,0\n"), "weights of a sensor must be finite and not all zero"),
    (changed("0.9,0.10", "1.9,0.10"), "lies outside"),
]


@pytest.mark.parametrize(("table", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_tables_are_refused_in_words(
    linear, tmp_path: Path, table: str, message: str
) -> None:
    path = tmp_path / "sensors.csv"
    path.write_text(table)
    with pytest.raises(ObservationError) as error:
        linear.condition(path)
    assert message in str(error.value)


def test_what_cannot_be_read_is_refused_in_words(linear) -> None:
    wide = WeightedPoints(X, OF_K)
    for sensors, message in (
        (
            (wide, [0.1]),
            r"weights \(m, q\) and values .* of k expected, found \(24, 1\), \(2, 24\)",
        ),
        ((WeightedPoints(X, OF_K * float("nan")), [0.1, 0.2]), "finite and not all zero"),
        ((WeightedPoints(X + 1.5, OF_K), [0.1, 0.2]), "lies outside"),
    ):
        with pytest.raises(ObservationError, match=message):
            linear.condition(k=sensors)
    with pytest.raises(ObservationError, match="a mask goes with sensors at points"):
        linear.condition(wide, [0.1, 0.2], mask=[True, True])
    model = linear.operator
    logs = replace(FIELDS, input=Field("k", FIELDS.input.grid, Transform("log")))
    other = KarhunenLoeveModel(logs, model.config, 0.0)
    other.load_state_dict(model.state_dict())
    log = Emulator.around(other.eval())
    with pytest.raises(ObservationError, match="it knows the logarithm of k"):
        log.condition(k=(wide, [0.1, 0.2]))
    log.condition(k=(WeightedPoints([0.2], [1.0]), [0.3]), u=(WeightedPoints(X, OF_U), [0.1, 0.2]))
    with pytest.raises(ObservationError, match="SensorFree takes sensors at points"):
        Emulator.around(build_baseline("sensor_free", pairs(0.0, size=300), 0.0)).condition(
            k=(wide, [0.1, 0.2])
        )

    class Named:
        name = "thresholded"

    other = linear_model()
    other.law = Named()  # type: ignore[assignment]
    with pytest.raises(
        ObservationError, match="the law 'thresholded' of the input takes sensors at"
    ):
        Emulator.around(other).condition(k=(wide, [0.1, 0.2]))

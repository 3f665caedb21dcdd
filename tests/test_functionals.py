"""Sensors that read combinations of values: closed forms, plain sensors among them, tables."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.test_joint import (
    PARTS,
    SCALES,
    N,
    X,
    curved_model,
    law_of,
    linear_model,
    mixture_model,
    pairs,
    side_by_side,
    textbook,
    under_log,
)
from uqsonet import WeightedPoints
from uqsonet.emulator.emulator import Emulator
from uqsonet.errors import ObservationError
from uqsonet.fields.grid import Grid
from uqsonet_study.baselines import build_baseline


@pytest.fixture(scope="module")
def linear() -> Emulator:
    return Emulator.around(linear_model())


OF_K, OF_U = torch.zeros(2, 2, N, dtype=torch.float64)  # a mean and a difference quotient of each
OF_K[0, 3:11], OF_U[0, 8:] = 1 / 8, 1 / (N - 8)
for weights, at in ((OF_K, 18), (OF_U, 4)):
    weights[1, at], weights[1, at + 1] = -(N - 1), N - 1
VALUES = torch.tensor([0.3, 2.0, 0.1, -0.4], dtype=torch.float64)
NOISE = torch.tensor([0.05, 0.4, 0.01, 0.2], dtype=torch.float64)


def test_weights_on_both_sides_give_the_closed_form(linear) -> None:
    model = linear.operator
    weights = torch.block_diag(OF_K, OF_U)
    # What modes leave out differs from point to point; the error of the operator need not.
    left = float(model.bases.input_remainder) * OF_K.norm(dim=1)
    error = model.output_error() * OF_U.abs().sum(1)
    level = (NOISE.square() + torch.cat([left, error]).square()).sqrt()
    mean, covariance = textbook(*law_of(model), weights, VALUES, level)
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


def test_what_modes_leave_out_is_noise_of_the_norm_of_the_weights() -> None:
    model = linear_model()
    model.bases.input_remainder.fill_(0.3)
    level = (NOISE[:2].square() + (0.3 * OF_K.norm(dim=1)).square()).sqrt()
    weights = torch.cat([OF_K, torch.zeros_like(OF_U)], dim=1)
    mean, _ = textbook(*law_of(model), weights, VALUES[:2], level)
    found = Emulator.around(model).condition(k=(WeightedPoints(X, OF_K), VALUES[:2], NOISE[:2]))
    torch.testing.assert_close(found.mean(), mean[N:], rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["linear", "curved", "mixture", "cokriging", "regression"])
def test_one_point_of_weight_one_is_a_sensor_there(kind: str) -> None:
    models = {"linear": linear_model, "curved": curved_model, "mixture": lambda: mixture_model()[0]}
    baseline = partial(build_baseline, kind, pairs(0.0, size=300), 0.0)
    emulator = Emulator.around(models.get(kind, baseline)())
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


def test_a_sensor_of_several_fields_side_by_side_reads_its_own() -> None:
    emulator = side_by_side()
    for name, scale in SCALES.items():
        x = Grid((0.0,), (1.0,), (PARTS[name],)).points()
        mean = WeightedPoints(x, torch.full((1, len(x)), 1 / len(x), dtype=torch.float64))
        found = emulator.condition(**{name: (mean, [0.4 * scale], 1e-4)})
        assert float(found[name].mean().mean()) == pytest.approx(0.4 * scale, rel=2e-2)


def test_places_know_of_weighted_sensors_that_are_there(linear, tmp_path: Path) -> None:
    given = {
        "k": (WeightedPoints(X, OF_K), VALUES[:2], NOISE[:2]),
        "u": (WeightedPoints(X, OF_U), VALUES[2:], NOISE[2:]),
    }
    found, answer = linear.place(1, given=given, noise_std=0.1), linear.condition(**given)
    share = linear.outputs[0].domain.quadrature()
    expected = float((share / share.sum()) @ torch.as_tensor(answer.std()).square())
    assert found.before[0] == pytest.approx(expected, rel=1e-6)
    assert len(found.given) == len(found.given_fields) == int((OF_K != 0).sum() + (OF_U != 0).sum())
    answer["u"].plot(tmp_path / "u.png")
    assert (tmp_path / "u.png").read_bytes().startswith(b"\x89PNG")


def test_the_example_of_the_page_runs() -> None:
    page = (Path(__file__).parents[1] / "docs/inverse.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^## Averages, fluxes.*?```python\n(.*?)```", page, flags=re.M | re.S)
    names: dict[str, Any] = {}
    exec(block, names)
    weights = names["disc"].weights
    assert weights @ names["posterior"].mean(names["points"]) == pytest.approx(0.1, abs=0.02)


def test_what_cannot_be_read_is_refused_in_words(linear) -> None:
    wide, values = WeightedPoints(X, OF_K), [0.1, 0.2]
    for sensors, message in (
        (
            (wide, [0.1]),
            r"weights \(m, q\) and values .* of k expected, found \(24, 1\), \(2, 24\)",
        ),
        ((WeightedPoints(X, OF_K * float("nan")), values), "finite and not all zero"),
        ((WeightedPoints(X + 1.5, OF_K), values), "lies outside"),
    ):
        with pytest.raises(ObservationError, match=message):
            linear.condition(k=sensors)
    with pytest.raises(ObservationError, match="a mask goes with sensors at points"):
        linear.condition(wide, values, mask=[True, True])
    log = under_log(linear.operator)
    log.condition(k=(WeightedPoints([0.2], [1.0]), [0.3]), u=(WeightedPoints(X, OF_U), values))
    other = linear_model()
    other.law = SimpleNamespace(name="latent", reads_functionals=False)  # type: ignore[assignment]
    baseline = build_baseline("sensor_free", pairs(0.0, size=300), 0.0)
    for emulator, message in (
        (log, "it knows k under log"),
        (Emulator.around(baseline), "sensor_free takes sensors at points"),
        (Emulator.around(other), "the law 'latent' of the input takes sensors at"),
    ):
        with pytest.raises(ObservationError, match=message):
            emulator.condition(k=(wide, values))

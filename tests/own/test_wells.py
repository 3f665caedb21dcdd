"""Sensors that read outputs, as people have them: wells read heads, gauges read strain.

`fit` is told so, `validate` scores them, bands are calibrated for them, and noise goes by field.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import uqsonet
from tests.own.conftest import quiet, waves
from uqsonet import Runs
from uqsonet.cli import main
from uqsonet.errors import ConfigError, DataWarning, ObservationError, ObservationWarning

LINE = np.linspace(0, 1, 41)
WELLS = LINE[[4, 12, 20, 28, 36]]


def fields(size: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return inputs k, and two outputs that are linear in them."""
    k = np.random.default_rng(seed).standard_normal((size, 8)) @ waves(LINE[:, None], 8, 1).T
    return k, np.cumsum(k, 1) / 41, np.gradient(k, axis=1)


def runs(size: int, seed: int) -> Runs:
    k, head, flow = fields(size, seed)
    return Runs({"k": k}, {"head": head, "flow": flow})


def runs_of(k: np.ndarray, head: np.ndarray) -> Runs:
    return Runs({"k": k}, {"head": head})


@pytest.fixture(scope="module")
def model() -> uqsonet.Emulator:
    return uqsonet.fit(runs(240, 0), sensors={"head": WELLS}, noise_std=0.01, bar=False)


def test_sensors_without_a_name_read_what_the_model_was_fitted_for(model):
    places, values = WELLS, np.linspace(-0.1, 0.1, len(WELLS))
    unnamed, named = model.condition(places, values), model.condition(head=(places, values))
    np.testing.assert_array_equal(unnamed["head"].mean(), named["head"].mean())
    assert "0.01 of head (standard deviation" in str(model)
    assert set(model.place(1, target="head").fields) == {"head"}


def test_a_model_knows_which_fields_will_be_read(model: uqsonet.Emulator, tmp_path: Path) -> None:
    assert list(model.card["recipe"]["sensors"]) == ["head"]
    np.testing.assert_allclose(model.card["recipe"]["sensors"]["head"], WELLS[:, None])
    assert model.noise_std == {"head": 0.01} and model.default_noise(0) == 0.0
    rows = {row["read"]: row["sensors"] for row in model.card["recipe"]["answers"]}
    assert rows["outputs"] == [5]
    model.save(tmp_path / "m.safetensors")
    again = uqsonet.load(tmp_path / "m.safetensors")
    at, read = WELLS[:, None], fields(1, 3)[1][0, [4, 12, 20, 28, 36]]
    for one, other in zip(
        quiet(model, head=(at, read))["k"].band(0.8),
        quiet(again, head=(at, read))["k"].band(0.8),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("size", [60, 240])
def test_bands_of_all_fields_hold_given_wells(size: int) -> None:
    """The number of runs decides who calibrates: runs in turn, or some that are kept apart."""
    found = uqsonet.fit(runs(size, 0), sensors={"head": WELLS}, noise_std=0.01, bar=False)
    k, head, flow = fields(300, 1)
    noise = 0.01 * np.random.default_rng(2).standard_normal((300, 5))
    places = np.broadcast_to(WELLS[:, None], (300, 5, 1))
    answer = quiet(found, head=(places, head[:, [4, 12, 20, 28, 36]] + noise))
    calibrating = len(found.calibration)
    for name, truth in {"k": k, "head": head, "flow": flow}.items():
        lower, upper = answer[name].band(0.8)
        plain = answer[name].band(0.8, kind="plain")
        assert not np.array_equal(lower, plain[0]), "a conformal band"
        shares = ((truth >= lower) & (truth <= upper)).mean(1)
        error = shares.std() * (1 / 300 + 1 / calibrating) ** 0.5
        assert 0.8 - 3 * error < shares.mean() < 0.8 + 3 * error + 0.05


def test_sensors_of_outputs_are_scored_beside_no_sensors(model: uqsonet.Emulator) -> None:
    fresh = runs(40, 5)
    report = model.validate(fresh, {"head": [2, 8]}, noise_std={"head": 0.02})
    crps = {(s.method, s.field, s.sensors): s.crps for s in report.scores}
    for name in ("head", "flow"):
        assert crps["uqsonet", name, 8] < crps["uqsonet", name, 2]
        assert crps["uqsonet", name, 2] < crps["sensor_free", name, 2]
    usual = model.validate(fresh)
    assert {s.sensors for s in usual.scores} == {5}, "what the model was fitted for"
    both = model.validate(fresh, {"head": 3, "k": 2})
    assert {s.sensors for s in both.scores} == {5}
    alone = model.validate(fresh, {"head": 3})
    better, worse = ({s.method: s for s in one.scores}["uqsonet"] for one in (both, alone))
    assert better.crps < worse.crps


@pytest.mark.parametrize(
    ("sensors", "noise", "message"),
    [
        ({"heat": 3}, None, "'heat' is unknown; there are k, head, flow.*mean 'head'"),
        ({"head": 99}, None, "counts must be from 1 to 41, found 99"),
        ({"head": [1, 2], "k": 3}, None, "as many numbers for each field"),
        ({"head": [[2.0]]}, None, "outside the domain"),
        ({"head": [[0.1, 0.2]]}, None, r"places of shape \(m, 1\)"),
        ({}, None, "an empty mapping"),
        ({"head": 3}, {"heat": 0.1}, "noise_std: field 'heat' is unknown"),
        ({"head": 3}, {"head": -0.1}, "not negative"),
    ],
)
def test_wrong_plans_are_refused(
    model: uqsonet.Emulator, sensors: object, noise: object, message: str
) -> None:
    for ask in (
        lambda: model.validate(runs(10, 1), sensors, noise_std=noise),
        lambda: uqsonet.fit(runs(40, 1), sensors=sensors, noise_std=noise or 0.0, bar=False),
    ):
        with pytest.raises((ConfigError, ObservationError), match=message):
            ask()


def test_noise_goes_by_field_and_more_than_the_field_is_doubted(model: uqsonet.Emulator) -> None:
    at, read = WELLS[:, None], fields(1, 3)[1][0, [4, 12, 20, 28, 36]]
    sensors = {"head": (at, read), "k": ([[0.5]], [0.3])}
    stated = {"head": (at, read, 0.05), "k": ([[0.5]], [0.3], 0.2)}
    one, other = (
        model.condition(sensors, noise_std={"head": 0.05, "k": 0.2}),
        model.condition(stated),
    )
    np.testing.assert_array_equal(one["flow"].std(), other["flow"].std())
    with pytest.warns(ObservationWarning, match="noise_std of head is 5, more than"):
        model.condition(sensors, noise_std={"head": 5.0})
    with pytest.warns(DataWarning, match="noise_std of flow is 500, more than .* other units"):
        uqsonet.fit(runs(30, 0), sensors={"head": 3}, noise_std={"flow": 500.0}, bar=False)


def test_the_card_says_where_the_operator_is_less_exact_than_its_sensors() -> None:
    k, head, _ = fields(60, 0)
    bent = np.tanh(3 * head) + 0.1 * k[:, ::-1] ** 2
    found, given = Runs({"k": k}, {"u": bent}), {"sensors": {"u": 5}, "law": "gaussian"}
    for noise, told in ((1e-3, True), (0.7, False)):
        model = uqsonet.fit(found, noise_std=noise, bar=False, **given)
        assert any("what the operator leaves over" in text for text in model.card["limits"]) == told


def test_from_files_to_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, seed in (("old.npz", 0), ("new.npz", 1)):
        k, head, _ = fields(60, seed)
        np.savez(name, k=k, head=head, x=LINE)
    Path("wells.csv").write_text("x\n" + "\n".join(map(str, WELLS)) + "\n", encoding="utf-8")

    def run(line: str) -> None:
        monkeypatch.setattr("sys.argv", ["uqsonet", *line.split()])
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code

    run(
        "fit old.npz --input k --output head -o m.safetensors --sensors wells.csv --field head "
        "--noise-std head=0.01"
    )
    assert uqsonet.load("m.safetensors").noise_std == {"head": 0.01}
    capsys.readouterr()
    run("validate m.safetensors new.npz --csv table.csv --sensors 2,6 --field head")
    table = Path("table.csv").read_text(encoding="utf-8")
    assert "uqsonet,head,6," in table and "conformal_90" in table


def test_samples_are_as_rough_as_the_runs() -> None:
    """What modes leave out of runs is drawn from what they left out of other runs."""
    kinks = np.abs(LINE - np.random.default_rng(0).random((300, 1)))
    k, u = kinks, np.sqrt(kinks)
    model = uqsonet.fit(
        Runs({"k": k[:250]}, {"u": u[:250]}), sensors=[3], law="gaussian", bar=False
    )
    places = np.broadcast_to(LINE[[8, 20, 32], None], (50, 3, 1))
    answer = quiet(model, places, k[250:, [8, 20, 32]])
    steps = np.diff(answer.sample(40), axis=-1)
    left = model.remainder
    assert left is not None and left[1].shape[1] > 1
    assert 0.7 < steps.std() / np.diff(u, axis=1).std() < 1.3
    drawn = answer.sample(4000).std(1)
    assert np.abs(drawn / answer.std() - 1).max() < 0.1
    one = quiet(model, places[0], k[250, [8, 20, 32]])
    covariance = np.cov(one.sample(20000).T)
    assert np.abs(covariance - one.covariance()).max() < 0.05 * covariance.max()


def test_samples_that_are_not_like_the_runs_are_noticed() -> None:
    """The runs to learn from are rough and large; of others, some are smooth and some small."""
    k, head, _ = fields(260, 0)
    noise = 0.1 * head.std() * np.random.default_rng(1).standard_normal(head.shape)
    model = uqsonet.fit(runs_of(k[:200], (head + noise)[:200]), sensors=[2], bar=False)
    k, head, noise = k[200:], head[200:], noise[200:]
    like, smooth, small, few = (
        model.validate(runs_of(k[:size], values[:size]))
        for values, size in ((head + noise, 60), (head, 60), (0.1 * (head + noise), 60), (head, 9))
    )
    texts = "times as rough as the runs", "of the samples' values leave the range of the runs"
    assert [text in str(like) for text in texts] == [False, False]
    assert smooth.scores[0].roughness > 1.25 and texts[0] in str(smooth)
    assert small.scores[0].outside > 0.05 and texts[1] in str(small)
    assert np.isnan(few.scores[0].outside) and texts[1] not in str(few)
    assert like.scores[0].outside < 0.02 and 0.9 < like.scores[0].roughness < 1.1


def test_runs_without_an_open_value_have_no_share_of_bands() -> None:
    """It does not rain in some runs, and near ones say so: the other runs count alone."""
    k, head, _ = fields(200, 0)
    rain = uqsonet.FieldRuns.of(np.maximum(head - 0.2, 0), transform="identity")
    model = uqsonet.fit(Runs({"k": k}, {"rain": rain}), sensors=[2], law="gaussian", bar=False)
    assert all(np.isfinite(row["plain_90"]) for row in model.card["scores"])

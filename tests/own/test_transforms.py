"""Outputs under a transform, outputs that are single numbers, and outputs at an end of a range."""

from pathlib import Path

import numpy as np
import pytest
import torch

import uqsonet
from uqsonet.errors import ConfigError, DataError
from uqsonet.fields.field import Transform
from uqsonet.gauss.metrics import ascending, crps
from uqsonet.show.explore import page

X = np.linspace(0, 1, 20)
PLACES = X[[3, 9, 15]]


def smooth(rng: np.random.Generator, size: int, modes: int = 5) -> np.ndarray:
    a = rng.standard_normal((size, modes))
    return np.stack([np.cos(np.pi * k * X) / (1 + k) for k in range(modes)]).T @ a.T


def inputs(seed: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return smooth(rng, size).T, smooth(rng, size, 3).T


def rain(seed: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs, and outputs that are zero at more than half of all points."""
    k, other = inputs(seed, size)
    return k, 10 * np.maximum(0, np.cumsum(k, 1) / 10 + 0.3 * other - 0.2) ** 1.5


def numbers(seed: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return inputs, and two positive numbers of each run over decades."""
    k, other = inputs(seed, size)
    flux = 1e-5 * np.exp(2 * k.mean(1) + 0.2 * other[:, 0])
    return k, flux, 10 / flux


def fit(outputs: dict[str, object], k: np.ndarray) -> uqsonet.Emulator:
    runs = uqsonet.Runs({"k": (k, X)}, outputs)
    return uqsonet.fit(runs, sensors=[3], bar=False, law="gaussian")


def test_transforms_are_their_own_inverses_and_files_hold_them(tmp_path: Path):
    x = torch.tensor([-30.0, -1e-3, 0.0, 2.0, 1e6], dtype=torch.float64)
    one = Transform("asinh", 0.3)
    assert torch.allclose(one.inverse(one.forward(x)), x, rtol=1e-12, atol=1e-15)
    ended = Transform("identity", lower=0.0, upper=10.0)
    assert ended.inverse(x).tolist() == [0, 0, 0, 2, 10]
    assert Transform().linear and not one.linear and not ended.linear
    for wrong in ({"name": "sqrt"}, {"unit": 0.0}, {"lower": 1.0, "upper": 1.0}):
        with pytest.raises(ValueError, match=r"transform|unit"):
            Transform(**wrong)
    k, u = rain(0, 80)
    model = fit({"u": (u, X)}, k)
    model.save(tmp_path / "model.safetensors")
    again = uqsonet.load(tmp_path / "model.safetensors")
    assert again.outputs[0].transform == model.outputs[0].transform
    assert again.outputs[0].transform.lower == 0
    found = [one.condition(PLACES, k[0, [3, 9, 15]]).sample(9) for one in (model, again)]
    assert found[0].tobytes() == found[1].tobytes()
    with pytest.raises(ConfigError, match="u cannot be explored"):
        page(model, "rain")


def test_single_numbers_over_decades_are_known_by_their_logarithm():
    k, flux, time = numbers(0, 400)
    model = fit({"flux": flux, "time": time}, k)
    assert [one.transform.name for one in model.outputs] == ["log", "log"]
    assert model.card["recipe"]["transforms"] == {"k": "identity", "flux": "log", "time": "log"}
    k, flux, time = numbers(1, 100)
    posterior = model.condition(np.repeat(PLACES[None], 100, 0), k[:, [3, 9, 15]])
    plain = fit({"flux": uqsonet.FieldRuns.of(numbers(0, 400)[1], transform="identity")},
                numbers(0, 400)[0])  # fmt: skip
    other = plain.condition(np.repeat(PLACES[None], 100, 0), k[:, [3, 9, 15]])
    for name, truth in (("flux", flux), ("time", time)):
        lower, upper = posterior[name].band(0.9)
        assert lower.shape == (100, 1) and float(lower.min()) > 0
        inside = (truth[:, None] >= lower) & (truth[:, None] <= upper)
        assert 0.8 < float(inside.mean()) <= 1
    scores = [
        np.mean([crps(ascending(torch.from_numpy(s)), torch.tensor([t]))
                 for s, t in zip(one["flux"].sample(400), flux, strict=True)])
        for one in (posterior, other)
    ]  # fmt: skip
    assert scores[0] < 0.8 * scores[1]
    with pytest.raises(DataError, match="positive under log"):
        uqsonet.FieldRuns.of(flux - 1, transform="log")


def test_dry_points_of_an_output_are_as_many_as_in_truth():
    k, u = rain(0, 400)
    model = fit({"u": (u, X)}, k)
    k, u = rain(1, 300)
    posterior = model.condition(np.repeat(PLACES[None], 300, 0), k[:, [3, 9, 15]])
    samples = posterior.sample(100)
    assert samples.min() == 0
    dry, truth = samples == 0, u == 0
    assert abs(dry.mean() - truth.mean()) < 0.04
    share = dry.mean(1)
    for low, high in ((0.0, 0.2), (0.2, 0.8), (0.8, 1.0)):
        here = (share >= low) & (share <= high)
        assert abs(share[here].mean() - truth[here].mean()) < 0.1
    for kind in ("plain", "conformal"):
        lower, upper = posterior.band(0.9, kind=kind)
        assert lower.min() >= 0 and ((u >= lower) & (u <= upper)).mean() > 0.87
    assert np.abs(posterior.mean() - samples.mean(1)).mean() < 0.1 * u.std()


def test_heavy_tails_of_either_sign_are_tried_and_taken_only_where_scores_say_so():
    k, _ = inputs(0, 200)
    u = np.sinh(3 * np.cumsum(k, 1) / 10)
    assert fit({"u": (u, X)}, k).outputs[0].transform.name == "asinh"
    assert "transform asinh" in str(uqsonet.Runs({"k": (k, X)}, {"u": (u, X)}).describe())
    assert fit({"u": (np.cumsum(k, 1), X)}, k).outputs[0].transform == Transform()

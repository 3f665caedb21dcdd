"""Outputs that jump: what the operator leaves over comes from held-out runs with near answers."""

import numpy as np
import pytest

import uqsonet
from tests.laws.conftest import SMALL, gaussian_fields, kernel
from uqsonet.errors import ConfigError
from uqsonet.fitting import choose_answer as nearest
from uqsonet.fitting import comparison
from uqsonet.fitting import fit as fitting
from uqsonet.show.explore import page


def fronts(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return smooth fields k, and steps whose place is a function of k."""
    k = gaussian_fields(np.random.default_rng(6), size, kernel(0.5))
    x = SMALL.points().numpy()[:, 0]
    place = 0.5 + 0.4 * np.tanh(k[:, :12].mean(1))
    return k, (x < place[:, None]).astype(float)


@pytest.fixture(scope="module")
def model() -> uqsonet.Emulator:
    k, u = fronts(1200)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "score", lambda *_, **__: [[]])
        patch.setattr(comparison, "DRAWS", 64)
        patch.setattr(nearest, "TRIED", (8,))
        patch.setattr(nearest, "MIN_UNSCORED", 90)
        runs = uqsonet.Runs({"k": (k, SMALL)}, {"u": (u, SMALL)})
        return uqsonet.fit(runs, sensors=[4], bar=False, law="gaussian")


def test_samples_of_fronts_are_fronts(model, tmp_path):
    assert model.card["recipe"]["nearest"] == 8
    model.save(tmp_path / "fronts.safetensors")
    again = uqsonet.load(tmp_path / "fronts.safetensors")
    k, u = fronts(1220)
    at = [2, 5, 8, 11]
    answers = [one.condition(SMALL.points()[at], k[1200:, at]) for one in (model, again)]
    assert np.array_equal(*(np.asarray(one.sample(5, rng=1)) for one in answers))
    drawn = np.asarray(answers[0].sample(200, rng=2))
    assert np.isin(drawn.round(5), (0, 1)).all()
    assert (np.diff(drawn, axis=-1) < 1e-5).all()  # each of them falls once
    low, high = np.asarray(answers[0].quantile([0.05, 0.95])).swapaxes(0, 1)
    u = u[1200:]
    unsure = low < high - 0.5
    assert unsure.any() and ((u > low - 1e-5) & (u < high + 1e-5)).mean() > 0.9
    alone = model.condition(SMALL.points()[at], k[1200, at])
    assert np.asarray(alone.mean()) == pytest.approx(np.asarray(answers[0].mean())[0], abs=1e-9)
    assert np.asarray(alone.mean()) == pytest.approx(drawn[0].mean(0), abs=0.12)
    with pytest.raises(ConfigError, match="fronts"):
        page(model, "fronts")


def test_an_operator_without_a_rest_keeps_all_pairs():
    k, _ = fronts(1200)
    runs = uqsonet.Runs({"k": (k, SMALL)}, {"u": (np.cumsum(k, 1), SMALL)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "score", lambda *_, **__: [[]])
        model = uqsonet.fit(runs, sensors=[4], bar=False, law="gaussian")
    assert "nearest" not in model.card["recipe"] and not model.operator.config.nearest

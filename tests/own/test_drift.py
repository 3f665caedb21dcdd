"""Fields with a level and a scale that no run has."""

import numpy as np
import pytest

import uqsonet
from uqsonet.errors import ConfigError
from uqsonet.fitting.drift import LEVELS, SCALES

X = np.linspace(0, 1, 25)


def fields(size: int, seed: int, rough: float = 1.0) -> np.ndarray:
    """Draw smooth fields (size, 25) that begin at zero, so that no sum of them is a constant."""
    waves = np.sin(np.outer(np.arange(1, 6), 2 * X)) / np.arange(1, 6)[:, None]
    return rough * np.random.default_rng(seed).standard_normal((size, 5)) @ waves


@pytest.fixture(scope="module")
def model() -> uqsonet.Emulator:
    runs = uqsonet.Runs({"t": (fields(150, 0) + 10, X[:, None])}, None, name="years")
    return uqsonet.fit(runs, sensors=[3], noise_std=0.02, drift=True, bar=False)


def mixture(model: uqsonet.Emulator, at: list[int], y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and std by the formulas of a mixture of Gaussian laws of the field itself."""
    bases, scale = model.operator.bases, model.inputs[0].scale  # type: ignore[union-attr]
    factor = scale * bases.input_factor.double().numpy()
    plain, mean = factor[:, :-1] @ factor[:, :-1].T, scale * bases.input_mean.numpy()
    size = np.square(factor).sum(1).mean()
    noise = 0.02**2 + (scale * float(bases.input_remainder)) ** 2
    weights, means, squares = [], [], []
    for level, share in LEVELS.items():
        for variance, other in SCALES.items():
            # The mode of what is left of a constant is in the law of the runs, too.
            law = variance * (plain + np.outer(factor[:, -1], factor[:, -1]) + level * size)
            seen = law[np.ix_(at, at)] + noise * np.eye(len(at))
            off = y - mean[at]
            gain = np.linalg.solve(seen, law[at]).T
            means.append(mean + gain @ off)
            squares.append(np.diag(law - gain @ law[at]))
            log = np.linalg.slogdet(seen)[1]
            weights.append(np.log(share * other) - (log + off @ np.linalg.solve(seen, off)) / 2)
    w = np.exp(np.array(weights) - max(weights))
    w, m = w / w.sum(), np.array(means)
    centre = w @ m
    return centre, np.sqrt(w @ (np.array(squares) + (m - centre) ** 2))


@pytest.mark.parametrize(("level", "rough"), [(0.0, 1.0), (4.0, 1.0), (-2.0, 2.5)])
def test_readings_find_level_and_scale_by_their_evidence(model, level, rough):
    truth, at = fields(1, 7, rough)[0] + 10 + level, [2, 11, 16, 23]
    answer = model.condition(X[at, None], truth[at])
    mean, std = mixture(model, at, truth[at])
    size = float(np.std(fields(150, 0)))
    assert np.abs(answer.mean() - mean).max() < 1e-3 * size
    left = model.remainder[1].norm(dim=1).double().numpy() * model.outputs[0].scale
    rest = np.diag(model.operator.residual_covariance.numpy()).sum()  # of an operator that copies
    assert rest < 1e-4 and np.abs(answer.std() - np.hypot(std, left)).max() < 0.01 * size


def test_fields_of_another_level_are_answered_and_those_of_the_runs_not_worse(model, tmp_path):
    runs = uqsonet.Runs({"t": (fields(150, 0) + 10, X[:, None])}, None)
    usual = uqsonet.fit(runs, sensors=[3], noise_std=0.02, law="gaussian", bar=False)
    at, errors = [1, 4, 8, 11, 14, 17, 20, 23], {}
    for level in (0.0, 3.0):
        truth = fields(100, 1) + 10 + level
        places = np.broadcast_to(X[at, None], (100, len(at), 1))
        for name, one in (("usual", usual), ("drift", model)):
            answer = one.condition(places, truth[:, at])
            lower, upper = answer.band(0.9, kind="plain")
            held = ((truth >= lower) & (truth <= upper)).mean()
            errors[name, level] = np.sqrt(np.square(answer.mean() - truth).mean()), held
    assert errors["drift", 3.0][0] < errors["usual", 3.0][0] / 2
    assert errors["drift", 0.0][0] < 1.2 * errors["usual", 0.0][0]
    assert errors["drift", 3.0][1] > 0.85 and errors["drift", 0.0][1] > 0.85

    model.save(tmp_path / "drift.safetensors")
    again = uqsonet.load(tmp_path / "drift.safetensors")
    pair = (one.condition(X[at, None], fields(1, 3)[0, at] + 13) for one in (model, again))
    np.testing.assert_array_equal(*(one.sample(3) for one in pair))
    assert again.card["recipe"]["drift"] and not again.calibration


def test_other_outputs_do_not_move_with_what_no_run_has():
    k = fields(150, 0)
    runs = uqsonet.Runs({"k": (k, X[:, None])}, {"u": (np.cumsum(k, 1), X[:, None])})
    model = uqsonet.fit(runs, sensors=[5], drift=True, bar=False)
    assert not bool(model.operator.bases.linear_weight[:, -1].any())  # type: ignore[union-attr]
    at = [2, 11, 16, 23]
    one, other = (model.condition(X[at, None], k[0, at] + level) for level in (0.0, 5.0))
    assert np.abs(other["k"].mean() - one["k"].mean() - 5).max() < 0.5
    assert np.isfinite(other["u"].std()).all()


def test_another_law_is_refused():
    with pytest.raises(ConfigError, match="drift=True is for the law 'gaussian'"):
        uqsonet.fit(uqsonet.Runs({"t": fields(40, 0)}, None), law="mixture", drift=True)

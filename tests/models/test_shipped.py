"""The operators that come with the package: found by name, and sound on fresh pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import uqsonet
from uqsonet.errors import DataError
from uqsonet.models.weights import load, shipped, weight_path
from uqsonet.problems import get_problem
from uqsonet.storage.weights import read_weights

NAMES = ("diffusion1d", "elliptic_sde1d", "elliptic_sde2d", "navier_stokes", "poisson2d")
PAIRS, SENSORS = 60, 4


def test_all_are_there_and_small() -> None:
    assert tuple(shipped()) == NAMES
    assert sum(path.stat().st_size for path in shipped().values()) < 10_500_000


@pytest.mark.parametrize("name", NAMES)
def test_bands_hold_the_truths_of_fresh_pairs_and_are_narrower_than_without_sensors(
    name: str,
) -> None:
    model, problem = load(name), get_problem(name)
    kappa, u = problem.sample(np.random.default_rng(5), PAIRS)
    chance = torch.Generator().manual_seed(5)
    index = torch.randint(problem.grid.size, (PAIRS, SENSORS), generator=chance)
    x, y = problem.grid.points()[index], kappa.gather(1, index)
    posterior = model.condition(x, y)
    mean, std = posterior.mean(), posterior.std()
    # Sensors that are all noise are none.
    prior = model.condition(x[:1], y[:1], noise_std=1e6)
    prior_mean, prior_std = prior.mean()[0], prior.std()[0]
    assert mean.isfinite().all() and std.isfinite().all() and (std >= 0).all()
    # What no sensor sees dominates where the operator is random: the gain is small there.
    gain = 1.0 if model.fields.random_operator else 0.95
    assert std.mean() < gain * prior_std.mean()
    seen = prior_std > 0.01 * prior_std.max()
    for centre, spread in ((mean, std), (prior_mean, prior_std)):
        scaled = ((u - centre) / spread)[:, seen].square().mean()
        assert 0.7 < scaled < 1.4
    error, prior_error = ((u - centre).square().mean() for centre in (mean, prior_mean))
    assert error < gain * prior_error


@pytest.mark.parametrize("name", NAMES)
def test_a_card_says_what_it_must(name: str) -> None:
    _, meta = read_weights(shipped()[name])
    card, problem = meta["card"], get_problem(name)
    assert card["title"] == problem.title
    assert f"{meta['training']:,} training pairs" in card["data"]
    assert card["recipe"].startswith("Recipe tuned")
    for row in card["scores"]:
        assert all(isinstance(value, int | float) for value in row.values())
        assert 0.05 < row["err_mean"] < 2 < row["no_sensors_err_mean"] < 50
        assert row["err_std"] < row["no_sensors_err_std"]
        assert 0.4 < row["coverage_50"] < 0.6 < row["coverage_90"] < row["coverage_95"] < 1
    tested = [row["sensors"] for row in card["scores"] if row["noise_std"] == 0]
    assert tested == list(range(1, (11 if problem.grid.dim == 1 else 5)))
    limits = "\n".join(card["limits"])
    for word in ("Domain: [", "Noise:", "Sensors:", "Gaussian field", "no conformal band"):
        assert word in limits
    assert ("log k" in limits) == problem.transform.positive
    # Weights whose full file is not published repeat a published training, and do as well.
    assert ("repetition" in card["recipe"]) == ("repeated" in card)
    for ours, published in card.get("repeated", {}).values():
        assert ours == pytest.approx(published, abs=0.01)
    low, high = card["typical_input"]
    values = problem.sample(np.random.default_rng(1), 40)[0]
    inside = ((values > low) & (values < high)).double().mean()
    assert inside == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("name", NAMES)
def test_answers_differ_little_from_those_of_the_full_file(name: str) -> None:
    difference = read_weights(shipped()[name])[1]["card"]["difference"]
    for kind in ("random", "clustered"):
        for what in ("mean", "std", "sample"):
            assert difference[kind][what]["median"] < 1e-3
            assert difference[kind][what]["largest"] < 5e-3


@pytest.mark.parametrize("name", NAMES)
def test_the_line_of_use_in_the_documents_runs(name: str) -> None:
    text = (Path(__file__).parents[2] / "docs/api.md").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if f'load("{name}").condition' in line]
    std = eval(line.strip(), {"uqsonet": uqsonet})
    assert std.shape == (get_problem(name).grid.size,) and std.max() > 0


@pytest.mark.parametrize(
    ("name", "hint"),
    [("navier", True), ("Navier-Stokes", True), ("navier_stoke", True), ("xyz", False)],
)
def test_an_unknown_name_is_answered_by_those_there_are(name: str, hint: bool) -> None:
    with pytest.raises(DataError) as caught:
        uqsonet.load(name)
    message = str(caught.value)
    assert repr(name) in message and ", ".join(NAMES) in message
    assert message.endswith("did you mean 'navier_stokes'?") == hint


def test_a_trial_that_is_not_there_is_named() -> None:
    with pytest.raises(DataError, match=r"poisson2d.*has trials \[0\], asked for 2"):
        uqsonet.load("poisson2d", trial=2)


def test_what_exists_under_a_name_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert weight_path("poisson2d") == shipped()["poisson2d"]
    with pytest.raises(DataError, match=r"no/file\.safetensors: no such file"):
        uqsonet.load("no/file.safetensors")
    Path("poisson2d").mkdir()
    with pytest.raises(DataError, match="poisson2d: holds 0 weight files"):
        uqsonet.load("poisson2d")
    Path("poisson2d/one.safetensors").touch()
    assert weight_path("poisson2d") == Path("poisson2d/one.safetensors")

"""The weights of the package are made again from the published trainings and scores."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import uqsonet
from uqsonet.errors import DataError
from uqsonet.models.weights import shipped
from uqsonet.storage.weights import read_weights
from uqsonet_study import ship as shipping
from uqsonet_study.cli import app, read_config
from uqsonet_study.report.cards import OPERATORS, card
from uqsonet_study.ship import ship, trainings_of

ROOT = Path(__file__).resolve().parents[2]
CONFIG = read_config([ROOT / "config.yaml"])
PUBLISHED = ROOT / "published"


def training_of(name: str) -> Path:
    """Where a folder of results has the first training behind an operator."""
    return trainings_of(name, CONFIG)[0]


FULL = [name for name in OPERATORS if (PUBLISHED / training_of(name)).is_file()]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command makes, with a short comparison."""
    out = tmp_path_factory.mktemp("weights")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shipping, "SETS", 3)
        words = ["ship", str(PUBLISHED), "--config", str(ROOT / "config.yaml")]
        words += ["--published", str(PUBLISHED), "--out", str(out)]
        result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [str(out / f"{name}.safetensors") for name in FULL]
    return out


def test_four_operators_have_their_full_weights_in_this_repository() -> None:
    assert set(FULL) == {*OPERATORS} - {"elliptic_sde2d"}
    assert sorted(OPERATORS) == sorted(shipped())


@pytest.mark.parametrize("name", FULL)
def test_the_weights_of_the_package_are_made_again(name: str, made: Path) -> None:
    """To the rounding of another processor; the comparison in a card may differ by more."""
    (ours, header), (found, again) = (
        read_weights(path) for path in (shipped()[name], made / f"{name}.safetensors")
    )
    comparison = header["card"].pop("difference"), again["card"].pop("difference")
    assert header == again
    assert ours.keys() == found.keys()
    for key, tensor in ours.items():
        scale = tensor.double().abs().max().clamp_min(1e-300)
        torch.testing.assert_close(found[key] / scale, tensor / scale, rtol=0, atol=2e-6)
    for kind in ("random", "clustered"):
        for what in ("mean", "std", "sample"):
            assert comparison[1][kind][what]["median"] <= 1e-3


@pytest.mark.parametrize("name", OPERATORS)
def test_cards_hold_what_is_published_now(name: str) -> None:
    _, meta = read_weights(shipped()[name])
    again = card(name, CONFIG, PUBLISHED, meta)
    assert {key: meta["card"][key] for key in again} == again
    assert meta["source"]["file"] == str(training_of(name))


def test_other_trials_are_kept_with_what_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a card: their scores are part of the mean over trials."""
    first, second, *_ = trainings_of("diffusion1d", CONFIG)
    full = tmp_path / second
    full.parent.mkdir(parents=True)
    shutil.copy(PUBLISHED / first, full)
    monkeypatch.setattr(shipping, "require_header", lambda *_: None)
    (made,) = ship(CONFIG, [tmp_path], tmp_path, tmp_path)
    assert made == tmp_path / "weights/diffusion1d/trial_1.safetensors"
    header = read_weights(made)[1]
    assert header["source"]["file"] == str(second) and "card" not in header
    x, y = torch.tensor([[0.3]]), torch.tensor([1.2])
    ours, theirs = (uqsonet.load(path).condition(x, y) for path in (made, full))
    torch.testing.assert_close(ours.std(), theirs.std(), rtol=0, atol=1e-4)


def test_another_training_in_its_place_is_refused(tmp_path: Path) -> None:
    file = tmp_path / training_of("diffusion1d")
    file.parent.mkdir(parents=True)
    shutil.copy(PUBLISHED / training_of("poisson2d"), file)
    with pytest.raises(DataError, match="its header has problem 'poisson2d', expected 'diff"):
        ship(CONFIG, [tmp_path], PUBLISHED, tmp_path)


def test_factors_leave_out_no_more_than_the_tolerance() -> None:
    x = torch.linspace(0, 1, 60, dtype=torch.float64)
    waves = torch.stack([torch.sin(k * x[:, None] + x.square()) for k in (1, 2, 5)], -1)
    parts = shipping._factors(waves)
    assert set(parts) == {"core", "0", "1"}
    product = torch.einsum("abk,ia,jb->ijk", parts["core"], parts["0"], parts["1"])
    left_out = (product - waves).norm() / waves.norm()
    assert left_out < shipping.TOLERANCE
    assert parts["core"].numel() < waves.numel() / 20


def test_scores_that_are_not_published_are_missed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"summary/diffusion1d\.csv: no complete scores"):
        ship(CONFIG, [PUBLISHED], tmp_path, tmp_path)
    assert ship(CONFIG, [tmp_path], tmp_path, tmp_path) == []

"""From full weights to those of the package, with cards of what is published."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from tests.test_config import BASE, ROOT
from uqsonet.errors import DataError
from uqsonet.operator.weight_files import read_weights, shipped, write_weights
from uqsonet_study import ship as shipping
from uqsonet_study.cases import Study
from uqsonet_study.cli import app
from uqsonet_study.loading import load_config
from uqsonet_study.ship import OPERATORS, card, ship, training_of

STUDY = Study(load_config(BASE))
PUBLISHED = ROOT / "published"
NAMES = ("diffusion1d", "poisson2d", "elliptic_sde1d")
"""In one dimension, in two, and with a part of u that no sensor tells."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of results with trainings: the package's weights in their full form."""
    folder = tmp_path_factory.mktemp("results")
    for name in NAMES:
        tensors, meta = read_weights(shipped()[name])
        full = {key: t.float() if t.dtype == torch.half else t for key, t in tensors.items()}
        path = folder / training_of(name, STUDY)
        path.parent.mkdir(parents=True)
        write_weights(path, full, {k: meta[k] for k in meta.keys() - {"card", "source"}})
        log = training_of(name, STUDY).with_suffix(".csv")
        shutil.copy(PUBLISHED / log, folder / log)
    return folder


@pytest.fixture(scope="module")
def made(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command makes of them, with a short comparison."""
    out = tmp_path_factory.mktemp("weights")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shipping, "SETS", 3)
        words = ["ship", str(results), "--config", str(ROOT / "config.yaml")]
        words += ["--published", str(PUBLISHED), "--out", str(out)]
        result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [str(out / f"{name}.safetensors") for name in NAMES]
    return out


@pytest.mark.parametrize("name", NAMES)
def test_the_weights_of_the_package_are_made_again(name: str, made: Path) -> None:
    """As small and as near to the full ones; those of other bytes are called a repetition."""
    paths = shipped()[name], made / f"{name}.safetensors"
    sizes = [path.stat().st_size for path in paths]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.02)
    (ours, header), (found, again) = map(read_weights, paths)
    assert ours.keys() == found.keys()
    for key, tensor in ours.items():
        near = 1e-3 if key == "buffer/residual_slopes" else 2 * shipping.TOLERANCE
        assert (found[key].double() - tensor).norm() <= near * tensor.double().norm(), key
    about, new = header["card"], again["card"]
    same = header["source"]["sha256"] == again["source"]["sha256"]
    assert same == (name == "diffusion1d") == ("repeated" not in new)
    assert new["recipe"].endswith("the first of them." if same else "a repetition of the first.")
    assert all(first == later for first, later in new.get("repeated", {}).values())
    for key in ("title", "data", "scores", "limits", "typical_input"):
        assert new[key] == about[key]
    for kind in ("random", "clustered"):
        for what in ("mean", "std", "sample"):
            assert new["difference"][kind][what]["median"] <= 1e-3


@pytest.mark.parametrize("name", OPERATORS)
def test_cards_hold_what_is_published_now(name: str) -> None:
    _, meta = read_weights(shipped()[name])
    again = card(name, STUDY, PUBLISHED, meta)
    assert {key: meta["card"][key] for key in again} == again
    # Published before files had the names that they have now.
    assert Path(meta["source"]["file"]).parts[:2] == training_of(name, STUDY).parts[:2]


def test_another_training_in_its_place_is_refused(results: Path, tmp_path: Path) -> None:
    file = tmp_path / training_of("diffusion1d", STUDY)
    file.parent.mkdir(parents=True)
    shutil.copy(results / training_of("poisson2d", STUDY), file)
    with pytest.raises(DataError, match=r"training of .'poisson2d', .* expected .'diff"):
        ship(STUDY, tmp_path, PUBLISHED, tmp_path)


def test_scores_that_are_not_published_are_missed(results: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"summary/diffusion1d\.csv: no complete scores"):
        ship(STUDY, results, tmp_path, tmp_path)
    assert ship(STUDY, tmp_path, tmp_path, tmp_path) == []


def test_factors_leave_out_no_more_than_the_tolerance() -> None:
    x = torch.linspace(0, 1, 60, dtype=torch.float64)
    waves = torch.stack([torch.sin(k * x[:, None] + x.square()) for k in (1, 2, 5)], -1)
    parts = shipping._factors(waves)
    assert set(parts) == {"core", "0", "1"}
    product = torch.einsum("abk,ia,jb->ijk", parts["core"], parts["0"], parts["1"])
    left_out = (product - waves).norm() / waves.norm()
    assert left_out < shipping.TOLERANCE
    assert parts["core"].numel() < waves.numel() / 20

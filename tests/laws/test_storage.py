"""Models with a law in files: the same answers again, and damaged files are refused in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import uqsonet
from tests.laws.conftest import LAWS, SMALL, gaussian_fields, kernel, runs_of
from uqsonet.errors import DataError
from uqsonet.laws import NAMES
from uqsonet.models.weights import read_model
from uqsonet.storage.weights import read_weights, write_weights

INPUTS = {**LAWS, "analogue": LAWS["gaussian"]}
SENSORS = SMALL.points()[[3, 12]]
READINGS = {"thresholded": [0.8, -0.8]}


@pytest.fixture(scope="module", params=NAMES)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with each law."""
    return _saved(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model with each law that has tensors."""
    return {law: _saved(law, tmp_path_factory.mktemp(law)) for law in NAMES[1:]}


def _saved(law: str, folder: Path) -> Path:
    kappa = INPUTS[law](np.random.default_rng(1), 150)
    model = uqsonet.fit(runs_of(kappa), 0, sensors=[2], bar=False, law=law)
    model.save(folder / "model.safetensors")
    answers(model, law).tofile(folder / "answers")
    return folder / "model.safetensors"


def answers(model: uqsonet.Emulator, law: str) -> np.ndarray:
    y = READINGS.get(law, [0.3, -0.2])
    posterior = model.condition(SENSORS, y)
    return np.concatenate([posterior.mean(), posterior.std(), posterior.sample(20).ravel()])


def test_a_loaded_model_gives_the_same_bytes(saved: Path, tmp_path: Path) -> None:
    law = read_weights(saved)[1]["config"]["network"].get("law", "gaussian")
    assert saved.parent.name.startswith(law)
    model = uqsonet.load(saved)
    assert model.operator.config.law == law  # type: ignore[union-attr]
    assert answers(model, law).tobytes() == (saved.parent / "answers").read_bytes()
    model.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == saved.read_bytes()
    named = [name for name in read_weights(saved)[0] if name.startswith("law/")]
    assert bool(named) == (law != "gaussian")


def rewritten(
    path: Path, target: Path, tensors: dict[str, Tensor | None], law: str | None = None
) -> Path:
    """Write a file with other tensors of its law (None: without), or another name of it."""
    found, meta = read_weights(path)
    for name, tensor in tensors.items():
        if tensor is None:
            del found[f"law/{name}"]
        else:
            found[f"law/{name}"] = tensor
    if law is not None:
        meta["config"]["network"]["law"] = law
    write_weights(target, found, meta)
    return target


def stored(path: Path) -> dict[str, Tensor]:
    tensors = read_weights(path)[0]
    return {k.removeprefix("law/"): v for k, v in tensors.items() if k.startswith("law/")}


def wrong(tensor: Tensor) -> dict[str, Tensor]:
    """Return tensors that cannot stand in the place of this one."""
    found = {
        "one axis more": tensor[None],
        "another type": tensor.half(),
        "whole numbers": tensor.long(),
    }
    if tensor.ndim:
        found |= {"nothing": tensor[:0], "one axis less": tensor[0]}
        found["other rows"] = torch.cat([tensor, tensor[:1]])
        found["other columns"] = torch.cat([tensor, tensor[..., :1]], -1)
    else:
        found["two"] = tensor.repeat(2)
    return found


@pytest.mark.parametrize("law", NAMES[1:])
def test_tensors_that_do_not_fit_are_refused(
    law: str, others: dict[str, Path], tmp_path: Path
) -> None:
    path, target = others[law], tmp_path / "wrong.safetensors"
    tensors = stored(path)
    assert len(tensors) >= 3
    for name, tensor in tensors.items():
        cases: dict[str, Tensor | None] = {"missing": None, **wrong(tensor)}
        for case, other in cases.items():
            if (name, case) == ("factor", "other columns"):  # a law of another rank
                continue
            rewritten(path, target, {name: other})
            with pytest.raises(DataError, match=f"law '{law}' does not fit its tensors") as caught:
                read_model(target)
            # Which one of two tensors is wrong nobody knows.
            assert name in str(caught.value) or case in ("other rows", "other columns"), case
    rewritten(path, target, {"other": torch.zeros(3)})
    with pytest.raises(DataError, match="other"):
        read_model(target)
    rewritten(path, target, dict.fromkeys(tensors))
    with pytest.raises(DataError, match="found none"):
        read_model(target)


BROKEN: dict[str, tuple[str, float]] = {
    "mixture": ("scales", 0.0),
    "thresholded": ("values", 1.0),
    "bounded": ("upper", -1e6),
    "analogue": ("share", 0.0),
}


@pytest.mark.parametrize("law", NAMES[1:])
def test_values_that_no_law_has_are_refused(
    law: str, others: dict[str, Path], tmp_path: Path
) -> None:
    name, value = BROKEN[law]
    broken = torch.full_like(stored(others[law])[name], value)
    rewritten(others[law], tmp_path / "wrong.safetensors", {name: broken})
    with pytest.raises(DataError, match=f"law '{law}' does not fit"):
        read_model(tmp_path / "wrong.safetensors")
    nan = torch.full_like(stored(others[law])[name], torch.nan)
    rewritten(others[law], tmp_path / "nan.safetensors", {name: nan})
    with pytest.raises(DataError, match="not finite"):
        read_model(tmp_path / "nan.safetensors")


@pytest.mark.parametrize("law", ["no", "auto", "base", "choice", "", "../base", 3, None, ["x"]])
def test_a_law_that_does_not_exist_is_refused(
    law: object, others: dict[str, Path], tmp_path: Path
) -> None:
    target = tmp_path / "wrong.safetensors"
    found, meta = read_weights(others["mixture"])
    meta["config"]["network"]["law"] = law
    write_weights(target, found, meta)
    with pytest.raises(DataError, match="law"):
        read_model(target)


@pytest.mark.parametrize("law", NAMES)
@pytest.mark.parametrize("of", NAMES[1:])
def test_the_tensors_of_another_law_are_refused(
    law: str, of: str, others: dict[str, Path], tmp_path: Path
) -> None:
    if law == of:
        return
    target = rewritten(others[of], tmp_path / "wrong.safetensors", {}, law)
    with pytest.raises(DataError, match=f"law '{law}' does not fit its tensors"):
        read_model(target)


def test_a_model_without_bases_has_no_law(tmp_path: Path) -> None:
    """The other networks know no law: tensors of one in their files are foreign."""
    name = next(n for n, p in uqsonet.models.weights.shipped().items() if "tuned" not in n)
    path = uqsonet.models.weights.shipped()[name]
    found, meta = read_weights(path)
    write_weights(tmp_path / "w.safetensors", {**found, "law/scales": torch.ones(3)}, meta)
    with pytest.raises(DataError, match="law 'gaussian' does not fit"):
        read_model(tmp_path / "w.safetensors")


def test_a_model_of_other_modes_does_not_fit(others: dict[str, Path], tmp_path: Path) -> None:
    """A law that belongs to another model."""
    kappa = gaussian_fields(np.random.default_rng(2), 150, kernel(1.5))
    model = uqsonet.fit(runs_of(kappa), 0, sensors=[2], bar=False, law="gaussian")
    model.save(tmp_path / "other.safetensors")
    found, meta = read_weights(tmp_path / "other.safetensors")
    meta["config"]["network"]["law"] = "mixture"
    tensors = {f"law/{k}": v for k, v in stored(others["mixture"]).items()}
    write_weights(tmp_path / "mixed.safetensors", {**found, **tensors}, meta)
    with pytest.raises(DataError, match=r"means is .* allowed is"):
        read_model(tmp_path / "mixed.safetensors")

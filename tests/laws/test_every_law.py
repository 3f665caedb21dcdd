"""What all laws share: sets of sensors, files with the same answers, and damaged files refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import uqsonet
from tests.laws.conftest import LAWS, SMALL, runs_of, seeded
from uqsonet.errors import DataError
from uqsonet.laws import NAMES
from uqsonet.models.karhunen_loeve import KarhunenLoeveModel
from uqsonet.models.weights import read_model
from uqsonet.storage.weights import read_weights, write_weights

INPUTS = {**LAWS, "analogue": LAWS["gaussian"]}
pytestmark = pytest.mark.usefixtures("quick_fits")
SENSORS = SMALL.points()[[3, 12]]
READINGS = {"thresholded": [0.8, -0.8]}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model with each law, and its answers beside it."""
    found = {}
    for law in NAMES:
        folder = tmp_path_factory.mktemp(law)
        kappa = INPUTS[law](np.random.default_rng(1), 100)
        model = uqsonet.fit(runs_of(kappa), 0, sensors=[2], bar=False, law=law)
        found[law] = folder / "model.safetensors"
        model.save(found[law])
        answers(model, law).tofile(folder / "answers")
    return found


def answers(model: uqsonet.Emulator, law: str) -> np.ndarray:
    y = READINGS.get(law, [0.3, -0.2])
    posterior = model.condition(SENSORS, y)
    return np.concatenate([posterior.mean(), posterior.std(), posterior.sample(20).ravel()])


@pytest.mark.parametrize("law", NAMES)
def test_a_loaded_model_gives_the_same_bytes(law, saved, tmp_path):
    model = uqsonet.load(saved[law])
    assert model.operator.config.law == law  # type: ignore[union-attr]
    assert answers(model, law).tobytes() == (saved[law].parent / "answers").read_bytes()
    model.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == saved[law].read_bytes()
    named = [name for name in read_weights(saved[law])[0] if name.startswith("law/")]
    assert bool(named) == (law != "gaussian")


@pytest.mark.parametrize("law", NAMES)
def test_order_padding_and_other_sets_have_no_influence(law, saved):
    model = uqsonet.load(saved[law]).operator
    assert isinstance(model, KarhunenLoeveModel)
    x, y = SMALL.points()[[3, 12, 20]], torch.tensor([0.8, -0.8, -0.8]) / 2
    noise = 0.0 if law == "analogue" else 0.1  # its few inputs get noise of their own, once
    order, nan = [2, 0, 1], torch.full((1,), torch.nan)
    mask = torch.tensor([[True] * 3 + [False], [False, True, False, False], [False] * 4])
    places = torch.cat([x[order], x[:1]]), torch.cat([x, x[:1]]), torch.cat([x, x[:1]])
    values = torch.cat([y[order], nan]), torch.cat([y, nan]), torch.cat([y, nan])
    batch = model.input_posterior(torch.stack(places), torch.stack(values), mask, noise)
    size = 4000
    drawn = batch.sample(size, seeded())
    for s, keep in enumerate((slice(0, 3), slice(1, 2), slice(0, 0))):
        alone = model.input_posterior(x[keep], y[keep], None, noise)
        other = alone.sample(size, seeded(1))[0]
        error = other.std(0) * (2 / size) ** 0.5
        assert float(((drawn[s].mean(0) - other.mean(0)) / error).abs().max()) < 5
        if alone.tail is not None and batch.tail is not None:
            assert float(batch.tail[s]) == pytest.approx(float(alone.tail[0]), rel=1e-4)
    assert batch.tail is None or float(batch.tail[2]) > 0.999


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


def wrong(tensor: Tensor) -> dict[str, Tensor | None]:
    """Return what cannot stand in the place of this tensor."""
    found = {"missing": None, "one axis more": tensor[None], "another type": tensor.half()}
    if not tensor.ndim:
        return found | {"two": tensor.repeat(2)}
    rows, columns = torch.cat([tensor, tensor[:1]]), torch.cat([tensor, tensor[..., :1]], -1)
    return found | {"nothing": tensor[:0], "other rows": rows, "other columns": columns}


@pytest.mark.parametrize("law", NAMES[1:])
def test_tensors_that_do_not_fit_are_refused(law, saved, tmp_path):
    path, target = saved[law], tmp_path / "wrong.safetensors"
    tensors = stored(path)
    assert len(tensors) >= 3
    for name, tensor in tensors.items():
        for case, other in wrong(tensor).items():
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
def test_values_that_no_law_has_are_refused(law, saved, tmp_path):
    name, value = BROKEN[law]
    broken = torch.full_like(stored(saved[law])[name], value)
    rewritten(saved[law], tmp_path / "wrong.safetensors", {name: broken})
    with pytest.raises(DataError, match=f"law '{law}' does not fit"):
        read_model(tmp_path / "wrong.safetensors")
    broken.fill_(torch.nan)
    rewritten(saved[law], tmp_path / "wrong.safetensors", {name: broken})
    with pytest.raises(DataError, match="not finite"):
        read_model(tmp_path / "wrong.safetensors")


@pytest.mark.parametrize("law", ["auto", "../base", 3])
def test_a_law_that_does_not_exist_is_refused(law, saved, tmp_path):
    target = tmp_path / "wrong.safetensors"
    found, meta = read_weights(saved["mixture"])
    meta["config"]["network"]["law"] = law
    write_weights(target, found, meta)
    with pytest.raises(DataError, match="law"):
        read_model(target)


@pytest.mark.parametrize("of", NAMES[1:])
def test_the_tensors_of_another_law_are_refused(of, saved, tmp_path):
    for law in set(NAMES) - {of}:
        target = rewritten(saved[of], tmp_path / "wrong.safetensors", {}, law)
        with pytest.raises(DataError, match=f"law '{law}' does not fit its tensors"):
            read_model(target)


def test_a_model_without_bases_has_no_law(tmp_path):
    """The other networks know no law: tensors of one in their files are foreign."""
    name = next(n for n, p in uqsonet.models.weights.shipped().items() if "tuned" not in n)
    path = uqsonet.models.weights.shipped()[name]
    found, meta = read_weights(path)
    write_weights(tmp_path / "w.safetensors", {**found, "law/scales": torch.ones(3)}, meta)
    with pytest.raises(DataError, match="law 'gaussian' does not fit"):
        read_model(tmp_path / "w.safetensors")

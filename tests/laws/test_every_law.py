"""What all laws share: sets of sensors, files with the same answers, and damaged files refused."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import uqsonet
from tests.answers import input_given
from tests.laws.conftest import LAWS, SMALL, fields_of, functions_of, model_of, runs_of, seeded
from uqsonet.errors import DataError
from uqsonet.fields.cloud import Point
from uqsonet.fitting.choose_law import input_sample
from uqsonet.laws import NAMES, law_class
from uqsonet.operator.weight_files import read_model, read_weights, write_weights

pytestmark = pytest.mark.usefixtures("quick_fits")
SENSORS = SMALL.points()[[3, 12]]
READINGS = {"classes": [0.8, -0.8], "margins": [0.3, 0.0]}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model with each law, and its answers beside it."""
    found = {}
    for kind, (law, draw) in LAWS.items():
        folder = tmp_path_factory.mktemp(kind)
        kappa = draw(np.random.default_rng(1), 100)
        model = uqsonet.fit(runs_of(kappa), sensors=[2], bar=False, law=law)
        found[kind] = folder / "model.safetensors"
        model.save(found[kind])
        answers(model, kind).tofile(folder / "answers")
    return found


def answers(model: uqsonet.Emulator, kind: str) -> np.ndarray:
    y = READINGS.get(kind, [0.3, -0.2])
    posterior = model.condition(SENSORS, y)
    return np.concatenate([posterior.mean(), posterior.std(), posterior.sample(20).ravel()])


@pytest.mark.parametrize("kind", LAWS)
def test_a_loaded_model_gives_the_same_bytes(kind, saved, tmp_path):
    model = uqsonet.load(saved[kind])
    assert model.operator.config.law == LAWS[kind][0]  # type: ignore[union-attr]
    assert answers(model, kind).tobytes() == (saved[kind].parent / "answers").read_bytes()
    model.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == saved[kind].read_bytes()
    named = [name for name in read_weights(saved[kind])[0] if name.startswith("law/")]
    assert bool(named) == (kind != "gaussian")


NUMBERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "skewed": np.exp,
    "of two kinds": lambda z: z / 4 + np.sign(z),
    "two values": np.sign,
    "zero at times": lambda z: np.maximum(z, 0) ** 1.5,
    "at an end": lambda z: np.clip(np.exp(z), 0, 1),
}


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("law", [name for name in NAMES if name != "gaussian"])
def test_a_number_has_a_law_or_none(law, kind):
    """An input of one point: where a law describes it, an exact sensor tells all of it."""
    kappa = NUMBERS[kind](np.random.default_rng(1).standard_normal((150, 1)))
    model = model_of(kappa, 1, Point())
    one = law_class(law).fit(input_sample(model, functions_of(kappa, Point())), 0)
    if one is not None:
        model.use_law(one)
        value = torch.from_numpy(kappa[:1, 0])
        posterior = input_given(model, Point().points(), value)
        found = fields_of(model, posterior.sample(50, seeded()))
        assert float((found - value).abs().max()) < 0.1


@pytest.mark.parametrize("kind", LAWS)
def test_order_padding_and_other_sets_have_no_influence(kind, saved):
    model = uqsonet.load(saved[kind]).operator
    x, y = SMALL.points()[[3, 12, 20]], torch.tensor([0.8, -0.8, -0.8]) / 2
    noise, order, nan = 0.1, [2, 0, 1], torch.full((1,), torch.nan)
    mask = torch.tensor([[True] * 3 + [False], [False, True, False, False], [False] * 4])
    places = torch.cat([x[order], x[:1]]), torch.cat([x, x[:1]]), torch.cat([x, x[:1]])
    values = torch.cat([y[order], nan]), torch.cat([y, nan]), torch.cat([y, nan])
    x_all, y_all = torch.stack(places), torch.stack(values)
    separate = model.law.separate  # conditioned one by one
    parts = [slice(s, s + 1) for s in range(3)] if separate else [slice(3)]
    batch = [input_given(model, x_all[p], y_all[p], mask[p], noise) for p in parts]
    size = 4000
    drawn = torch.cat([one.sample(size, seeded()) for one in batch])
    tails = [one.tail for one in batch if one.tail is not None]
    tail = torch.cat(tails) if tails else None
    for s, keep in enumerate((slice(0, 3), slice(1, 2), slice(0, 0))):
        alone = input_given(model, x[keep], y[keep], None, noise)
        other = alone.sample(size, seeded(1))[0]
        error = other.std(0) * (2 / size) ** 0.5
        assert float(((drawn[s].mean(0) - other.mean(0)) / error).abs().max()) < 5
        if alone.tail is not None and tail is not None:
            assert float(tail[s]) == pytest.approx(float(alone.tail[0]), rel=1e-4)
    assert tail is None or float(tail[2]) > 0.999


def refused(path: Path, target: Path, tensors: dict[str, Tensor | None], law: object = None) -> str:
    """Return why a file is refused with other tensors of its law (None: without), or its name."""
    found, meta = read_weights(path)
    kept = {name: found[f"law/{name}"] for name in stored(path)} | tensors
    found = {name: value for name, value in found.items() if not name.startswith("law/")}
    found |= {f"law/{name}": value for name, value in kept.items() if value is not None}
    if law is not None:
        meta["config"]["network"]["law"] = law
    write_weights(target, found, meta)
    with pytest.raises(DataError) as caught:
        read_model(target)
    return str(caught.value)


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


IMPOSSIBLE = {
    "clusters": ("scales_0", 0.0),
    "classes": ("values", 1.0),
    "margins": ("quantiles", 1.0),
    "bounds": ("upper", -1e6),
}


@pytest.mark.parametrize("kind", IMPOSSIBLE)
def test_tensors_that_do_not_fit_are_refused(kind, saved, tmp_path):
    path, target, law = saved[kind], tmp_path / "wrong.safetensors", LAWS[kind][0]
    tensors, words = stored(path), f"law '{law}' does not fit its tensors"
    assert len(tensors) >= 3
    for name, tensor in tensors.items():
        for case, other in wrong(tensor).items():
            if name.startswith("factor") and case == "other columns":  # a law of another rank
                continue
            why = refused(path, target, {name: other})
            # Which one of two tensors is wrong nobody knows.
            assert words in why and (name in why or case in ("other rows", "other columns")), case
    name, value = IMPOSSIBLE[kind]
    assert words in refused(path, target, {name: torch.full_like(tensors[name], value)})
    assert "not finite" in refused(path, target, {name: tensors[name] * torch.nan})
    assert "other" in refused(path, target, {"other": torch.zeros(3)})
    assert "found none" in refused(path, target, dict.fromkeys(tensors))
    for name in set(NAMES) - {law}:
        assert f"law '{name}' does not fit its tensors" in refused(path, target, {}, name)
    for name in ("auto", "../base", 3):
        assert "law" in refused(path, target, {}, name)

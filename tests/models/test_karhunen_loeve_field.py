"""The branch that reads whole input fields: shapes, symmetries, what a perceptron cannot learn."""

import math
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.answers import input_given
from uqsonet.errors import ConfigError
from uqsonet.fields.field import Field
from uqsonet.fields.grid import Grid
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.networks.settings import TrainingConfig
from uqsonet.networks.train import Trainer, Trial
from uqsonet.operator import base
from uqsonet.operator.closed_form import coefficients
from uqsonet.operator.config import KarhunenLoeveNetwork
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.runs.functions import Functions
from uqsonet_study.beyond.field_operator import FieldNetwork, KarhunenLoeveFieldModel
from uqsonet_study.settings import KarhunenLoeveFieldNetwork, Method

SQUARE = Grid((0.0, 0.0), (1.0, 1.0), (12, 12))


def pairs(size: int, grid: Grid = SQUARE, seed: int = 0) -> Functions:
    """Return media of independent cells of two values; u is the share of cells like a point's own.

    KL coefficients do not tell it: all modes are equally strong.
    """
    k = torch.from_numpy(np.random.default_rng(seed).choice([-1.0, 1.0], (size, grid.size)))
    grids = k.reshape(size, 1, *grid.shape)
    mean = torch.nn.functional.avg_pool2d(grids, 3, 1, 1, count_include_pad=False)
    u = (grids * mean).flatten(1)
    fields = OperatorFields("cells", Field("k", grid), Field("u", grid))
    return Functions(fields, "training", k.float(), u.float())


def network(**keys: object) -> KarhunenLoeveFieldNetwork:
    keys = {"input_modes": 20, "output_modes": 100, "branch": [8, 8], "patch": 2, **keys}
    return KarhunenLoeveFieldNetwork.model_validate({"frequencies": 4, **keys})


def trained(config: KarhunenLoeveNetwork, data: Functions, steps: int) -> KarhunenLoeveModel:
    training = TrainingConfig(
        iterations=steps, batch_size=50, learning_rate=5e-3, schedule="cosine"
    )
    trial = Trial("uqsonet", Method(network=config, training=training), 0.0, 0, 1)
    trainer = Trainer(trial, data)
    for step in range(steps):
        trainer.step(step)
    return trainer.model.eval()


@pytest.mark.parametrize("shape", [(21,), (13, 10), (5, 6, 7)])
def test_patches_hold_each_point_once(shape):
    operator = FieldNetwork(shape, network(patch=4))
    field = torch.randn(3, math.prod(shape), generator=torch.Generator().manual_seed(0))
    assert torch.equal(operator._spread(operator._gathered(field.reshape(3, *shape))), field)
    assert operator(field).shape == field.shape


def test_training_may_start_at_the_linear_operator():
    data = pairs(300)
    model = KarhunenLoeveFieldModel(data.fields, network(linear_skip=True), 0.0)
    linear = KarhunenLoeveModel(data.fields, KarhunenLoeveNetwork(**SIZES, branch=[]), 0.0)
    for one in (model, linear):
        with torch.no_grad():
            one.fit_constants(data)
    a = torch.randn(7, 20, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert float((model.branch(a) - linear.branch(a)).abs().max()) < 1e-6
        without = KarhunenLoeveFieldModel(data.fields, network(), 0.0)
        without.fit_constants(data)
        assert float(without.branch(a).abs().max()) == 0


SIZES = {"input_modes": 20, "output_modes": 100}


def test_it_learns_what_coefficients_do_not_tell():
    data, new = pairs(1000), pairs(200, seed=1)

    def left(model: KarhunenLoeveModel) -> float:
        a, c = (torch.cat(part) for part in zip(*coefficients(model.bases, new), strict=True))
        with torch.no_grad():
            return float((model.answers_to(new, a) - c).square().sum() / c.square().sum())

    perceptron = KarhunenLoeveNetwork(**SIZES, branch=[64])
    assert left(trained(perceptron, data, 100)) > 0.9
    assert left(trained(network(), data, 200)) < 0.6


@pytest.mark.parametrize("skip", [False, True])
def test_samples_come_from_whole_fields_of_the_law(skip):
    """Laws whose fields are more than their coefficients are asked for fields."""
    data = pairs(300)
    model = KarhunenLoeveFieldModel(data.fields, network(linear_skip=skip), 0.0)
    with torch.no_grad():
        model.fit_constants(data)
        torch.nn.init.normal_(model.network.project[2].weight)
    given = input_given(model, [[0.5, 0.5]], [1.0])
    fields = torch.stack(list(model.fields_of(given, 6, torch.Generator().manual_seed(3))))
    with torch.no_grad():
        straight, added = model.drawn(given, 6, torch.Generator().manual_seed(3))
        assert torch.allclose(straight[0] + added[0], model.of_fields(fields[0]), atol=1e-5)
        found = model.condition([[0.5, 0.5]], [1.0]).law.sample(6, torch.Generator().manual_seed(3))
    assert torch.allclose(found[0].float(), straight[0] + added[0], atol=1e-5)


def test_training_shows_every_image_of_a_pair():
    data = pairs(300)
    model = KarhunenLoeveFieldModel(data.fields, network(symmetries="square"), 0.0)
    with torch.no_grad():
        model.fit_constants(data)
    x, y = data.kappa[:1].expand(400, -1), data.u[:1].expand(400, -1)
    seen: list[Tensor] = []
    model.of_fields = lambda field, a=None: seen.append(field) or torch.zeros(len(field), 100)  # type: ignore[method-assign]
    normals = torch.randn(400, 1, generator=torch.Generator().manual_seed(0))
    model.loss({"x": x, "y": y}, normals)
    images, counts = seen[0].unique(dim=0, return_counts=True)
    assert len(images) == 8 and int(counts.min()) > 25
    square = data.kappa[0].reshape(12, 12)
    for turned in (square.rot90(q) for q in range(4)):
        for image in (turned, turned.T):
            assert bool((images == image.flatten()).all(1).any())


def test_what_does_not_fit_is_refused():
    oblong = Grid((0.0, 0.0), (1.0, 1.0), (12, 10))
    with pytest.raises(ConfigError, match="symmetries: square needs"):
        KarhunenLoeveFieldModel(
            OperatorFields("no", Field("k", oblong), Field("u", oblong)),
            network(symmetries="square"),
            0.0,
        )
    with pytest.raises(ConfigError, match="144 points of the input and 120"):
        KarhunenLoeveFieldModel(
            OperatorFields("no", Field("k", SQUARE), Field("u", oblong)), network(), 0.0
        )


def test_the_library_knows_it_by_an_entry_point(monkeypatch):
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    stated = tomllib.loads(text)["project"]["entry-points"]["uqsonet.networks"]
    points = [EntryPoint(name, value, "uqsonet.networks") for name, value in stated.items()]
    monkeypatch.delitem(base.REGISTRY, ("uqsonet", "karhunen_loeve_field"))
    monkeypatch.setattr(base, "entry_points", lambda group: points)
    monkeypatch.delitem(sys.modules, "uqsonet_study.beyond.field_operator")
    kind = base.model_type("uqsonet", "karhunen_loeve_field")
    assert kind.config_type is KarhunenLoeveFieldNetwork

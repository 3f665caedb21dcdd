"""Small problems of two variables and the files that figures read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor

from tests.conftest import register
from tests.report.conftest import COUNTS, make_config
from uqsonet.data import load_functions
from uqsonet.fields import Grid, Transform
from uqsonet.gaussian_process import GaussianField, squared_exponential
from uqsonet.models.base import build_model
from uqsonet.operator_fields import OperatorFields
from uqsonet.problems import get_problem
from uqsonet.problems.base import Problem
from uqsonet.storage.reading import ArrayFile
from uqsonet.storage.weights import write_weights
from uqsonet_study.config import (
    Config,
    PosteriorFigure,
    ProblemConfig,
    ReferenceConfig,
    SensorsConfig,
)
from uqsonet_study.layouts import generate_layouts
from uqsonet_study.references import compute_reference
from uqsonet_study.report.figures.panels import Panel
from uqsonet_study.report.figures.style import save
from uqsonet_study.simulation import simulate

NOISE = 0.1


class ToyField(Problem):
    """A smooth field in the plane that maps to its double."""

    name = "toy_field"
    title = "Toy field"
    section = "none"
    input_symbol = "f"

    @cached_property
    def grid(self) -> Grid:
        return Grid((0.0, 0.0), (1.0, 1.0), (9, 9))

    @cached_property
    def prior(self) -> GaussianField:
        kernel = squared_exponential(std=1.0, length=0.5)
        return GaussianField(self.grid.points(), lambda x: x[:, 0], kernel)

    def solve(self, kappa: Tensor) -> Tensor:
        return 2 * kappa


class ToyTorus(ToyField):
    """The same on a periodic grid; its symbols have subscripts."""

    name = "toy_torus"
    input_symbol, output_symbol = "w_0", "w"

    @cached_property
    def grid(self) -> Grid:
        return Grid((0.0, 0.0), (1.0, 1.0), (8, 8), periodic=True)


register(ToyField)
register(ToyTorus)


@dataclass(frozen=True)
class Inputs:
    config: Config
    functions: Path
    reference: Path
    weights: Path


def make_inputs(problem: str, folder: Path) -> Inputs:
    """Make the files of a problem with an untrained model, which is already close to exact."""
    functions, sensors = folder / "functions.h5", folder / "sensors.h5"
    reference, weights = folder / "paper.h5", folder / "weights.safetensors"
    config = make_config(
        problems={problem: {"training": 50, "validation": 4, "test": 6}},
        experiment={"problem": problem, "methods": ["uqsonet"], "noise_std": NOISE},
    )
    simulate(problem, ProblemConfig(training=50, validation=2, test=4, shard=50), 0, functions)
    generate_layouts(problem, SensorsConfig(counts=COUNTS, pool=5), 0, 2, 4, sensors)
    used = ReferenceConfig(sets=3, reference_samples=200)
    compute_reference(functions, sensors, "test", "paper", used, NOISE, 0, reference)
    method = config.method_of("e_1", "uqsonet")
    torch.manual_seed(0)
    model = build_model("uqsonet", get_problem(problem).fields, method.network, NOISE)
    with torch.no_grad():
        model.fit_constants(load_functions(functions, "training"))
    names = dict(model.named_parameters())
    tensors = {
        f"parameter/{k}" if k in names else f"buffer/{k}": v[None] if k in names else v
        for k, v in model.state_dict().items()
    }
    meta = {"method": "uqsonet", "noise_std": NOISE, "trials": [0]}
    meta["fields"] = get_problem(problem).fields.as_dict()
    write_weights(weights, tensors, meta | {"config": method.model_dump(mode="json")})
    return Inputs(config, functions, reference, weights)


def panel_files(inputs: Inputs, counts: list[int]) -> list[dict[str, Any]]:
    """Return the panels of a figure that shows some sensor counts, as the plan declares them."""
    files = {"functions": str(inputs.functions), "reference": str(inputs.reference)}
    common = {"weights": [str(inputs.weights)], "ensemble": False, "noise_std": NOISE}
    return [files | common | {"sensors": m} for m in counts]


def posterior_config(method: str = "uqsonet", scale: str = "full") -> Config:
    """Return a configuration with a figure `f` of that method."""
    figure = PosteriorFigure.model_construct(experiment="e_1", method=method)
    return make_config().model_copy(update={"figures": {"f": figure}, "scale": scale})


def saved(figure: Figure, folder: Path, scale: str = "full") -> tuple[bytes, bytes]:
    """Save a figure and return its PDF and its PNG, which must be what they are called."""
    pdf, png = folder / "figure.pdf", folder / "figure.png"
    save(figure, scale, pdf, png)
    assert not list(folder.glob(".*"))
    found = pdf.read_bytes(), png.read_bytes()
    assert found[0].startswith(b"%PDF") and found[1].startswith(b"\x89PNG")
    assert b"/Type3" not in found[0] and b"CreationDate" not in found[0]
    return found


def use_logarithm(monkeypatch: pytest.MonkeyPatch, panel: Panel) -> None:
    """Let the input of a panel be one whose logarithm is Gaussian."""
    fields = panel.fields
    logarithmic = replace(fields, input=replace(fields.input, transform=Transform("log")))
    monkeypatch.setattr(panel.data, "fields", logarithmic)


def change_fields(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[OperatorFields], OperatorFields]
) -> None:
    """Let files of arrays describe other fields than they do."""
    plain = ArrayFile.fields
    monkeypatch.setattr(ArrayFile, "fields", lambda file: change(plain(file)))

"""Small problems of one and of two variables, and the files that figures of them read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.conftest import register
from tests.report.conftest import COUNTS, make_config
from uqsonet.data import load_functions
from uqsonet.fields import Grid
from uqsonet.gaussian_process import GaussianField, squared_exponential
from uqsonet.models.base import build_model
from uqsonet.problems import get_problem
from uqsonet.problems.base import Problem
from uqsonet.storage.weights import write_weights
from uqsonet_study.config import Config, ProblemConfig, ReferenceConfig, SensorsConfig
from uqsonet_study.layouts import generate_layouts
from uqsonet_study.references import compute_reference
from uqsonet_study.simulation import simulate

NOISE, LOUD = 0.1, 1.0


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


register(ToyField)


@dataclass(frozen=True)
class Inputs:
    """Files of a problem: references under `NOISE`, and without samples under `LOUD` noise."""

    config: Config
    functions: Path
    reference: Path
    loud: Path
    weights: Path

    def panel(self, count: int, noise_std: float = NOISE, **changes: Any) -> dict[str, Any]:
        """Return a panel that shows a sensor count, as the plan declares it."""
        reference = self.reference if noise_std == NOISE else self.loud
        return {
            "functions": str(self.functions),
            "reference": str(reference),
            "weights": [str(self.weights)],
            "sensors": count,
            "ensemble": False,
            "noise_std": noise_std,
        } | changes


def make_inputs(problem: str, folder: Path) -> Inputs:
    """Make the files of a problem with an untrained model, which is already close to exact."""
    folder.mkdir(exist_ok=True)
    config = make_config(
        problems={problem: {"training": 50, "validation": 4, "test": 6}},
        experiment={"problem": problem, "methods": ["uqsonet"], "noise_std": NOISE},
    )
    names = "functions.h5", "paper.h5", "loud.h5", "weights.safetensors"
    made, sensors = Inputs(config, *(folder / name for name in names)), folder / "sensors.h5"
    data = ProblemConfig(training=50, validation=2, test=4, shard=50)
    simulate(problem, data, 0, made.functions)
    generate_layouts(problem, SensorsConfig(counts=COUNTS, pool=5), 0, 2, 4, sensors)
    for noise_std, out in ((NOISE, made.reference), (LOUD, made.loud)):
        used = ReferenceConfig(sets=3, reference_samples=200, wasserstein=noise_std == NOISE)
        compute_reference(made.functions, sensors, "test", "paper", used, noise_std, 0, out)
    method = config.method_of("e_1", "uqsonet")
    torch.manual_seed(0)
    model = build_model("uqsonet", get_problem(problem).fields, method.network, NOISE)
    with torch.no_grad():
        model.fit_constants(load_functions(made.functions, "training"))
    names = dict(model.named_parameters())
    tensors = {
        f"parameter/{k}" if k in names else f"buffer/{k}": v[None] if k in names else v
        for k, v in model.state_dict().items()
    }
    meta = {"method": "uqsonet", "noise_std": NOISE, "trials": [0]}
    meta["fields"] = get_problem(problem).fields.as_dict()
    write_weights(made.weights, tensors, meta | {"config": method.model_dump(mode="json")})
    return made

"""Shared fixtures: a linear-Gaussian problem with a closed-form posterior, and small data files."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import hypothesis
import pytest
import torch
from torch import Tensor

from jaxtyping import install_import_hook

# Array shapes in signatures are checked while the tests run (set up before the first import).
CHECKED = (
    *("fields", "gaussian", "gaussian_process", "metrics", "posterior", "solvers"),
    *("models.attention", "models.random_operator", "models.set_embedding"),
)
with install_import_hook([f"uqsonet.{name}" for name in CHECKED], "beartype.beartype"):
    import uqsonet.problems
from uqsonet_study.config import EvaluationConfig, ProblemConfig, SensorsConfig
from uqsonet.gaussian_process import GaussianField
from uqsonet.fields import Grid
from uqsonet_study.layouts import generate_layouts
from uqsonet.problems.base import Problem
from uqsonet_study.references import compute_reference
from uqsonet_study.simulation import simulate

# The same examples in every run, as many as were seen to be enough, however slow the machine is.
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None)
hypothesis.settings.load_profile("fixed")

SEED = 11
NOISE = 0.5


def turn(item: pytest.Item) -> int:
    """Return when a test's turn comes: first what takes long, last what waits for it.

    The parts of the whole DAG, other slow tests, the report of the whole, all files, and the tests
    of the whole.
    """
    whole = "complete" in getattr(item, "fixturenames", ())
    if item.path.name == "test_parts.py":
        return 2 if whole else 0
    if whole:
        return 4
    return 1 if item.get_closest_marker("slow") else 3


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests; a worker takes a slow test at a time, and of the others a file at a time."""
    for item in items:
        if not item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
    items.sort(key=turn)


class ToyLinear(Problem):
    """Bayesian linear regression: ``kappa = 1 + xi_1 + xi_2 x`` maps linearly to u.

    ``u = (1 + xi_1) 1.4 (1 - x^2) + xi_2 3 x (1 - x^2)``, so every posterior is Gaussian and known.
    """

    name = "toy_linear"
    title = "Linear-Gaussian toy"
    section = "none"
    output_stride = 2
    zero_boundary = True

    @cached_property
    def grid(self) -> Grid:
        return Grid((-1.0,), (1.0,), (33,))

    @staticmethod
    def shapes(x: Tensor) -> Tensor:
        return torch.stack([torch.ones_like(x), x], dim=-1)

    @staticmethod
    def responses(x: Tensor) -> Tensor:
        return torch.stack([1.4 * (1 - x**2), 3 * x * (1 - x**2)], dim=-1)

    @cached_property
    def prior(self) -> GaussianField:
        return GaussianField(
            self.grid.points(),
            mean=lambda x: torch.ones_like(x[:, 0]),
            kernel=lambda a, b: self.shapes(a[:, 0]) @ self.shapes(b[:, 0]).T,
        )

    def solve(self, kappa: Tensor) -> Tensor:
        left, right = kappa[:, :1], kappa[:, -1:]
        even, odd = self.responses(self.grid.points()[:, 0]).T
        return (left + right) / 2 * even + (right - left) / 2 * odd

    def exact_posterior(
        self, locations: Tensor, values: Tensor, noise_std: float, queries: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Mean (M,) and covariance (M, M) of u at queries (M, 1) for one set (appendix A.2)."""
        a = self.shapes(locations[:, 0].double())
        response = self.responses(queries[:, 0].double())
        gram = a @ a.T + noise_std**2 * torch.eye(len(a)).double()
        gain = torch.linalg.solve(gram, a).T
        xi = gain @ (values.double() - 1.0)
        covariance = torch.eye(2).double() - gain @ a
        return response[:, 0] + response @ xi, response @ covariance @ response.T


def register(problem: type[Problem]) -> None:
    """Make a problem known as if its file stood in the package."""
    module = types.ModuleType(f"uqsonet.problems.{problem.name}")
    setattr(module, problem.__name__, problem)
    sys.modules[module.__name__] = module
    names = uqsonet.problems.problem_names()
    uqsonet.problems.problem_names = lambda: sorted([*names, problem.name])


class ToyPlane(Problem):
    """A grid of two dimensions, for what asks a problem for no more than that."""

    name = "toy_plane"
    title = "Toy in the plane"
    section = "none"

    @cached_property
    def grid(self) -> Grid:
        return Grid((0.0, 0.0), (1.0, 1.0), (21, 21))

    def solve(self, kappa: Tensor) -> Tensor:
        return kappa


register(ToyLinear)
register(ToyPlane)


@dataclass(frozen=True)
class DataFiles:
    """Functions, layouts and references of a small problem on disk."""

    problem: str
    functions: Path
    sensors: Path
    validation: Path
    test: Path
    noise_std: float
    evaluation: EvaluationConfig
    seed: int = SEED


def make_data(folder: Path, problem: str, noise_std: float, training: int = 400) -> DataFiles:
    """Write all files that training and evaluation read."""
    files = DataFiles(
        problem,
        *(folder / f"{name}.h5" for name in ("functions", "sensors", "validation", "test")),
        noise_std,
        EvaluationConfig(sets=4, reference_samples=3000, model_samples=2000),
    )
    data = ProblemConfig(training=training, validation=5, test=6, shard=100)
    simulate(problem, data, SEED, files.functions)
    sensors = SensorsConfig(counts=[1, 2, 4], pool=300)
    generate_layouts(problem, sensors, SEED, 5, 6, files.sensors)
    for split, target in (("validation", files.validation), ("test", files.test)):
        source = files.functions, files.sensors, split, "precise", files.evaluation
        compute_reference(*source, noise_std, SEED, target)
    return files


@pytest.fixture(scope="session")
def toy_files(tmp_path_factory: pytest.TempPathFactory) -> DataFiles:
    """The linear-Gaussian toy with observation noise."""
    return make_data(tmp_path_factory.mktemp("toy"), "toy_linear", NOISE)


@pytest.fixture(scope="session")
def diffusion_files(tmp_path_factory: pytest.TempPathFactory) -> DataFiles:
    """A few pairs of the paper's diffusion problem, without noise."""
    return make_data(tmp_path_factory.mktemp("diffusion"), "diffusion1d", 0.0)

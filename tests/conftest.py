"""Shared fixtures: a linear-Gaussian problem with a closed-form posterior, and small data files."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import hypothesis
import pytest
import torch
from filelock import FileLock
from torch import Tensor

from jaxtyping import install_import_hook

# Array shapes in signatures are checked while the tests run (set up before the first import).
CHECKED = (
    *("uqsonet.fields.field", "uqsonet.fields.grid", "uqsonet.gauss.gaussian"),
    *(
        "uqsonet.gauss.metrics",
        "uqsonet_study.beyond.distances",
        "uqsonet_study.distances",
        "uqsonet.gauss.given",
        "uqsonet.operator.closed_form",
    ),
    *("uqsonet.networks.attention", "uqsonet.networks.set_embedding"),
    *("uqsonet_study.priors.gaussian_process", "uqsonet_study.solvers"),
)
with install_import_hook(list(CHECKED), "beartype.beartype"):
    pass
from uqsonet_study.settings import Evaluation, Sizes, Layout
from uqsonet_study.priors.gaussian_process import GaussianField
from uqsonet.fields.grid import Grid
from uqsonet_study.layouts import generate_layouts
from uqsonet_study import problems
from uqsonet_study.problems.base import Problem
from uqsonet_study.references import compute_reference
from uqsonet_study.simulation import simulate
from tests import suites

# The same examples in every run, as many as were seen to be enough, however slow the machine is.
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None)
hypothesis.settings.load_profile("fixed")

SEED = 11
NOISE = 0.5


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of the first suite."""
    text = "leave out the tests whose mark puts them into the second suite (tests/suites.py)"
    parser.addoption("--first", action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Watch what tests cost."""
    config.pluginmanager.register(suites.Budget())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `--first` leaves out; begin with the files that have long tests."""
    if config.getoption("first"):
        later = [item for item in items if suites.is_later(item)]
        items[:] = [item for item in items if not suites.is_later(item)]
        config.hook.pytest_deselected(items=later)
    long = {item.path for item in items if suites.is_later(item)}
    items.sort(key=lambda item: item.path not in long)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests that cost most."""
    reports = [r for kind in ("passed", "failed") for r in terminalreporter.getreports(kind)]
    terminalreporter.section("most processor time")
    for seconds, name in suites.dearest(reports):
        terminalreporter.write_line(f"{seconds:6.1f} s  {name}")


class ToyLinear(Problem):
    """Bayesian linear regression: ``kappa = 1 + xi_1 + xi_2 x`` maps linearly to u.

    ``u = (1 + xi_1) 1.4 (1 - x^2) + xi_2 3 x (1 - x^2)``, so every posterior is Gaussian and known.
    """

    name = "toy_linear"
    title = "Linear-Gaussian toy"
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
    module = types.ModuleType(f"uqsonet_study.problems.{problem.name}")
    setattr(module, problem.__name__, problem)
    sys.modules[module.__name__] = module
    names = problems.problem_names()
    problems.problem_names = lambda: sorted([*names, problem.name])


class ToyPlane(Problem):
    """A grid of two dimensions, for what asks a problem for no more than that."""

    name = "toy_plane"
    title = "Toy in the plane"

    @cached_property
    def grid(self) -> Grid:
        return Grid((0.0, 0.0), (1.0, 1.0), (21, 21))

    def solve(self, kappa: Tensor) -> Tensor:
        return kappa


register(ToyLinear)
register(ToyPlane)


@dataclass(frozen=True)
class DataFiles:
    """Functions, layouts and references of a small problem in a folder."""

    folder: Path
    problem: str
    noise_std: float
    seed: int = SEED
    evaluation = Evaluation(sets=4, samples=3000, model_samples=2000)

    @property
    def functions(self) -> Path:
        return self.folder / "functions.h5"

    @property
    def sensors(self) -> Path:
        return self.folder / "sensors.h5"

    @property
    def validation(self) -> Path:
        return self.folder / "validation.h5"

    @property
    def test(self) -> Path:
        return self.folder / "test.h5"

    def make(self) -> None:
        """Write all files that training and evaluation read."""
        data = Sizes(training=400, validation=5, test=6, shard=100)
        simulate(self.problem, data, self.seed, self.functions)
        sensors = Layout(counts=[1, 2, 4], pool=300)
        generate_layouts(self.problem, sensors, self.seed, 5, 6, self.sensors)
        for split, target in (("validation", self.validation), ("test", self.test)):
            source = self.functions, self.sensors, split, "precise", self.evaluation
            compute_reference(*source, self.noise_std, self.seed, target)


def make_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder of a session that is filled once, whatever the number of workers.

    Parameters
    ----------
    factory : TempPathFactory
    name : str
        Name of the folder.
    make : callable
        Fills the folder; called by the first worker that needs it, while the others wait.
    """
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            folder.mkdir()
            make(folder)
    return folder


def data_once(factory: pytest.TempPathFactory, problem: str, noise_std: float) -> DataFiles:
    def make(folder: Path) -> None:
        DataFiles(folder, problem, noise_std).make()

    return DataFiles(make_once(factory, problem, make), problem, noise_std)


@pytest.fixture(scope="session")
def toy_files(tmp_path_factory: pytest.TempPathFactory) -> DataFiles:
    """The linear-Gaussian toy with observation noise."""
    return data_once(tmp_path_factory, "toy_linear", NOISE)


@pytest.fixture(scope="session")
def diffusion_files(tmp_path_factory: pytest.TempPathFactory) -> DataFiles:
    """A few pairs of the paper's diffusion problem, without noise."""
    return data_once(tmp_path_factory, "diffusion1d", 0.0)

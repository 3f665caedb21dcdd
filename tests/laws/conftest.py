"""Small models whose operator is the identity, on inputs of laws that are known."""

import importlib
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

import uqsonet
from uqsonet.fields.field import Field
from uqsonet.fields.grid import Grid
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.fitting import comparison
from uqsonet.fitting import fit as fitting
from uqsonet.gauss.gaussian import covariance_root
from uqsonet.laws import clusters
from uqsonet.operator.config import KarhunenLoeveNetwork
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.runs.functions import Functions

SMALL = Grid((0.0,), (1.0,), (24,))


@pytest.fixture(scope="module", autouse=True)
def quick_cards() -> Iterator[None]:
    """Leave the scores out of cards: these tests do not read them, and they take most of a fit."""
    importlib.import_module("torch._dynamo")  # by the first optimiser else, and takes seconds
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "score", lambda *_, **__: [[]])
        yield


@pytest.fixture(scope="module")
def quick_fits() -> Iterator[None]:
    """Take fewer mixtures and draws: how well laws are fitted is tested elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clusters, "CLUSTERS", (1, 2))
        patch.setattr(clusters, "SHRINKAGE", (0.0, 0.05))
        patch.setattr(comparison, "DRAWS", 128)
        yield


def points(grid: Grid = SMALL) -> np.ndarray:
    return grid.points().numpy()[:, 0]


def kernel(length: float, std: float = 1.0, grid: Grid = SMALL) -> np.ndarray:
    """Return the squared exponential covariance (n, n) of a grid's points."""
    x = points(grid)
    return std**2 * np.exp(-(((x[:, None] - x) / length) ** 2))


def gaussian_fields(
    rng: np.random.Generator, size: int, covariance: np.ndarray, mean: np.ndarray | float = 0.0
) -> np.ndarray:
    root = covariance_root(torch.from_numpy(covariance)).numpy()
    return mean + rng.standard_normal((size, len(covariance))) @ root


MEANS = np.sin(2 * np.pi * points()), -0.5 + 0.5 * np.cos(3 * np.pi * points())
LENGTHS = np.geomspace(0.1, 1.0, 8)
COVARIANCES = kernel(0.2, 0.5), kernel(0.6, 0.5)


def two_fields(rng: np.random.Generator, size: int) -> np.ndarray:
    """Draw fields (size, 24): half of them of one kind, half of the other."""
    first, second = (
        gaussian_fields(rng, size, covariance, mean)
        for mean, covariance in zip(MEANS, COVARIANCES, strict=True)
    )
    return np.where(rng.random((size, 1)) < 0.5, first, second)


def two_values(rng: np.random.Generator, size: int, threshold: float = 0.0) -> np.ndarray:
    """Draw fields (size, 24) that are 0.8 where a smooth Gaussian field is above a threshold."""
    return np.where(gaussian_fields(rng, size, kernel(0.3)) > threshold, 0.8, -0.8)


def bounded_fields(rng: np.random.Generator, size: int, bound: float = 1.2) -> np.ndarray:
    """Draw fields (size, 24) of a Gaussian law that are within bounds everywhere."""
    kept: list[np.ndarray] = []
    while sum(map(len, kept)) < size:
        drawn = gaussian_fields(rng, 4 * size, kernel(0.4))
        kept.append(drawn[np.abs(drawn).max(1) <= bound])
    return np.concatenate(kept)[:size]


def student_fields(rng: np.random.Generator, size: int) -> np.ndarray:
    """Draw fields (size, 24) of a Student-t process of three degrees, its scale cut at 3."""
    scale = np.sqrt(3 / rng.chisquare(3, (4 * size, 1)))
    scale = scale[scale[:, 0] < 3][:size]
    return scale * gaussian_fields(rng, size, kernel(0.3, 0.35))


def rain_fields(rng: np.random.Generator, size: int) -> np.ndarray:
    """Draw fields (size, 24) that are zero where a smooth Gaussian field is below zero."""
    return np.maximum(gaussian_fields(rng, size, kernel(0.3)), 0.0) ** 1.5


def waves(rng: np.random.Generator, size: int) -> np.ndarray:
    """Draw fields (size, 24) of three numbers each: size, frequency and phase of a wave."""
    low, high = (0.3, 0.5, 0.0), (1.0, 2.0, 2 * np.pi)
    a, f, p = rng.uniform(low, high, (size, 3)).T[..., None]
    return a * np.sin(2 * np.pi * f * points() + p)


def length_fields(rng: np.random.Generator, size: int) -> np.ndarray:
    """Draw fields (size, 24), each of one of eight lengths."""
    drawn = [gaussian_fields(rng, size, kernel(length, 0.5), MEANS[0]) for length in LENGTHS]
    return np.stack(drawn)[rng.integers(len(LENGTHS), size=size), np.arange(size)]


LAWS: dict[str, tuple[str, Callable[[np.random.Generator, int], np.ndarray]]] = {
    "gaussian": ("gaussian", lambda rng, size: gaussian_fields(rng, size, kernel(0.3))),
    "clusters": ("mixture", two_fields),
    "kernels": ("mixture", length_fields),
    "runs": ("mixture", waves),
    "classes": ("latent", two_values),
    "margins": ("latent", rain_fields),
    "bounds": ("bounded", bounded_fields),
}
"""A law and inputs that it describes, by what describes them."""


def functions_of(kappa: np.ndarray, grid: Grid = SMALL) -> Functions:
    """Return pairs whose output is their input."""
    fields = OperatorFields("own", Field("k", grid), Field("u", grid))
    rows = torch.from_numpy(kappa.astype(np.float32))
    return Functions(fields, "training", rows, rows)


def model_of(kappa: np.ndarray, modes: int, grid: Grid = SMALL) -> KarhunenLoeveModel:
    """Return a model of the identity that was fitted to inputs (N, n)."""
    functions = functions_of(kappa, grid)
    network = KarhunenLoeveNetwork(input_modes=modes, output_modes=modes, branch=[])
    model = KarhunenLoeveModel(functions.fields, network, 0.0)
    with torch.no_grad():
        model.fit_constants(functions)
    return model.eval()


def runs_of(kappa: np.ndarray, grid: Grid = SMALL) -> uqsonet.Runs:
    """Return a user's runs: the output is a running mean of the input."""
    u = np.cumsum(kappa, axis=1) / grid.size
    x = grid.points().numpy()
    return uqsonet.Runs({"k": (kappa, x)}, {"u": (u, x)}, name="own")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def fields_of(model: KarhunenLoeveModel, a: Tensor) -> Tensor:
    """Return fields (..., n), float64, of coefficients (..., r)."""
    return model.bases.input_mean + a.double() @ model.bases.input_factor.double().T

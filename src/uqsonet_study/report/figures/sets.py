"""One observation set with its reference posterior, as figures show it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from uqsonet.data import Functions, load_functions
from uqsonet.errors import DataError
from uqsonet.fields import Observations
from uqsonet.problems import Problem
from uqsonet.reference.files import Reference, load_reference

FUNCTION = 0
"""The test function shown."""

SAMPLES = 4
"""Pairs shown, the first of the test split."""


@dataclass(frozen=True)
class ReferenceSet:
    """What is known of the test function shown, given m sensors.

    Attributes
    ----------
    observations : Observations
        A batch of one.
    sensors : array, shape (m, d)
    values : array, shape (m,)
        What they read.
    mean, std : array, shape (n,)
        Reference posterior on the full grid.
    """

    observations: Observations
    sensors: np.ndarray
    values: np.ndarray
    mean: np.ndarray
    std: np.ndarray


@dataclass(frozen=True)
class Panel:
    """Two laws of u given one observation set: the reference and a prediction.

    Attributes
    ----------
    given : ReferenceSet
    predicted : tuple of array, shape (n,) each
        Mean and standard deviation.
    errors : tuple of float
        Their relative L2 errors.
    noise_std : float
        Of the observations, in the transformed input.
    method : str
        Whose prediction it is, in print.
    """

    given: ReferenceSet
    predicted: tuple[np.ndarray, np.ndarray]
    errors: tuple[float, float]
    noise_std: float = 0.0
    method: str = "UQ-SONet"

    @property
    def reference(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the reference."""
        return self.given.mean, self.given.std

    @property
    def case(self) -> str:
        """Number of sensors and, where there is any, the noise."""
        noise = rf", $\sigma = {self.noise_std:g}$" if self.noise_std else ""
        return f"$m = {len(self.given.values)}${noise}"


@dataclass(frozen=True)
class Shown:
    """What the figure of data shows.

    Attributes
    ----------
    data : Functions
        Test pairs.
    sets : list of ReferenceSet
        The same test function seen by few, some and many sensors.
    noise_std : float
        Of the observations, in the transformed input.
    """

    data: Functions
    sets: list[ReferenceSet]
    noise_std: float

    @property
    def problem(self) -> Problem:
        """The problem."""
        return self.data.problem

    @property
    def random(self) -> str:
        """What a title adds where the operator itself is random."""
        return "" if self.problem.intrinsic is None else " (random operator: unseen second input)"

    @property
    def samples(self) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and outputs shown, each (SAMPLES, n) or fewer."""
        return self.data.kappa[:SAMPLES].numpy(), self.data.u[:SAMPLES].numpy()

    @property
    def pair(self) -> tuple[np.ndarray, np.ndarray]:
        """Input and output of the test function that is observed, each (n,)."""
        return self.data.kappa[FUNCTION].numpy(), self.data.u[FUNCTION].numpy()


def find_sets(reference: Reference, counts: list[int], path: Path) -> list[ReferenceSet]:
    """Return the sets of the test function shown, one for each sensor count.

    Raises
    ------
    DataError
        If one is missing.
    """
    found = []
    for m in counts:
        here = (reference.function == FUNCTION) & (reference.observations.counts == m)
        if int(here.sum()) != 1:
            raise DataError(f"{path}: {int(here.sum())} observation sets with {m} sensors")
        s = int(here.nonzero()[0, 0])
        o = reference.observations[s : s + 1]
        read = o.locations[o.mask].numpy(), o.values[o.mask].numpy()
        posterior = reference.mean[s].numpy(), reference.std[s].numpy()
        found.append(ReferenceSet(o, *read, *posterior))
    return found


def load_test(functions: Path, reference: Path) -> tuple[Functions, Reference, float]:
    """Read the test functions and their reference posteriors; returns the noise level too.

    Raises
    ------
    DataError
        If the two files do not belong together, or no figure can show the domain.
    """
    data = load_functions(functions, "test")
    found, problem, noise_std = load_reference(reference)
    if problem.name != data.problem.name:
        raise DataError(f"{reference}: of {problem.name}, but {functions}: of {data.problem.name}")
    require_drawable(problem, functions)
    return data, found, noise_std


def require_drawable(problem: Problem, path: Path) -> None:
    """Refuse domains of more than two dimensions."""
    if problem.grid.dim > 2:
        raise DataError(f"{path}: figures show domains of one or two dimensions")

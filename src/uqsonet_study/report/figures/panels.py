"""One test function as figures show it: its sensors, its reference posterior, who predicts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch

from uqsonet.errors import DataError
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.gauss.metrics import relative_error
from uqsonet.operator.weight_files import load
from uqsonet.runs.functions import Functions
from uqsonet.sensors.sensors import Sensors
from uqsonet_study.ensemble import load_ensemble
from uqsonet_study.predictor import Predictor
from uqsonet_study.reference.files import Reference, load_sets
from uqsonet_study.report.inputs import PanelFiles
from uqsonet_study.storage import load_functions

FUNCTION = 0  # the test function shown

Moments = tuple[np.ndarray, np.ndarray]
"""Mean and standard deviation on the full grid, shape (n,) each."""


@dataclass(frozen=True)
class Panel:
    """The test function shown, seen by some sensors."""

    data: Functions  # test functions
    observations: Sensors  # what the sensors read, a batch of one
    noise_std: float  # of the observations, in the transformed input
    reference: Moments  # given the observations

    @property
    def fields(self) -> OperatorFields:
        """Input and output of the operator."""
        return self.data.fields

    @property
    def truth(self) -> tuple[np.ndarray, np.ndarray]:
        """Input and output of the test function, shape (n,) each."""
        return self.data.kappa[FUNCTION].numpy(), self.data.u[FUNCTION].numpy()

    @property
    def sensors(self) -> np.ndarray:
        """Places of the sensors, shape (m, d)."""
        return self.observations.locations[self.observations.mask].numpy()

    @property
    def values(self) -> np.ndarray:
        """What the sensors read, shape (m,)."""
        return self.observations.values[self.observations.mask].numpy()


def read_panels(files: Sequence[PanelFiles]) -> list[Panel]:
    """Read the panels of a figure, all of one test function."""
    read = cache(read_test)
    panels = []
    for one in files:
        data, reference, noise_std = read(one.functions, one.reference)
        here = (reference.function == FUNCTION) & (reference.counts == one.sensors)
        s = int(here.nonzero()[0, 0])
        moments = reference.mean[s].numpy(), reference.std[s].numpy()
        panels.append(Panel(data, reference.observations[s : s + 1], noise_std, moments))
    return panels


def read_test(functions: Path, reference: Path) -> tuple[Functions, Reference, float]:
    """Read the test functions, their reference posteriors, and the noise."""
    data = load_functions(functions, "test")
    if data.fields.output.grid.dim > 2:
        raise DataError(f"{functions}: figures show domains of one or two dimensions")
    found, _, noise_std = load_sets(reference)
    if not isinstance(found, Reference):
        raise DataError(f"{reference}: has no posteriors, which figures show")
    return data, found, noise_std


def load_predictor(files: PanelFiles) -> Predictor:
    """Return whose prediction a panel shows: the first trial, or the ensemble of all."""
    return load_ensemble(files.weights) if files.ensemble else load(files.weights[0])


def error_of(values: np.ndarray, reference: np.ndarray) -> str:
    """Return the relative L2 error of a mean or a standard deviation, in print."""
    error = relative_error(torch.from_numpy(values), torch.from_numpy(reference))
    return f"{100 * float(error):.1f} %"

"""One test function as figures show it: its sensors, its reference posterior, who predicts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from uqsonet.errors import DataError
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.gauss.metrics import relative_error
from uqsonet.operator.file import load
from uqsonet.runs.functions import Functions
from uqsonet.sensors.sensors import Sensors
from uqsonet_study.ensemble import load_ensemble
from uqsonet_study.predictor import Predictor
from uqsonet_study.reference.files import ObservationSets, Reference, load_sets
from uqsonet_study.storage import load_functions

FUNCTION = 0  # the test function shown

Moments = tuple[np.ndarray, np.ndarray]
"""Mean and standard deviation on the full grid, shape (n,) each."""

PanelFiles = Mapping[str, Any]
"""A panel as the plan declares it: the files ``functions``, ``reference`` and ``weights``, and
``sensors`` (their number), ``noise_std`` and ``ensemble``."""


@dataclass(frozen=True)
class Panel:
    """The test function shown, seen by some sensors."""

    data: Functions  # test functions
    observations: Sensors  # what the sensors read, a batch of one
    noise_std: float  # of the observations, in the transformed input
    reference: Moments | None  # given the observations, where there is one

    @property
    def fields(self) -> OperatorFields:
        """Input and output of the operator."""
        return self.data.fields

    @property
    def truth(self) -> tuple[np.ndarray, np.ndarray]:
        """Input and output of the test function, shape (n,) each."""
        return self.data.kappa[FUNCTION].numpy(), self.data.u[FUNCTION].numpy()

    @property
    def target(self) -> tuple[np.ndarray, np.ndarray | None]:
        """What a prediction is compared with: reference mean and std, or the true output alone."""
        return self.reference or (self.truth[1], None)

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
        data, reference, noise_std = read(Path(one["functions"]), Path(one["reference"]))
        here = (reference.function == FUNCTION) & (reference.counts == one["sensors"])
        s = int(here.nonzero()[0, 0])
        known = isinstance(reference, Reference)
        moments = (reference.mean[s].numpy(), reference.std[s].numpy()) if known else None
        panels.append(Panel(data, reference.observations[s : s + 1], noise_std, moments))
    return panels


def read_test(functions: Path, reference: Path) -> tuple[Functions, ObservationSets, float]:
    """Read the test functions, their observation sets or reference posteriors, and the noise."""
    data = load_functions(functions, "test")
    if data.fields.output.grid.dim > 2:
        raise DataError(f"{functions}: figures show domains of one or two dimensions")
    found, _, noise_std = load_sets(reference)
    return data, found, noise_std


def load_predictor(files: PanelFiles) -> Predictor:
    """Return whose prediction a panel shows: the first trial, or the ensemble of all."""
    weights = [Path(path) for path in files["weights"]]
    return load_ensemble(weights) if files["ensemble"] else load(weights[0])


def error_of(values: np.ndarray, reference: np.ndarray) -> str:
    """Return the relative L2 error of a mean or a standard deviation, in print."""
    error = relative_error(torch.from_numpy(values), torch.from_numpy(reference))
    return f"{100 * float(error):.1f} %"

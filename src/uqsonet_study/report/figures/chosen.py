"""What a posterior figure is asked to show: cases named by files, and the laws behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import torch

from uqsonet.data import Functions
from uqsonet.errors import DataError
from uqsonet.metrics import relative_error
from uqsonet.models.ensemble import load_ensemble
from uqsonet.models.weights import load
from uqsonet_study.report.figures.sets import Panel, find_sets, load_test
from uqsonet_study.report.names import method_title


class Conditioned(Protocol):
    """A model, an ensemble, a baseline: whatever has a law of u given sensors.

    `condition` returns an object with `mean()` and `std()`, each a tensor (1, n) on the full grid
    for a batch of one set.
    """

    def condition(self, locations: Any, values: Any, mask: Any, noise_std: float, /) -> Any:
        """Return the law of u given a batch of observations with noise of that level."""
        ...


@dataclass(frozen=True)
class Chosen:
    """One panel of a posterior figure.

    Attributes
    ----------
    functions, reference : Path
        Test functions and the reference posteriors of an evaluation.
    sensors : int
        Number of sensors.
    noise_std : float
        Of the observations in `reference`.
    model : Conditioned
        Whose prediction is shown.
    method : str
        Its name in print.
    """

    functions: Path
    reference: Path
    sensors: int
    noise_std: float
    model: Conditioned
    method: str = "UQ-SONet"


def choose(panels: Sequence[Mapping[str, Any]], method: str) -> list[Chosen]:
    """Return the panels of a declared figure, each model loaded once.

    Parameters
    ----------
    panels : sequence of mapping
        Keys ``functions``, ``reference``, ``weights`` (files), ``ensemble``, ``sensors`` and
        ``noise_std``.
    method : str
    """

    @cache
    def model(weights: tuple[str, ...], ensemble: bool) -> Conditioned:
        files = [Path(path) for path in weights]
        return load_ensemble(files) if ensemble else load(files[0])

    return [
        Chosen(
            Path(one["functions"]),
            Path(one["reference"]),
            one["sensors"],
            one["noise_std"],
            model(tuple(one["weights"]), one["ensemble"]),
            method_title(method),
        )
        for one in panels
    ]


def predict(chosen: Sequence[Chosen]) -> tuple[Functions, list[Panel]]:
    """Read the files and condition each model on its sensors.

    Returns
    -------
    data : Functions
        The test functions that the panels share.
    panels : list of Panel

    Raises
    ------
    DataError
        If there is nothing to show, files do not belong together, the noise is not that of the
        reference, an observation set is missing or the panels are of several data sets.
    """
    files = {one.functions for one in chosen}
    if len(files) != 1:
        raise DataError(f"a figure shows one test function, found {len(files)} data sets")
    read = {one.reference: load_test(one.functions, one.reference) for one in chosen}
    data, _, _ = read[chosen[0].reference]
    panels = []
    for one in chosen:
        _, found, noise_std = read[one.reference]
        if one.noise_std != noise_std:
            raise DataError(f"{one.reference}: of noise {noise_std:g}, asked for {one.noise_std:g}")
        (given,) = find_sets(found, [one.sensors], one.reference)
        o = given.observations
        posterior = one.model.condition(o.locations, o.values, o.mask, one.noise_std)
        mean, std = posterior.mean()[0].double(), posterior.std()[0].double()
        truths = torch.from_numpy(given.mean), torch.from_numpy(given.std)
        errors = (float(relative_error(mean, truths[0])), float(relative_error(std, truths[1])))
        law = mean.numpy(), std.numpy()
        panels.append(Panel(given, law, errors, one.noise_std, one.method))
    return data, panels

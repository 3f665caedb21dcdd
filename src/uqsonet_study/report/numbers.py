"""Rows of a summary, looked up one by one and checked against the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from uqsonet.errors import DataError
from uqsonet_study.config import Config


@dataclass(frozen=True)
class Number:
    """One averaged score: errors as fractions, `pm` NaN with one trial."""

    value: float
    pm: float
    low: float
    high: float
    trials: int
    sets: int


class Numbers:
    """The averaged scores of one case.

    Parameters
    ----------
    summary : DataFrame
        As `uqsonet_study.report.summary.summarise` returns it.
    case : str
    config : Config

    Raises
    ------
    DataError
        If a row stands there twice.
    """

    def __init__(self, summary: pd.DataFrame, case: str, config: Config) -> None:
        self.case = config.cases[case]
        self.counts = self.case.sensors.counts
        self._trials = {
            method: 1 if config.ensemble_of(self.case.experiment, method) else self.case.trials
            for method in self.case.methods
        }
        self._sets = {str(label): used.sets for label, used in config.evaluations.items()}
        self._found: dict[tuple[str, str, str, int], Number] = {}
        for row in summary.to_dict("records"):
            if row["case"] != case:
                continue
            key = row["evaluation"], row["method"], row["metric"], int(row["sensors"])
            if key in self._found:
                raise DataError(f"{self._place(*key)} is in the summary twice")
            value, pm, low, high = (float(row[name]) for name in ("value", "pm", "low", "high"))
            trials, sets = int(row["trials"]), int(row["sets"])
            self._found[key] = Number(value, pm, low, high, trials, sets)

    def _place(self, evaluation: str, method: str, metric: str, sensors: int) -> str:
        return f"{self.case.name}: {metric} of {method!r} with {sensors} sensors ({evaluation})"

    def get(self, evaluation: str, method: str, metric: str, sensors: int) -> Number:
        """Return one averaged score.

        Raises
        ------
        DataError
            If it is absent, NaN, or has other trials or sets than the configuration, whose
            numbers captions state.
        """
        place = self._place(evaluation, method, metric, sensors)
        found = self._found.get((evaluation, method, metric, sensors))
        if found is None:
            raise DataError(f"{place} is not in the summary")
        expected = self._trials.get(method, 1), self._sets[evaluation]
        if (found.trials, found.sets) != expected:
            raise DataError(
                f"{place} has {found.trials} trials and {found.sets} sets, the configuration "
                f"says {expected[0]} and {expected[1]}"
            )
        # With one trial there is no spread over trials: that ± alone may be absent.
        spread = (found.pm,) if found.trials > 1 else ()
        if any(pd.isna(x) for x in (found.value, found.low, found.high, *spread)):
            raise DataError(f"{place} is NaN in the summary")
        return found

    def metrics(self, evaluation: str, method: str, among: Sequence[str]) -> list[str]:
        """Return those metrics that a method has: a deterministic one has no spread.

        The first is always among them, so that a method without any row is an error.
        """
        there = [m for m in among[1:] if (evaluation, method, m, self.counts[0]) in self._found]
        return [among[0], *there]

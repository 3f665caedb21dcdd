"""Where a number of an error table stands: its row, its group of columns, and the case behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from uqsonet_study.config import BASELINES, Case, Config, ErrorTable
from uqsonet_study.config.evaluations import TestEvaluation
from uqsonet_study.report.names import FLOOR
from uqsonet_study.report.numbers import Number, Numbers
from uqsonet_study.report.paper import PaperCell, cells_of
from uqsonet_study.report.tables.captions import distinct
from uqsonet_study.report.tables.text import EMPTY, SIGMA, M, Text, plain, text

UNTRAINED = (*BASELINES, FLOOR)


@dataclass(frozen=True)
class Group:
    """What is fixed in a group of columns: all but the value that makes the row.

    Attributes
    ----------
    experiments : tuple of str
        Searched in turn for the row's value.
    noise_std, sensors : float or int, or None
        None for the one that makes the rows.
    line : str
        Cut line, empty for the whole domain.
    """

    experiments: tuple[str, ...]
    noise_std: float | None
    sensors: int | None
    line: str


class Places:
    """Rows and groups of an error table, and the numbers at their crossings.

    Parameters
    ----------
    name : str
        Of the table.
    config : Config
    summary : DataFrame
        Of all experiments that the table shows.
    """

    def __init__(self, name: str, config: Config, summary: pd.DataFrame) -> None:
        table = config.tables[name]
        assert isinstance(table, ErrorTable)
        self.name, self.config, self.by = name, config, table.rows
        self.experiments = [e for e in table.experiments if e in config.selected]
        self.cases = config.cases_of(self.experiments)
        self.numbers = {case.name: Numbers(summary, case.name, config) for case in self.cases}
        self.printed = {case.name: cells_of(name, case) for case in self.cases}

    @cached_property
    def noises(self) -> list[float]:
        """Noise levels of all experiments."""
        return sorted({case.noise_std for case in self.cases})

    @cached_property
    def counts(self) -> list[int]:
        """Sensor counts of all experiments."""
        return sorted({m for case in self.cases for m in case.sensors.counts})

    @property
    def rows(self) -> Sequence[float]:
        """Values that make the rows."""
        return self.counts if self.by == "sensors" else self.noises

    @property
    def corner(self) -> Text:
        """Heading of the rows."""
        return M if self.by == "sensors" else SIGMA

    @property
    def methods(self) -> list[str]:
        """Learned methods of all experiments."""
        return distinct(method for case in self.cases for method in case.methods)

    @cached_property
    def groups(self) -> list[Group]:
        """Groups of columns in the paper's order."""
        lines = [*distinct(line for case in self.cases for line in case.cut_lines), ""]
        if self.by == "noise_std":
            return [Group(tuple(self.experiments), None, m, x) for m in self.counts for x in lines]
        levels = distinct((case.experiment, case.noise_std) for case in self.cases)
        return [Group((experiment,), level, None, x) for experiment, level in levels for x in lines]

    def title(self, group: Group, among: Sequence[Group]) -> Text:
        """Return the heading of a group: what tells it from others."""
        parts = []
        equals = Text("$=$", "=")
        if group.sensors is not None:
            parts.append(text("{m} {equals} {count}", m=M, equals=equals, count=group.sensors))
        elif group.noise_std is not None and len({g.noise_std for g in among}) > 1:
            level = text("{s} {equals} {v}", s=SIGMA, equals=equals, v=f"{group.noise_std:g}")
            parts.append(level if group.noise_std else plain("noiseless"))
        same = [g for g in among if g.noise_std == group.noise_std]
        if len({g.experiments for g in same}) > 1:
            parts.append(plain(group.experiments[0]))
        if group.line:
            axis, _, value = group.line.partition("=")
            parts.append(text("{axis} {equals} {v}", axis=_variable(axis), equals=equals, v=value))
        elif any(g.line for g in among):
            parts.append(plain("domain"))
        return _listed(parts)

    def case(self, group: Group, row: float, method: str, label: TestEvaluation) -> Case | None:
        """Return the case behind a cell, None where no experiment has one."""
        noise = row if group.noise_std is None else group.noise_std
        sensors = int(row) if group.sensors is None else group.sensors
        for experiment in group.experiments:
            declared = self.config.experiments[experiment]
            if noise in declared.noise_levels and sensors in declared.sensors.counts:
                found = self.config.case(experiment, noise_std=noise, sensors=sensors)
                there = method in (*found.methods, *UNTRAINED) and label in found.evaluations
                if there and (not group.line or group.line in found.cut_lines):
                    return found
        return None

    def _where(self, group: Group, row: float, metric: str) -> tuple[str, int]:
        score = f"{metric}@{group.line}" if group.line else metric
        return score, int(row) if group.sensors is None else group.sensors

    def number(
        self, label: TestEvaluation, method: str, metric: str, group: Group, row: float
    ) -> Number | None:
        """Return a number, None where the configuration declares none."""
        case = self.case(group, row, method, label)
        score, sensors = self._where(group, row, metric)
        if case is None or not self.has(case, label, method, score):
            return None
        return self.numbers[case.name].get(label, method, score, sensors)

    def has(self, case: Case, label: TestEvaluation, method: str, score: str) -> bool:
        """Return whether a method has a metric: a deterministic one has no spread."""
        first = score.replace("_std", "_mean")
        return score in self.numbers[case.name].metrics(label, method, [first, score])

    def paper(self, method: str, metric: str, group: Group, row: float) -> PaperCell | None:
        """Return what the paper prints at a place."""
        case = self.case(group, row, method, "paper")
        score, sensors = self._where(group, row, metric)
        return None if case is None else self.printed[case.name].get((method, sensors, score))


def _variable(name: str) -> Text:
    return Text(f"${name}$", f"<var>{name}</var>")


def _listed(parts: Sequence[Text]) -> Text:
    found = EMPTY
    for part in parts:
        found = found + plain(",") + Text(" ", " ") + part if found else part
    return found

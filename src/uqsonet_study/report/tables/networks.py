"""Tables of networks: the paper's kind, Karhunen-Loeve, training; tab:NN beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from uqsonet_study.config import Config
from uqsonet_study.report.names import method_title, problem_title
from uqsonet_study.report.paper import paper_networks
from uqsonet_study.report.tables.captions import distinct, quoted_recipes
from uqsonet_study.report.tables.cells import Cell, Column, Panel, Table
from uqsonet_study.report.tables.records import shown_cases
from uqsonet_study.report.tables.settings import (
    ATTENTION,
    KRIGING,
    TRAINING,
    Settings,
    has_attention,
    network_settings,
    parsed,
    printed,
    training_settings,
)
from uqsonet_study.report.tables.text import to_words


@dataclass(frozen=True)
class Entry:
    """The settings of a method in a case; what the paper prints has no case."""

    problem: str
    method: str
    case: str
    settings: Settings


def networks_table(name: str, config: Config) -> tuple[Table, pd.DataFrame]:
    """Return a table of the networks used and its settings in long form, as text."""
    cases = shown_cases(config, name)
    problems = distinct(case.problem for case in cases)
    networks: dict[bool, list[Entry]] = {True: [], False: []}
    training = []
    for case in cases:
        for method in case.methods:
            of_paper = has_attention(config.method_of(case.name, method))
            settings = network_settings(config, case, method)
            networks[of_paper].append(Entry(case.problem, method, case.name, settings))
            settings = training_settings(config, case, method)
            training.append(Entry(case.problem, method, case.name, settings))
    panels, records = [], []
    for title, headings, papers, entries in (
        ("Networks of the paper's kind", ATTENTION, _papers(problems, ATTENTION), networks[True]),
        ("Karhunen-Loeve networks (not in the paper)", KRIGING, [], networks[False]),
        ("Training", TRAINING, _papers(problems, TRAINING), training),
    ):
        if papers or entries:
            panels.append(_panel(f"{title}.", headings, [*papers, *entries]))
            records += _records(name, config, entries, papers)
    caption = (
        "Rows “paper”: what the paper prints, the same for VIDON and UQ-SONet; all others: what "
        f"this run used (recipe {quoted_recipes(config, cases)}). 2 × 40 are two hidden layers of "
        "40 neurons. Problems with equal settings share a row."
    )
    title = "Networks and training"
    return Table(name, title, f"{title}.", caption, tuple(panels)), pd.DataFrame(records)


def _papers(problems: Sequence[str], headings: Mapping[str, str]) -> list[Entry]:
    """Return what the paper prints for some problems."""
    table = paper_networks().set_index("problem")
    found = []
    for problem in (p for p in problems if p in table.index):
        row = table.loc[problem]
        settings = {key: printed(parsed(row[key])) for key in headings if key in row}
        found.append(Entry(problem, "paper", "", settings))
    return found


def _panel(title: str, headings: Mapping[str, str], entries: list[Entry]) -> Panel:
    """Return the settings of all entries; those with equal settings share a row."""
    rows: dict[tuple[str, frozenset[tuple[str, str]]], list[Entry]] = {}
    for entry in entries:
        rows.setdefault((entry.method, frozenset(entry.settings.items())), []).append(entry)
    labels = tuple(
        (_problems(found, entries), method_title(method)) for (method, _), found in rows.items()
    )
    columns = tuple(
        Column((heading,), tuple(Cell(found[0].settings.get(key)) for found in rows.values()))
        for key, heading in headings.items()
        if any(key in entry.settings for entry in entries)
    )
    return Panel(title, ("problem", "method"), labels, columns)


def _problems(row: list[Entry], entries: list[Entry]) -> str:
    """Return ``2D PDE/SDE`` for a row of ``2D PDE`` and ``2D SDE``.

    A case is named where its problem has other rows for the method.
    """
    found: dict[str, list[str]] = {}
    for entry in row:
        others = [e for e in entries if (e.problem, e.method) == (entry.problem, entry.method)]
        title = problem_title(entry.problem)
        if any(other.settings != entry.settings for other in others):
            title += f" ({entry.case})"
        first, _, rest = title.partition(" ")
        found.setdefault(first, []).append(rest)
    names = (f"{first} {'/'.join(distinct(rest))}" for first, rest in found.items())
    return ", ".join(name.rstrip() for name in names)


def _records(
    name: str, config: Config, entries: list[Entry], papers: list[Entry]
) -> list[dict[str, Any]]:
    """Return one row per setting of ours, the paper's beside it."""
    beside = {entry.problem: entry.settings for entry in papers}
    rows = []
    for entry in entries:
        experiment = config.cases[entry.case].experiment
        for key, value in entry.settings.items():
            row = {
                "table": f"tab:{name}",
                "experiment": experiment,
                "case": entry.case,
                "scale": config.scale,
                "recipe": config.recipe_of(experiment),
                "method": entry.method,
                "metric": key,
                "setting": to_words(value),
            }
            paper = beside.get(entry.problem, {}).get(key)
            rows.append(row if paper is None else row | {"paper_setting": to_words(paper)})
    return rows

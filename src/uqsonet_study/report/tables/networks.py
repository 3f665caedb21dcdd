"""Tables of networks: the paper's kind, Karhunen-Loeve, training; tab:NN beside ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from uqsonet_study.config import Case, Config, NetworkTable
from uqsonet_study.report.names import method_title, problem_title, smoke
from uqsonet_study.report.paper import paper_networks
from uqsonet_study.report.tables.captions import distinct
from uqsonet_study.report.tables.cells import Cell, Column, Panel, Table
from uqsonet_study.report.tables.settings import (
    ATTENTION,
    KRIGING,
    TRAINING,
    Settings,
    is_attention,
    network_settings,
    printed,
    training_settings,
)
from uqsonet_study.report.tables.text import TIMES, Text, bold, join, plain, quoted, text


@dataclass(frozen=True)
class Entry:
    """The settings of a method in a case; of the paper where there is no case."""

    problem: str
    method: str
    case: Case | None
    settings: Settings


def networks_table(name: str, config: Config) -> tuple[Table, pd.DataFrame]:
    """Return a table of the networks used and its settings in long form, as text."""
    table = config.tables[name]
    assert isinstance(table, NetworkTable)
    cases = config.cases_of([e for e in table.experiments if e in config.selected])
    ours = [(case, method) for case in cases for method in case.methods]
    attention = [x for x in ours if is_attention(config.method_of(x[0].name, x[1]))]
    kriging = [x for x in ours if x not in attention]
    problems = distinct(case.problem for case in cases)

    def entries(found: list[tuple[Case, str]], of: Mapping[str, Text]) -> list[Entry]:
        settings = training_settings if of is TRAINING else network_settings
        return [Entry(c.problem, m, c, settings(config, c, m)) for c, m in found]

    parts = [
        ("Networks of the paper's kind", ATTENTION, _papers(problems, ATTENTION), attention),
        ("Karhunen-Loeve networks (not in the paper)", KRIGING, [], kriging),
        ("Training", TRAINING, _papers(problems, TRAINING), ours),
    ]
    panels, records = [], []
    for title, headings, papers, found in parts:
        listed = [*papers, *entries(found, headings)]
        if listed:
            panels.append(_panel(title, headings, listed))
            records += _records(name, config, headings, entries(found, headings), papers)
    return Table(name, "Networks and training", _caption(config, cases), tuple(panels)), (
        pd.DataFrame(records)
    )


def _caption(config: Config, cases: list[Case]) -> Text:
    recipes = distinct(config.recipe_of(case.experiment) for case in cases)
    return text(
        "{smoke}{title} Rows {paper}: what the paper prints, the same for VIDON and UQ-SONet; all "
        "others: what this run used (recipe {recipes}). {example} are two hidden layers of 40 "
        "neurons. Problems with equal settings share a row.",
        smoke=smoke(config),
        title=bold(plain("Networks and training.")),
        paper=quoted("paper"),
        recipes=join(", ", [quoted(recipe) for recipe in recipes]),
        example=text("2 {times} 40", times=TIMES),
    )


def _papers(problems: list[str], headings: Mapping[str, Text]) -> list[Entry]:
    """Return what the paper prints for some problems."""
    table = paper_networks().set_index("problem")
    return [
        Entry(
            problem,
            "paper",
            None,
            {k: printed(k, table.loc[problem, k]) for k in headings if k in table.columns},
        )
        for problem in problems
        if problem in table.index
    ]


def _panel(title: str, headings: Mapping[str, Text], entries: list[Entry]) -> Panel:
    rows: dict[tuple[str, tuple[tuple[str, Text], ...]], list[Entry]] = {}
    for entry in entries:
        rows.setdefault((entry.method, tuple(entry.settings.items())), []).append(entry)
    used = [key for key in headings if any(key in entry.settings for entry in entries)]
    labels = tuple(
        (plain(_problems(found, entries)), plain(method_title(method)))
        for (method, _), found in rows.items()
    )
    columns = [
        Column((headings[key],), tuple(Cell(found[0].settings.get(key)) for found in rows.values()))
        for key in used
    ]
    return Panel(plain(f"{title}."), (plain("problem"), plain("method")), labels, tuple(columns))


def _problems(row: list[Entry], entries: list[Entry]) -> str:
    """Return the problems of a row, with cases where a problem has other rows for the method."""
    names = []
    for entry in row:
        others = [e for e in entries if (e.problem, e.method) == (entry.problem, entry.method)]
        splits = entry.case is not None and any(e.settings != entry.settings for e in others)
        title = problem_title(entry.problem)
        names.append(f"{title} ({entry.case.name})" if splits and entry.case else title)
    return _joined(distinct(names))


def _joined(names: list[str]) -> str:
    """Return ``2D PDE/SDE`` for ``2D PDE`` and ``2D SDE``."""
    found: dict[str, list[str]] = {}
    for name in names:
        first, _, rest = name.partition(" ")
        found.setdefault(first, []).append(rest)
    return ", ".join(f"{first} {'/'.join(rest)}".rstrip() for first, rest in found.items())


def _records(
    name: str,
    config: Config,
    headings: Mapping[str, Text],
    entries: list[Entry],
    papers: list[Entry],
) -> list[dict[str, object]]:
    beside = {entry.problem: entry.settings for entry in papers}
    rows = []
    for entry in entries:
        assert entry.case is not None
        about = {
            "table": f"tab:{name}",
            "experiment": entry.case.experiment,
            "case": entry.case.name,
            "scale": config.scale,
            "recipe": config.recipe_of(entry.case.experiment),
            "method": entry.method,
        }
        for key in headings:
            value, paper = entry.settings.get(key), beside.get(entry.problem, {}).get(key)
            if value is not None:
                told = {} if paper is None else {"paper_setting": paper.words}
                rows.append(about | {"metric": key, "setting": value.words} | told)
    return rows

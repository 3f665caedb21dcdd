"""Tables of networks: the paper's kind, Karhunen-Loeve, training; tab:NN beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from uqsonet_study.config import Config
from uqsonet_study.report.names import method_title, problem_title
from uqsonet_study.report.paper import paper_networks
from uqsonet_study.report.printing import Panel, Table, to_words
from uqsonet_study.report.tables.captions import distinct, quoted_recipes
from uqsonet_study.report.tables.records import Files, shown_cases
from uqsonet_study.report.tables.settings import (
    ATTENTION,
    KRIGING,
    TRAINING,
    has_attention,
    network_settings,
    parsed,
    printed,
    training_settings,
)

ABOUT = ["problem", "method", "case"]
"""What a row of settings belongs to; what the paper prints has no case."""


def networks_table(name: str, config: Config, _files: Files) -> tuple[Table, pd.DataFrame]:
    """Return a table of the networks used and its settings in long form, as text."""
    cases = shown_cases(config, name)
    problems = distinct(case.problem for case in cases)
    networks: dict[bool, list[dict[str, str]]] = {True: [], False: []}
    training = []
    for case in cases:
        for method in case.methods:
            about = dict(zip(ABOUT, (case.problem, method, case.name), strict=True))
            of_paper = has_attention(config.method_of(case.name, method))
            networks[of_paper].append(about | network_settings(config, case, method))
            training.append(about | training_settings(config, case, method))
    panels, records = [], []
    for title, headings, papers, ours in (
        ("Networks of the paper's kind", ATTENTION, _papers(problems, ATTENTION), networks[True]),
        ("Karhunen-Loeve networks (not in the paper)", KRIGING, [], networks[False]),
        ("Training", TRAINING, _papers(problems, TRAINING), training),
    ):
        if papers or ours:
            panels.append(_panel(f"{title}.", headings, [*papers, *ours]))
            records += _records(name, config, ours, papers)
    caption = (
        "Rows “paper”: what the paper prints, the same for VIDON and UQ-SONet; all others: what "
        f"this run used (recipe {quoted_recipes(config, cases)}). 2 × 40 are two hidden layers of "
        "40 neurons. Problems with equal settings share a row."
    )
    title = "Networks and training"
    return Table(name, title, f"{title}.", caption, tuple(panels)), pd.DataFrame(records)


def _papers(problems: Sequence[str], headings: Mapping[str, str]) -> list[dict[str, str]]:
    """Return what the paper prints for some problems."""
    table = paper_networks().set_index("problem").to_dict("index")
    return [
        {"problem": problem, "method": "paper", "case": ""}
        | {key: printed(parsed(table[problem][key])) for key in headings if key in table[problem]}
        for problem in problems
        if problem in table
    ]


def _panel(title: str, headings: Mapping[str, str], rows: list[dict[str, str]]) -> Panel:
    """Return the settings of all rows; problems with equal settings of a method share one."""
    table = pd.DataFrame(rows).fillna("")
    settings = [key for key in headings if key in table]
    kinds = table.groupby(["problem", "method"])["case"].transform("size")
    alike = table.groupby(["problem", "method", *settings])["case"].transform("size")
    # A case is named where its problem has other settings for the method.
    named = table["problem"].map(problem_title)
    named = named.where(kinds == alike, named + " (" + table["case"] + ")")
    shared = table.assign(named=named).groupby(["method", *settings], sort=False)
    shared = shared["named"].agg(_joined).reset_index()
    shared["method"] = shared["method"].map(method_title)
    cells = shared.rename(columns={**headings, "named": "problem"})
    cells = cells.set_index(["problem", "method"])
    return Panel(title, cells, words=True)


def _joined(titles: pd.Series) -> str:
    """Return ``2D PDE/SDE`` for ``2D PDE`` and ``2D SDE``."""
    found: dict[str, list[str]] = {}
    for title in titles:
        first, _, rest = title.partition(" ")
        found.setdefault(first, []).append(rest)
    names = (f"{first} {'/'.join(distinct(rest))}" for first, rest in found.items())
    return ", ".join(name.rstrip() for name in names)


def _records(
    name: str, config: Config, ours: list[dict[str, str]], papers: list[dict[str, str]]
) -> list[dict[str, str]]:
    """Return one row per setting of ours, the paper's beside it."""
    beside = {row["problem"]: row for row in papers}
    found = []
    for row in ours:
        experiment = config.cases[row["case"]].experiment
        about = {
            "table": f"tab:{name}",
            "experiment": experiment,
            "case": row["case"],
            "scale": config.scale,
            "recipe": config.recipe_of(experiment),
            "method": row["method"],
        }
        for key in (key for key in row if key not in ABOUT):
            record = about | {"metric": key, "setting": to_words(row[key])}
            paper = beside.get(row["problem"], {}).get(key)
            found.append(record | ({"paper_setting": to_words(paper)} if paper else {}))
    return found

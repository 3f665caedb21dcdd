"""The tables of a run: each as LaTeX, as HTML for a page, and as numbers; and all in one document.

Every layout has a module of its name that turns its inputs into a `printing.Table` and into
records, one row per number. Records of all layouts have the columns `table`, `experiment`, `scale`,
`recipe`, `method` and `metric`, so that they stand one below the other in `all.csv`; a column that
a layout lacks is empty there. Networks have a text in `setting`, all others a number in `value`
(unit in `unit`); the paper's stands in `paper`, `paper_pm` and `paper_setting`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from uqsonet.errors import DataError
from uqsonet.files import write_text
from uqsonet_study.beyond.scores import laws_table
from uqsonet_study.config import Config
from uqsonet_study.report.printing import Table, document, fitted, html_table, latex, to_html
from uqsonet_study.report.summary import write_csv
from uqsonet_study.report.tables.ablation import ablation_table
from uqsonet_study.report.tables.bands import bands_table
from uqsonet_study.report.tables.costs import costs_table
from uqsonet_study.report.tables.errors import errors_table
from uqsonet_study.report.tables.networks import networks_table
from uqsonet_study.report.tables.records import Files
from uqsonet_study.report.tables.scores import scores_table

LAYOUTS: dict[str, Callable[[str, Config, Files], tuple[Table, pd.DataFrame]]] = {
    "errors": errors_table,
    "bands": bands_table,
    "scores": scores_table,
    "networks": networks_table,
    "laws": laws_table,
    "ablation": ablation_table,
    "costs": costs_table,
}
"""Layout -> what turns files, by kind, into a table and its numbers in long form."""


def write_table(name: str, config: Config, files: Files, folder: Path) -> None:
    """Write a declared table as LaTeX, CSV and JSON.

    The LaTeX is floats for a document; the CSV has the same numbers unrounded, errors in percent;
    the JSON is ``{"name", "title", "caption_html", "panels": [[title_html, table_html], ...]}``
    with a plain `title`.

    Parameters
    ----------
    name : str
        Of ``config.tables``. Experiments that are not selected are left out.
    files : mapping of str to files
        ``summaries`` of `uqsonet_study.report.summary.summarise` (errors, bands, scores); ``logs``
        of trainings by case and method (costs, ablation), of which several may share one;
        timings, ``inference`` (costs); `scores.csv`, ``scores`` (laws).

    Raises
    ------
    DataError
        If an input lacks a number or contradicts the configuration.
    """
    if name not in config.tables:
        raise DataError(f"tables.{name} is not in the configuration")
    table, records = LAYOUTS[config.tables[name].layout](name, config, files)
    table = fitted(table)
    note = "SMOKE SCALE – " if config.scale == "smoke" else ""
    write_text(folder / f"{name}.tex", latex(table, note))
    write_csv(folder / f"{name}.csv", records, 12)
    headline = f"<strong>{to_html(table.headline)}</strong>"
    page = {
        "name": table.name,
        "title": table.title,
        "caption_html": f"{note}{headline} {to_html(table.caption)}",
        "panels": [[to_html(panel.title), html_table(panel)] for panel in table.panels],
    }
    write_text(folder / f"{name}.json", json.dumps(page, ensure_ascii=False, indent=1) + "\n")


def all_tables(tables: Sequence[Path], out: Path) -> None:
    """Write one document that holds every table and compiles by itself, and one CSV beside it.

    `tables` are LaTeX files of `write_table`, each with its CSV of the same name beside it.
    """
    bodies = [path.read_text(encoding="utf-8") for path in tables]
    found = [pd.read_csv(path.with_suffix(".csv"), dtype=str) for path in tables]
    none = pd.DataFrame(columns=pd.Index(["table", "metric", "value"]))
    write_text(out, document(bodies or ["The configuration asks for no tables."]))
    write_csv(out.with_suffix(".csv"), pd.concat(found or [none], ignore_index=True))

"""The tables of a run: each as LaTeX, as HTML for a page, and as numbers; and all in one document.

Every layout has a module of its name that turns its inputs into a `printing.Table` and into
records, one row per number. Records of all layouts have the columns `table`, `experiment`, `scale`,
`recipe`, `method` and `metric`, so that they stand one below the other in `all.csv`; a column that
a layout lacks is empty there. Networks have a text in `setting`, all others a number in `value`
(unit in `unit`); the paper's stands in `paper`, `paper_pm` and `paper_setting`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from uqsonet.errors import DataError
from uqsonet.files import write_text
from uqsonet_study.config import Config
from uqsonet_study.report.law_scores import COLUMNS as LAW_COLUMNS
from uqsonet_study.report.place_scores import COLUMNS as PLACE_COLUMNS
from uqsonet_study.report.printing import Table, document, fitted, html_table, latex, to_html
from uqsonet_study.report.summary import read_numbers
from uqsonet_study.report.tables.ablation import ablation_table
from uqsonet_study.report.tables.bands import bands_table
from uqsonet_study.report.tables.costs import Logs, costs_table
from uqsonet_study.report.tables.errors import errors_table
from uqsonet_study.report.tables.laws import laws_table
from uqsonet_study.report.tables.networks import networks_table
from uqsonet_study.report.tables.placement import placement_table
from uqsonet_study.report.tables.scores import scores_table

OF_SCORES = {"errors": errors_table, "bands": bands_table, "scores": scores_table}


def write_table(
    name: str,
    config: Config,
    out_tex: Path,
    out_csv: Path,
    out_json: Path,
    *,
    summaries: Sequence[pd.DataFrame] = (),
    logs: Logs | None = None,
    inference: Sequence[Path] = (),
    scores: Sequence[Path] = (),
) -> None:
    """Write a declared table.

    Parameters
    ----------
    name : str
        Of ``config.tables``. Experiments that are not selected are left out.
    config : Config
    out_tex : Path
        Floats for a LaTeX document.
    out_csv : Path
        The same numbers unrounded, errors in percent.
    out_json : Path
        ``{"name", "title", "caption_html", "panels": [[title_html, table_html], ...]}``; `title`
        is plain text.
    summaries : sequence of DataFrame
        As `uqsonet_study.report.summary.summarise` returns them (errors, bands, scores).
    logs : mapping, optional
        Case -> method -> training logs (costs, ablation); several may share one.
    inference : sequence of Path
        Timings (costs).
    scores : sequence of Path
        `scores.csv` (laws, placement).

    Raises
    ------
    DataError
        If an input lacks a number or contradicts the configuration.
    """
    if name not in config.tables:
        raise DataError(f"tables.{name} is not in the configuration")
    layout = config.tables[name].layout
    if layout in OF_SCORES:
        summary = pd.concat(summaries, ignore_index=True)
        table, records = OF_SCORES[layout](name, config, summary)
    elif layout == "networks":
        table, records = networks_table(name, config)
    elif layout == "laws":
        table, records = laws_table(name, config, read_numbers(scores[0], LAW_COLUMNS))
    elif layout == "placement":
        table, records = placement_table(name, config, read_numbers(scores[0], PLACE_COLUMNS))
    elif layout == "ablation":
        table, records = ablation_table(name, config, logs or {})
    else:
        table, records = costs_table(name, config, logs or {}, inference)
    table = fitted(table)
    note = "SMOKE SCALE – " if config.scale == "smoke" else ""
    write_text(out_tex, latex(table, note))
    write_text(out_csv, records.to_csv(index=False, float_format="%.12g", lineterminator="\n"))
    write_text(out_json, json.dumps(_page(table, note), ensure_ascii=False, indent=1) + "\n")


def _page(table: Table, note: str) -> dict[str, object]:
    """Return a table as a page takes it in."""
    headline = f"<strong>{to_html(table.headline)}</strong>"
    return {
        "name": table.name,
        "title": table.title,
        "caption_html": f"{note}{headline} {to_html(table.caption)}",
        "panels": [[to_html(panel.title), html_table(panel)] for panel in table.panels],
    }


def all_tables(tables: Sequence[Path], out: Path) -> None:
    """Write one document that holds every table and compiles by itself, and one CSV beside it.

    `tables` are LaTeX files of `write_table`, each with its CSV of the same name beside it.
    """
    bodies = [path.read_text(encoding="utf-8") for path in map(Path, tables)]
    found = [pd.read_csv(Path(path).with_suffix(".csv"), dtype=str) for path in tables]
    none = pd.DataFrame(columns=pd.Index(["table", "metric", "value"]))
    records = pd.concat(found or [none], ignore_index=True)
    write_text(out, document(bodies or ["The configuration asks for no tables."]))
    write_text(out.with_suffix(".csv"), records.to_csv(index=False, lineterminator="\n"))

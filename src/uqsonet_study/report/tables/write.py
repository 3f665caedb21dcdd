"""The tables of a run: each as LaTeX, as a page in HTML, and as numbers; and all in one document.

Every layout has a module of its name that turns its inputs into a `printing.Table` and into
records, one row per number. Records of all layouts have the columns `table`, `experiment`, `scale`,
`recipe`, `method` and `metric`, so that they stand one below the other in `all.csv`; a column that
a layout lacks is empty there. Networks have a text in `setting`, all others a number in `value`
(unit in `unit`); the paper's stands in `paper`, `paper_pm` and `paper_setting`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from uqsonet.files import write_text
from uqsonet_study.cases import Study
from uqsonet_study.report.printing import Table, document, fitted, page
from uqsonet_study.report.summary import write_csv
from uqsonet_study.report.tables.ablation import ablation_table
from uqsonet_study.report.tables.bands import bands_table
from uqsonet_study.report.tables.costs import costs_table
from uqsonet_study.report.tables.errors import errors_table
from uqsonet_study.report.tables.laws import laws_table
from uqsonet_study.report.tables.networks import networks_table
from uqsonet_study.report.tables.scores import scores_table

LAYOUTS: dict[str, Callable[[str, Study], tuple[Table, pd.DataFrame]]] = {
    "errors": errors_table,
    "bands": bands_table,
    "scores": scores_table,
    "networks": networks_table,
    "laws": laws_table,
    "ablation": ablation_table,
    "costs": costs_table,
}
"""Layout -> what turns files, by kind, into a table and its numbers in long form."""


def write_table(name: str, study: Study, folder: Path) -> None:
    """Write a declared table as ``{name}.tex``, ``{name}.csv`` and ``{name}.html``.

    The LaTeX is floats for a document; the CSV has the same numbers unrounded, errors in percent;
    the HTML is a page that needs nothing else, for `snakemake --report`.

    Parameters
    ----------
    name : str
        Of ``config.tables``.

    Raises
    ------
    DataError
        If an input lacks a number or contradicts the configuration.
    """
    table, records = LAYOUTS[study.config.tables[name].layout](name, study)
    write_files(table, records, study.config.scale, folder)


def write_files(table: Table, records: pd.DataFrame, scale: str, folder: Path) -> None:
    """Write a table and its numbers under its name."""
    note = "SMOKE SCALE – " if scale == "smoke" else ""
    for kind in ("tex", "html"):
        write_text(folder / f"{table.name}.{kind}", page(fitted(table), note, kind))
    write_csv(folder / f"{table.name}.csv", records, 12)


def all_tables(tables: Sequence[Path], out: Path) -> None:
    """Write one document that holds every table and compiles by itself, and one CSV beside it.

    `tables` are LaTeX files of `write_table`, each with its CSV of the same name beside it.
    """
    bodies = [path.read_text(encoding="utf-8") for path in tables]
    found = [pd.read_csv(path.with_suffix(".csv"), dtype=str) for path in tables]
    none = pd.DataFrame(columns=pd.Index(["table", "metric", "value"]))
    write_text(out, document(bodies or ["The configuration asks for no tables."]))
    write_csv(out.with_suffix(".csv"), pd.concat(found or [none], ignore_index=True))

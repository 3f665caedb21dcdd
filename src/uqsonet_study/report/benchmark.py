"""The table of the comparison with published figures: CSV, LaTeX and Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from uqsonet.errors import DataError
from uqsonet_study.report.tables.cells import Cell, Column, Panel, Table
from uqsonet_study.report.tables.latex import document, render

COLUMNS = (
    "problem direction target method pairs err_sample err_mean seconds seconds_samples functions"
).split()

PROBLEMS = {
    "poisson": "Poisson",
    "helmholtz": "Helmholtz",
    "darcy": "Darcy",
    "navier_stokes": "Navier-Stokes",
}
DIRECTIONS = ("forward", "inverse", "both")


def joined(scores: Sequence[Path], published: str | Path) -> pd.DataFrame:
    """Return measured and published figures in one table.

    Parameters
    ----------
    scores : sequence of Path
        Files of `uqsonet_study.benchmark.benchmark`.
    published : str or Path
        CSV file; besides columns of the table it has `source`.

    Raises
    ------
    DataError
        If a file lacks a column, or names a problem or a direction that is unknown.
    """
    parts = []
    for path in [*scores, Path(published)]:
        found = pd.read_csv(path)
        wanted = ["problem", "direction", "method", "err_sample"]
        missing = [column for column in wanted if column not in found]
        if missing:
            raise DataError(f"{path}: no column {missing[0]}, found {', '.join(found.columns)}")
        for column, known in (("problem", PROBLEMS), ("direction", DIRECTIONS)):
            unknown = sorted(set(found[column]) - set(known))
            if unknown:
                raise DataError(
                    f"{path}: {column} {unknown[0]!r} is unknown; there are {', '.join(known)}"
                )
        parts.append(found.reindex(columns=COLUMNS))
    table = pd.concat([part.dropna(axis=1, how="all") for part in parts])
    table = pd.DataFrame(table).reindex(columns=COLUMNS)
    sides = table.direction.map({"forward": "output", "inverse": "input"})
    table["target"] = table.target.fillna(sides)
    for column in ("pairs", "functions"):
        table[column] = table[column].astype("Int64")
    return table.take(_order(table))


def _order(table: pd.DataFrame) -> list[int]:
    problems, methods = list(PROBLEMS), ["exact", "ours", "regression"]

    rows = table.to_dict("records")

    def key(row: int) -> tuple[int, ...]:
        one = rows[row]
        own = methods.index(one["method"]) if one["method"] in methods else len(methods)
        pairs = 0 if pd.isna(one["pairs"]) else -int(one["pairs"])
        place = DIRECTIONS.index(one["direction"]), int(one["target"] == "output")
        return problems.index(one["problem"]), *place, own, pairs, row

    return sorted(range(len(rows)), key=key)


def as_latex(table: pd.DataFrame) -> str:
    """Return the table as a document that compiles by itself."""
    panels = []
    for problem, part in table.groupby("problem", sort=False):
        labels, rows = _rows(part)
        columns = tuple(
            Column(
                (f"{direction}, {target}", head), tuple(row[direction, target][c] for row in rows)
            )
            for direction, target in _places(part)
            for c, head in enumerate(("sample", "mean", "s"))
        )
        title = PROBLEMS[str(problem)]
        panels.append(Panel(title, ("method", "pairs"), tuple(labels), columns))
    text = (
        "Relative L2 errors in percent of one posterior sample and of the posterior mean, and "
        "seconds of one core for a mean."
    )
    whole = Table("benchmark", "Published figures", "Sensors of one field.", text, tuple(panels))
    return document([render(whole, "")])


def as_markdown(table: pd.DataFrame) -> str:
    """Return the table for the documentation."""
    lines = []
    for problem, part in table.groupby("problem", sort=False):
        places, (labels, rows) = _places(part), _rows(part)
        heads = [f"{direction}: {target}" for direction, target in places]
        lines += [f"| {PROBLEMS[str(problem)]} | pairs | " + " | ".join(heads) + " | seconds |"]
        lines += ["|---" * (len(heads) + 3) + "|"]
        for label, row in zip(labels, rows, strict=True):
            cells = [row[place] for place in places]
            errors = [
                " / ".join(cell.printed or "-" for cell in some[:2]) if _any(some) else "-"
                for some in cells
            ]
            seconds = [c[2].value for c in cells if isinstance(c[2].value, float)]
            longest = f"{max(seconds):.1f}" if seconds else "-"
            lines.append("| " + " | ".join([*label, *errors, longest]) + " |")
        lines.append("")
    return "\n".join(lines[:-1])


def _any(cells: Iterable[Cell]) -> bool:
    return any(cell.value is not None for cell in cells)


Place = tuple[str, str]
"""Direction and target."""


def _places(part: pd.DataFrame) -> list[Place]:
    return list(dict.fromkeys(zip(part.direction, part.target, strict=True)))


def _rows(part: pd.DataFrame) -> tuple[list[tuple[str, str]], list[dict[Place, list[Cell]]]]:
    """Return labels of the rows, method and pairs, and cells: sample, mean, seconds."""
    labels, rows = [], []
    for found, some in part.groupby(["method", "pairs"], sort=False, dropna=False):
        method, pairs = found  # pyright: ignore[reportGeneralTypeIssues]
        labels.append((str(method), "" if pd.isna(pairs) else f"{int(pairs):,}"))
        row = {place: [Cell()] * 3 for place in _places(part)}
        for one in some.to_dict("records"):
            values = one["err_sample"], one["err_mean"], one["seconds"]
            row[str(one["direction"]), str(one["target"])] = [
                Cell(None if math.isnan(float(value)) else float(value)) for value in values
            ]
        rows.append(row)
    return labels, rows

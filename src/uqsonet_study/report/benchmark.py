"""The table of the comparison with published figures: CSV, LaTeX and Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from uqsonet.errors import DataError
from uqsonet_study.report.printing import Panel, Table, document, latex, markdown, text_of

COLUMNS = (
    "problem direction target method pairs err_sample err_mean seconds seconds_samples functions"
).split()

PROBLEMS = {
    "poisson": "Poisson",
    "helmholtz": "Helmholtz",
    "darcy": "Darcy",
    "navier_stokes": "Navier-Stokes",
}
FIRST = ["exact", "ours", "ours, symmetric", "regression"]  # methods that stand first
NUMBERS = {"err_sample": "sample", "err_mean": "mean", "seconds": "s"}
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
    table = pd.DataFrame(table).reindex(columns=COLUMNS).reset_index(drop=True)
    sides = table["direction"].map({"forward": "output", "inverse": "input"}.get)
    table["target"] = table["target"].fillna(sides)
    for column in ("pairs", "functions"):
        table[column] = table[column].astype("Int64")
    order = {
        "problem": table["problem"].map([*PROBLEMS].index),
        "direction": table["direction"].map([*DIRECTIONS].index),
        "output": table["target"] == "output",
        "method": [[*FIRST, method].index(method) for method in table["method"]],
        "pairs": -table["pairs"].fillna(0),
    }
    return table.take(pd.DataFrame(order).sort_values([*order], kind="stable").index)


def as_latex(table: pd.DataFrame) -> str:
    """Return the table as a document that compiles by itself."""
    panels = []
    for problem, numbers in _by_problem(table):
        cells = numbers.map(text_of)
        cells.columns = pd.MultiIndex.from_tuples(
            [(f"{direction}, {target}", NUMBERS[kind]) for direction, target, kind in numbers]
        )
        panels.append(Panel(problem, cells))
    text = (
        "Relative L2 errors in percent of one posterior sample and of the posterior mean, and "
        "seconds of one core for a mean."
    )
    whole = Table("benchmark", "Published figures", "Sensors of one field.", text, tuple(panels))
    return document([latex(whole, "")])


def as_markdown(table: pd.DataFrame) -> str:
    """Return the table for the documentation."""
    blocks = []
    for problem, numbers in _by_problem(table):
        cells = numbers.map(lambda value: text_of(value) or "-")
        found: dict[str, Any] = {problem: numbers.index.get_level_values("method")}
        found["pairs"] = numbers.index.get_level_values("pairs")
        for direction, target in dict.fromkeys((d, t) for d, t, _ in numbers):
            errors = cells[direction, target, "err_sample"].str.cat(
                cells[direction, target, "err_mean"], sep=" / "
            )
            found[f"{direction}: {target}"] = errors.replace("- / -", "-").to_numpy()
        longest = numbers.xs("seconds", axis=1, level=2).max(axis=1)
        found["seconds"] = [text_of(value, digits=1) or "-" for value in longest]
        blocks.append(markdown(pd.DataFrame(found)))
    return "\n\n".join(blocks)


def _by_problem(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield each problem's title and numbers: rows by method and pairs, columns by what is sought.

    Columns have the levels direction, target and number.
    """
    table = table.assign(pairs=[f"{int(n):,}" if pd.notna(n) else "" for n in table["pairs"]])
    rows, sought = ["method", "pairs"], ["direction", "target"]
    for problem, part in table.groupby("problem", sort=False):
        places = list(part[sought].drop_duplicates().itertuples(index=False, name=None))
        wide = part.pivot(index=rows, columns=sought, values=list(NUMBERS)).astype(float)
        wide = wide.reorder_levels([1, 2, 0], axis=1)
        columns = [(*place, number) for place in places for number in NUMBERS]
        index = pd.MultiIndex.from_frame(part.loc[:, rows].drop_duplicates())
        yield PROBLEMS[str(problem)], pd.DataFrame(wide.reindex(index, columns=columns))

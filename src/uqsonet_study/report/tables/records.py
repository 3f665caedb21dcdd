"""Scores in long form, one row per number: what CSV files hold and panels are made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from uqsonet.errors import DataError
from uqsonet_study import BASELINES
from uqsonet_study.cases import Row, Study
from uqsonet_study.report import inputs
from uqsonet_study.report.names import FLOOR
from uqsonet_study.report.paper import paper_scores
from uqsonet_study.report.printing import text_of
from uqsonet_study.report.summary import GAINS
from uqsonet_study.report.summary import SKILLS as SKILL_OF
from uqsonet_study.settings import TestEvaluation

ERRORS = tuple(SKILL_OF)
SKILLS = tuple(SKILL_OF.values())
UNTRAINED = (*BASELINES, FLOOR)
WIDTH = "mean_std"
OWN_UNITS = (*SKILLS, *GAINS, WIDTH)
"""Metrics printed as they are; all others are fractions, printed in percent."""

KEY = ["case", "evaluation", "method", "metric", "sensors"]
NUMBERS = ["value", "pm", "low", "high"]
COLUMNS = "table experiment case scale recipe noise_std training evaluation method sensors".split()
COLUMNS += ["metric", "unit", *NUMBERS, "trials", "sets"]

Wanted = Callable[[Row], Iterable[tuple[TestEvaluation, str, str]]]
"""Case -> evaluation, method and metric of its numbers, in order."""


def shown_cases(study: Study, table: str) -> list[Row]:
    """Return the cases of a table's experiments, in its order."""
    return study.of(study.config.tables[table].experiments)


def about(table: str, study: Study, case: Row) -> dict[str, Any]:
    """Return the columns that say where a number of a table belongs."""
    return {
        "table": f"tab:{table}",
        "experiment": case.experiment,
        "case": case.name,
        "scale": study.config.scale,
        "recipe": case.recipe,
        "noise_std": case.noise,
        "training": case.N,
    }


def error_metrics(case: Row) -> Iterator[tuple[TestEvaluation, str, str]]:
    """Yield evaluation, method and metric of every error and skill of a case."""
    errors = [*ERRORS, *(f"{error}@{line}" for line in case.cut_lines for error in ERRORS)]
    for label in case.evaluations:
        for method in (*case.methods, *UNTRAINED):
            for metric in (*errors, *(() if method == "sensor_free" else SKILLS)):
                yield label, method, metric


def score_records(table: str, study: Study, cases: Sequence[Row], wanted: Wanted) -> pd.DataFrame:
    """Return the scores of a table in long form (`COLUMNS`), fractions in percent.

    A metric other than the error of the mean may be absent for a method, at all sensor counts: a
    deterministic method has no spread.

    Raises
    ------
    DataError
        If a number is absent or NaN.
    """
    summaries = pd.concat(map(pd.read_csv, study.paths(inputs.summaries_of_table(study, table))))
    given = summaries.loc[:, [*KEY, *NUMBERS, "trials", "sets"]].astype({"sensors": int})
    rows = [
        about(table, study, case)
        | {"evaluation": label, "method": method, "sensors": m, "metric": metric}
        | {"unit": "1" if metric in OWN_UNITS else "percent"}
        for case in cases
        for label, method, metric in wanted(case)
        for m in case.counts
    ]
    found = pd.DataFrame(rows).merge(given, how="left", on=KEY, indicator="there")
    found["there"] = found["there"] == "both"
    of_mean = found["metric"].str.startswith(("err_mean", "skill_mean"))
    at_any_count = found.groupby(["experiment", "evaluation", "method", "metric"])["there"]
    found = found.loc[of_mean | at_any_count.transform("any")]
    for problem, bad in (
        ("is not in the summary", ~found["there"]),
        ("is NaN in the summary", found["value"].isna()),
    ):
        for row in found.loc[bad].to_dict("records")[:1]:
            raise DataError(
                f"{row['case']}: {row['metric']} of {row['method']!r} with {row['sensors']} "
                f"sensors ({row['evaluation']}) {problem}"
            )
    scale = found["unit"].map({"1": 1.0, "percent": 100.0})
    found[NUMBERS] = found[NUMBERS].mul(scale, axis=0)
    found = found.astype({"trials": int, "sets": int})
    return found.loc[:, COLUMNS].reset_index(drop=True)


def with_paper(records: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Return records with what the paper prints for them, empty where it prints nothing."""
    keys = ["table", "problem", "method", "sensors", "noise_std", "metric", "evaluation"]
    problems = records["case"].map(study.cases["problem"].get)
    found = records.assign(problem=problems)
    found = found.merge(paper_scores().assign(evaluation="paper"), how="left", on=keys)
    return found.drop(columns="problem")


def with_interval(record: Any, digits: int = 2) -> str:
    """Return a number with its 95 % interval."""
    return text_of(record.value, interval=(record.low, record.high), digits=digits)


def marked_interval(record: Any, digits: int = 2) -> str:
    """Return a number with its 95 % interval, marked where that includes zero."""
    return with_interval(record, digits) + "†" * (record.low <= 0 <= record.high)

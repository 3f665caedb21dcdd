"""Scores in long form, one row per number: what CSV files hold and panels are made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pandas as pd

from uqsonet.errors import DataError
from uqsonet_study.config import Case, Config
from uqsonet_study.config.evaluations import TestEvaluation
from uqsonet_study.report.paper import paper_scores
from uqsonet_study.report.printing import text_of
from uqsonet_study.report.summary import GAINS
from uqsonet_study.report.summary import SKILLS as SKILL_OF

ERRORS = tuple(SKILL_OF)
SKILLS = tuple(SKILL_OF.values())
WIDTH = "mean_std"
OWN_UNITS = (*SKILLS, *GAINS, WIDTH)
"""Metrics printed as they are; all others are fractions, printed in percent."""

KEY = ["case", "evaluation", "method", "metric", "sensors"]
NUMBERS = ["value", "pm", "low", "high"]
COLUMNS = "table experiment case scale recipe noise_std training evaluation method sensors".split()
COLUMNS += ["metric", "unit", *NUMBERS, "trials", "sets"]

Wanted = Callable[[Case], Iterable[tuple[TestEvaluation, str, str]]]
"""Case -> evaluation, method and metric of its numbers, in order."""


def shown_cases(config: Config, table: str) -> list[Case]:
    """Return the cases of those experiments of a table that are selected, in the table's order."""
    experiments = [e for e in config.tables[table].experiments if e in config.selected]
    return [case for experiment in experiments for case in config.cases_of([experiment])]


def about(table: str, config: Config, case: Case) -> dict[str, Any]:
    """Return the columns that say where a number of a table belongs."""
    return {
        "table": f"tab:{table}",
        "experiment": case.experiment,
        "case": case.name,
        "scale": config.scale,
        "recipe": config.recipe_of(case.experiment),
        "noise_std": case.noise_std,
        "training": case.training,
    }


def place(row: Any) -> str:
    """Return where a number stands, in words."""
    return (
        f"{row['case']}: {row['metric']} of {row['method']!r} with {int(row['sensors'])} sensors "
        f"({row['evaluation']})"
    )


def score_records(
    table: str, config: Config, cases: Sequence[Case], summary: pd.DataFrame, wanted: Wanted
) -> pd.DataFrame:
    """Return the scores of a table in long form (`COLUMNS`), fractions in percent.

    A metric other than the error of the mean may be absent for a method, at all sensor counts: a
    deterministic method has no spread.

    Raises
    ------
    DataError
        If a number is absent, there twice, NaN, or has other trials or sets than the
        configuration, whose numbers captions state.
    """
    given = summary.loc[:, [*KEY, *NUMBERS, "trials", "sets"]].astype({"sensors": int})
    given = given.loc[given["case"].isin([case.name for case in cases])]
    _refuse(given, given.duplicated(KEY), "is in the summary twice")
    rows = [row for case in cases for row in _rows(table, config, case, wanted)]
    found = pd.DataFrame(rows).merge(given, how="left", on=KEY, indicator="there")
    found["there"] = found["there"] == "both"
    of_mean = found["metric"].str.startswith(("err_mean", "skill_mean"))
    at_any_count = found.groupby(["experiment", "evaluation", "method", "metric"])["there"]
    found = found.loc[of_mean | at_any_count.transform("any")]
    _refuse(found, ~found["there"], "is not in the summary")
    differs = found["trials"] != found["expected_trials"]
    differs |= found["sets"] != found["expected_sets"]
    _refuse(
        found,
        differs,
        "has {trials:.0f} trials and {sets:.0f} sets, the configuration says {expected_trials} "
        "and {expected_sets}",
    )
    # With one trial there is no spread over trials: that ± alone may be absent.
    absent = found[["value", "low", "high"]].isna().any(axis=1)
    absent |= found["pm"].isna() & (found["trials"] > 1)
    _refuse(found, absent, "is NaN in the summary")
    scale = found["unit"].map({"1": 1.0, "percent": 100.0})
    found[NUMBERS] = found[NUMBERS].mul(scale, axis=0)
    found = found.astype({"trials": int, "sets": int})
    return found.loc[:, COLUMNS].reset_index(drop=True)


def _rows(table: str, config: Config, case: Case, wanted: Wanted) -> Iterable[dict[str, Any]]:
    """Yield what the configuration says of every number of a case."""
    for label, method, metric in wanted(case):
        trained = method in case.methods
        single = not trained or config.ensemble_of(case.experiment, method)
        for m in case.counts:
            yield about(table, config, case) | {
                "evaluation": label,
                "method": method,
                "sensors": m,
                "metric": metric,
                "unit": "1" if metric in OWN_UNITS else "percent",
                "expected_trials": 1 if single else case.trials,
                "expected_sets": config.evaluation_of(case.name, label).sets,
            }


def _refuse(records: pd.DataFrame, bad: pd.Series, problem: str) -> None:
    """Raise for the first of some bad records; the problem may name its columns in braces."""
    for row in records.loc[bad].to_dict("records")[:1]:
        raise DataError(f"{place(row)} {problem.format(**row)}")


def with_paper(records: pd.DataFrame, config: Config) -> pd.DataFrame:
    """Return records with what the paper prints for them, empty where it prints nothing."""
    keys = ["table", "problem", "method", "sensors", "noise_std", "metric", "evaluation"]
    problems = records["case"].map(lambda name: config.cases[name].problem)
    found = records.assign(problem=problems)
    found = found.merge(paper_scores().assign(evaluation="paper"), how="left", on=keys)
    return found.drop(columns="problem")


def with_interval(record: Any, digits: int = 2) -> str:
    """Return a number with its 95 % interval."""
    return text_of(record.value, interval=(record.low, record.high), digits=digits)


def marked_interval(record: Any, digits: int = 2) -> str:
    """Return a number with its 95 % interval, marked where that includes zero."""
    return with_interval(record, digits) + "†" * (record.low <= 0 <= record.high)

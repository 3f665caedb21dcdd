"""Scores of laws of the input: `scores.csv`, a row for each law and number of sensors."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import pandas as pd

from uqsonet_study import BASELINES
from uqsonet_study.cases import Row, Study
from uqsonet_study.config import has_law
from uqsonet_study.report.inputs import law_experiments
from uqsonet_study.report.names import FLOOR
from uqsonet_study.report.summary import read_case

ERRORS = {"mean": "err_mean", "std": "err_std", "w1": "w1"}
"""Part of a column's name -> metric, printed in percent."""

LEVELS = (50, 90, 95)
COLUMNS = "problem law sensors err_mean err_std w1 median_mean median_std median_w1".split()
COLUMNS += "floor_mean floor_std floor_w1 crps cover_50 cover_90 cover_95".split()


def law_scores(study: Study) -> pd.DataFrame:
    """Return the scores (`COLUMNS`) of all laws that are compared.

    `err_*` and `w1` are means over the observation sets of the most precise evaluation (and over
    trials), `median_*` medians over the sets, `floor_*` means of an independent draw of the
    reference; all in percent. `crps` is in the units of the output. `cover_*` is the percentage of
    the reference's mass inside the central band of that level, averaged over points and sets. A
    number that a law has not is NaN.

    Raises
    ------
    DataError
        If a file cannot be read, or lacks the error of the mean of a method.
    """
    cases = study.of(law_experiments(study))
    return pd.concat([_of_case(study, case) for case in cases], ignore_index=True)


def law_name(study: Study, case: Row, method: str) -> str:
    """Return the law that a method stands for, the method itself where it has no such law."""
    if method in BASELINES:
        return method
    found, network = study.law(case, method), study.settings(case, method).network
    if found is not None:
        return found.law
    return network.law if has_law(network) else method


def _of_case(study: Study, case: Row) -> pd.DataFrame:
    """Return the rows of one case."""
    scores = read_case(study, case)
    scores = scores.loc[scores["evaluation"] == case.evaluations[-1]]
    # Trials share the sets: a set's score is the mean over trials.
    by_set = scores.groupby(["method", "sensors", "metric", "set"])["value"].mean()
    grouped = by_set.groupby(["method", "sensors", "metric"])
    means, medians = grouped.mean().to_dict(), grouped.median().to_dict()

    def percent(of: Mapping[Any, float], *key: object) -> float:
        return 100 * of.get(key, float("nan"))

    rows = []
    for method, m in product((*BASELINES, *case.methods), case.counts):
        row = {"problem": case.problem, "law": law_name(study, case, method), "sensors": m}
        for part, metric in ERRORS.items():
            row[metric] = percent(means, method, m, metric)
            row[f"median_{part}"] = percent(medians, method, m, metric)
            row[f"floor_{part}"] = percent(means, FLOOR, m, metric)
        row["crps"] = means.get((method, m, "crps"), float("nan"))
        row |= {f"cover_{x}": percent(means, method, m, f"within_{x}") for x in LEVELS}
        rows.append(row)
    return pd.DataFrame(rows, columns=pd.Index(COLUMNS))

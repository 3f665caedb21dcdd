"""Ours beside each of the paper's 142 error cells: what is reproduced, and what is still empty."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from uqsonet.errors import DataError
from uqsonet_study import BASELINES
from uqsonet_study.cases import Study
from uqsonet_study.report import inputs
from uqsonet_study.report.names import FLOOR
from uqsonet_study.report.paper import COLUMNS as PAPER_COLUMNS
from uqsonet_study.report.paper import paper_cells, paper_scores
from uqsonet_study.report.summary import write_csv
from uqsonet_study.report.tables.records import COLUMNS as RECORD_COLUMNS
from uqsonet_study.report.tables.records import error_metrics, score_records, shown_cases

PLACE = ["table", "problem", "noise_std", "sensors", "score"]
"""What a cell and a score have in common, besides the method."""

PAPER = {method: method for method in BASELINES} | {FLOOR: "mc_floor"}
PRECISE = {method: f"precise_{method}" for method in BASELINES}
OURS = {"value": "ours", "pm": "ours_pm", "trials": "trials"}
OURS_PRECISE = {"value": "precise", "low": "precise_low", "high": "precise_high"}
"""The same errors over the many sets of the `precise` evaluation, with the interval of ours."""

MORE_SETS = [*OURS_PRECISE.values(), *PRECISE.values()]
COLUMNS = [*PAPER_COLUMNS, *OURS.values(), *PAPER.values(), *MORE_SETS, "recipe", "run"]


def scorecard(study: Study, run: str, out: Path) -> None:
    """Write `scorecard.csv`: one row per cell of the paper, in percent.

    Parameters
    ----------
    study : Study
        Its tables of errors say which cells were run; all others stay empty.
    run : str
        Names the run in the last column.

    Raises
    ------
    DataError
        If a number is missing or NaN, or if two experiments claim one cell.
    """
    records = _records(study).rename(columns={"metric": "score"})
    card = paper_cells().assign(score=paper_scores()["metric"])
    card = card.merge(_claims(card, records).assign(run=run), how="left", on=PLACE)
    for label, ours, beside in (("paper", OURS, PAPER), ("precise", OURS_PRECISE, PRECISE)):
        found = records.loc[records["evaluation"] == label]
        columns = found.loc[:, [*PLACE, "method", *ours]].rename(columns=ours)
        card = card.merge(columns, how="left", on=[*PLACE, "method"])
        wide = found.pivot(index=PLACE, columns="method", values="value").reindex(columns=[*beside])
        card = card.merge(wide.rename(columns=beside), how="left", left_on=PLACE, right_index=True)
    card.loc[card["ours"].isna(), MORE_SETS] = None
    write_csv(out, pd.DataFrame(card[COLUMNS]).astype({"trials": "Int64"}), 12)


def _records(study: Study) -> pd.DataFrame:
    """Return the numbers of all tables of errors in long form."""
    found = [pd.DataFrame(columns=RECORD_COLUMNS).astype({"noise_std": float, "sensors": int})]
    for name in inputs.error_tables(study):
        found.append(score_records(name, study, shown_cases(study, name), error_metrics))
    records = pd.concat(found[1:] or found, ignore_index=True)
    return records.assign(problem=records["case"].map(study.cases["problem"].get))


def _claims(card: pd.DataFrame, records: pd.DataFrame) -> pd.DataFrame:
    """Return the case and the recipe behind each cell, at most one."""
    paper = records.loc[records["evaluation"] == "paper"]
    claims = paper.loc[:, [*PLACE, "case", "recipe"]].drop_duplicates()
    twice = claims.loc[claims.duplicated(PLACE, keep=False)].merge(card, on=PLACE)
    if len(twice):
        first = twice.iloc[0]
        cases = twice.loc[(twice[PLACE] == first[PLACE]).all(axis=1), "case"].unique()
        cell = (
            f"{first['table']} {first['method']} {first['score']} with {first['sensors']} sensors, "
            f"noise {first['noise_std']:g}"
        )
        raise DataError(
            f"cases {' and '.join(cases)} both claim {cell}; take the experiment of one "
            f"of them out of {first['table'].replace('tab:', 'tables.')}"
        )
    return claims

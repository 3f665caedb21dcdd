"""Averages over observation sets and trials, with intervals, and skill over the baselines.

Scores vary with the observation sets and with the trials. The ± of the paper is the spread over
trials alone. The 95 % intervals here cover both, by a hierarchical bootstrap that redraws whole
sets and whole trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from uqsonet.errors import DataError
from uqsonet.files import write_text
from uqsonet.gauss.seeds import numpy_generator
from uqsonet_study import BASELINES
from uqsonet_study.cases import Row, Study

SCORE_COLUMNS = "method trial evaluation sensors set metric value".split()
COLUMNS = "experiment case noise_std training latent_dim method evaluation sensors metric".split()
COLUMNS += ["value", "pm", "low", "high", "trials", "sets"]
RESAMPLES = 2000
LEVEL = 0.95
SEED = 2026  # A seed of its own: an interval depends on the scores and on nothing else
SENSOR_FREE = "sensor_free"
SKILLS = {"err_mean": "skill_mean", "err_std": "skill_std"}
COKRIGING = "cokriging"
GAINS = {s: f"gain_{s}" for s in ("crps", "crps_expected", "energy", "energy_expected")}
"""Skills of whole laws, over the best linear one, where both have the score."""


@dataclass(frozen=True)
class Estimate:
    """A mean over sets, for each trial, and its bootstrap copies."""

    trials: np.ndarray  # (T,), mean over sets of each trial
    copies: np.ndarray  # (RESAMPLES,), mean over redrawn sets and trials
    sets: int

    def row(self) -> dict[str, Any]:
        """Return value, ± over trials and interval."""
        tail = 50 * (1 - LEVEL)
        low, high = np.percentile(self.copies, [tail, 100 - tail])
        count = len(self.trials)
        return {
            "value": float(self.trials.mean()),
            "pm": float(self.trials.std(ddof=1)) if count > 1 else np.nan,
            "low": float(low),
            "high": float(high),
            "trials": count,
            "sets": self.sets,
        }


@cache
def _shares(level: str, size: int) -> np.ndarray:
    """Return the share of each of `size` members in each redraw, (RESAMPLES, size).

    The same redraws serve all methods and metrics: differences between methods on the same sets
    are then resampled as differences.
    """
    generator = numpy_generator(SEED, "report", "bootstrap", level, size)
    return generator.multinomial(size, np.full(size, 1 / size), size=RESAMPLES) / size


def estimate(scores: np.ndarray) -> Estimate:
    """Average scores (trials, sets) and bootstrap the average.

    Notes
    -----
    With one trial the interval covers the choice of sets alone. With few trials it is somewhat
    too narrow, as every bootstrap of a handful is.
    """
    trials, sets = scores.shape
    copies = ((_shares("trials", trials) @ scores) * _shares("sets", sets)).sum(1)
    return Estimate(scores.mean(1), copies, sets)


def skill(of: Estimate, over: Estimate) -> Estimate:
    """Return ``1 - error / error of the baseline``, both errors on the same redrawn sets."""
    return Estimate(1 - of.trials / over.trials.mean(), 1 - of.copies / over.copies, of.sets)


def summarise(study: Study, experiment: str) -> pd.DataFrame:
    """Average an experiment's scores into one row per case, method, evaluation, m and metric.

    Each evaluation needs the baseline `sensor_free`, over which skill is measured.

    Of the columns (`COLUMNS`) `value` is the mean over sets, then over trials; `pm` the sample
    standard deviation over trials (NaN with one trial); `low` and `high` a 95 % interval. Metrics
    `skill_mean` and `skill_std` are added to those of the files, and those of `GAINS` for methods
    that have these scores.

    Raises
    ------
    DataError
        If a file lacks a column, holds what is no number, or repeats a score; if the files of a
        case lack a method, or scores of one.
    """
    tables = []
    for case in study.of([experiment]):
        scores, rows = read_case(study, case), list[dict[str, Any]]()
        for head, group in scores.groupby(["evaluation", "sensors"]):
            assert isinstance(head, tuple)
            where = {"evaluation": head[0], "sensors": head[1]}
            for (method, metric), found in _estimates(group, {"case": case.name} | where).items():
                rows.append(where | {"method": method, "metric": metric} | found.row())
        table = pd.DataFrame(rows).sort_values(["evaluation", "method", "metric", "sensors"])
        about = {"experiment": case.experiment, "case": case.name, "noise_std": case.noise}
        about |= {"training": case.N, "latent_dim": case.dz}
        tables.append(table.assign(**about)[COLUMNS].astype({"latent_dim": "Int64"}))
    return pd.concat(tables, ignore_index=True)


def read_case(study: Study, case: Row) -> pd.DataFrame:
    """Read the scores of a case, and refuse other or fewer than the configuration asks for."""
    rows = [row for row in study.answers_of(case.experiment) if row.name == case.name]
    files = study.paths(row.scores for row in rows)
    scores = pd.concat([read_numbers(path, SCORE_COLUMNS, "value") for path in files])
    where = f"score files of {case.name}"
    sets = {label: study.evaluation(case.problem, label).sets for label in case.evaluations}
    # Another experiment may want more trials of the same answers.
    trials = {row.method: 1 if row.ensemble else case.trials for row in rows if row.model}
    wanted = scores["sensors"].isin(case.counts)
    wanted &= scores["set"] < scores["evaluation"].map(sets.get)
    wanted &= scores["trial"] < scores["method"].map(lambda method: trials.get(method, 1))
    scores = scores.loc[wanted, SCORE_COLUMNS]
    keys = SCORE_COLUMNS[:-1]
    if scores.duplicated(keys).any():
        first = scores.loc[scores.duplicated(keys), keys].iloc[0].to_dict()
        raise DataError(f"{where}: score given twice: {first}")
    counts = scores.groupby(["evaluation", "method", "metric"]).size()
    for label, method in product(case.evaluations, (*BASELINES, *case.methods)):
        expected = trials.get(method, 1) * len(case.counts) * sets[label]
        found = counts.get((label, method), pd.Series(dtype=int))
        for metric in dict.fromkeys(["err_mean", *found.index]):
            size = found.get(metric, 0)
            if size != expected:
                raise DataError(
                    f"{where}: {label}: {size} scores of {metric} of {method!r}, expected "
                    f"{expected} ({trials.get(method, 1)} trials, {len(case.counts)} counts, "
                    f"{sets[label]} sets)"
                )
    return scores


def read_numbers(path: Path, columns: Sequence[str], *finite: str) -> pd.DataFrame:
    """Return a CSV file that a job wrote.

    Raises
    ------
    DataError
        If it cannot be read, lacks a column or rows, or has other than a finite number in one of
        the columns `finite`.
    """
    try:
        table = pd.read_csv(path)
        lacking = [name for name in columns if name not in table]
        if lacking or table.empty:
            raise ValueError(f"lacks {', '.join(lacking) or 'rows'}")
        for name in finite:
            table[name] = np.asarray(pd.to_numeric(table[name], errors="coerce"), dtype=float)
            bad = table.loc[~np.isfinite(table[name])]
            if len(bad):
                raise ValueError(f"row {bad.index[0] + 1}: {name} is no finite number")
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a file of {', '.join(columns)} ({error})") from None
    return table


def write_csv(path: Path, table: pd.DataFrame, digits: int | None = None) -> None:
    """Write a table as CSV, its numbers with so many digits that count, by default as they are."""
    form = None if digits is None else f"%.{digits}g"
    write_text(path, table.to_csv(index=False, float_format=form, lineterminator="\n"))


def _estimates(group: pd.DataFrame, where: dict[str, Any]) -> dict[tuple[str, str], Estimate]:
    """Return the estimates of one sensor count, skills included."""
    place = ", ".join(f"{key} {value}" for key, value in where.items())
    found: dict[tuple[str, str], Estimate] = {}
    scores = group.pivot(index=["method", "metric", "trial"], columns="set", values="value")
    for head, wide in scores.groupby(level=["method", "metric"]):
        assert isinstance(head, tuple)
        (method, metric), values = head, wide.to_numpy()
        found[str(method), str(metric)] = estimate(values)
    for baseline, names in ((SENSOR_FREE, SKILLS), (COKRIGING, GAINS)):
        for score, name in names.items():
            without = (SENSOR_FREE, baseline)
            of = [m for m, metric in found if metric == score and m not in without]
            if (baseline, score) in found:
                over = found[baseline, score]
                found |= {(method, name): skill(found[method, score], over) for method in of}
            elif of and baseline == SENSOR_FREE:
                raise DataError(
                    f"{place}: no {score} of {baseline!r}, over which skill is measured"
                )
    return found


def most_precise(summaries: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """Return an experiment's rows in its evaluation of most sets."""
    found = summaries.loc[summaries["experiment"] == experiment]
    label = "precise" if "precise" in set(found["evaluation"]) else "paper"
    return found.loc[found["evaluation"] == label]

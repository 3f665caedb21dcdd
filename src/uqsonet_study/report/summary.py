"""Averages over observation sets and trials, with intervals, and skill over the baselines.

Scores vary with the observation sets and with the trials. The ± of the paper is the spread over
trials alone. The 95 % intervals here cover both, by a hierarchical bootstrap that redraws whole
sets and whole trials.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from uqsonet.errors import DataError
from uqsonet.gauss.seeds import numpy_generator
from uqsonet_study.config import BASELINES, Case, Config

SCORE_COLUMNS = "method trial evaluation sensors set metric value".split()
COLUMNS = "experiment case noise_std training latent_dim method evaluation sensors metric".split()
COLUMNS += ["value", "pm", "low", "high", "trials", "sets"]
RESAMPLES = 2000
LEVEL = 0.95
SEED = 2026
"""A seed of its own: an interval depends on the scores and on nothing else."""

SENSOR_FREE = "sensor_free"
SKILLS = {"err_mean": "skill_mean", "err_std": "skill_std"}
COKRIGING = "cokriging"
GAINS = {s: f"gain_{s}" for s in ("crps", "crps_expected", "energy", "energy_expected")}
"""Skills of whole laws, over the best linear one, where both have the score."""


@dataclass(frozen=True)
class Estimate:
    """A mean over sets, for each trial, and its bootstrap copies.

    Attributes
    ----------
    trials : ndarray, shape (T,)
        Mean over sets of each trial.
    copies : ndarray, shape (RESAMPLES,)
        Mean over redrawn sets and trials.
    sets : int
    """

    trials: np.ndarray
    copies: np.ndarray
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


def summarise(files: Mapping[str, Iterable[Path]], config: Config) -> pd.DataFrame:
    """Average scores of all files into one row per case, method, evaluation, m and metric.

    `files` maps cases to CSV files of `uqsonet_study.evaluation.evaluate`, in any order; each
    evaluation needs the baseline `sensor_free`, over which skill is measured. Cases may share
    files.

    Of the columns (`COLUMNS`) `value` is the mean over sets, then over trials; `pm` the sample
    standard deviation over trials (NaN with one trial); `low` and `high` a 95 % interval. Metrics
    `skill_mean` and `skill_std` are added to those of the files, and those of `GAINS` for methods
    that have these scores.

    Raises
    ------
    DataError
        If a file lacks a column, holds a value that no such score can have, or repeats a score; if
        the files of a case have another method, or lack a trial, a metric, a count or a set.
    """
    tables = []
    for name, paths in files.items():
        case = config.cases[name]
        about = {"experiment": case.experiment, "case": name, "noise_std": case.noise_std}
        about |= {"training": case.training, "latent_dim": case.latent_dim}
        found = _summarise_case([Path(path) for path in paths], name, config)
        tables.append(found.assign(**about)[COLUMNS].astype({"latent_dim": "Int64"}))
    return pd.concat(tables, ignore_index=True)


def _summarise_case(files: Sequence[Path], case: str, config: Config) -> pd.DataFrame:
    """Average the scores of one case."""
    scores = read_case(files, config.cases[case], config)
    rows: list[dict[str, Any]] = []
    for head, group in scores.groupby(["evaluation", "sensors"]):
        assert isinstance(head, tuple)
        where = {"evaluation": head[0], "sensors": head[1]}
        for (method, metric), found in _estimates(group, {"case": case} | where).items():
            rows.append(where | {"method": method, "metric": metric} | found.row())
    table = pd.DataFrame(rows)
    order = ["evaluation", "method", "metric", "sensors"]
    return table.sort_values(order, ignore_index=True)


def read_case(files: Sequence[Path], case: Case, config: Config) -> pd.DataFrame:
    """Read the scores of a case and refuse other or fewer than the configuration asks for."""
    scores = pd.concat([read_scores(path) for path in files], ignore_index=True)
    keys = SCORE_COLUMNS[:-1]
    repeated = scores.duplicated(keys)
    if repeated.any():
        first = scores.loc[repeated.idxmax()]
        raise DataError(
            f"{first['file']}: score given twice: {', '.join(f'{k} {first[k]}' for k in keys)}"
        )
    where = f"{files[0]}: {case.name}" if len(files) == 1 else f"score files of {case.name}"
    _require(where, "evaluations", scores["evaluation"], case.evaluations)
    for label in case.evaluations:
        found, here = scores.loc[scores["evaluation"] == label], f"{where}: {label}"
        methods = (*BASELINES, *case.methods)
        _require(here, "methods", found["method"], methods, OTHERS)
        _require(here, "sensors", found["sensors"], case.counts)
        sets = range(config.evaluation_of(case.name, label).sets)
        _require(here, "sets", found["set"], sets)
        whole = set(found.loc[~found["method"].isin(OTHERS), "metric"]) - MAY_LACK
        for method, of in found.groupby("method"):
            of_trials = method in case.methods
            if of_trials:
                of_trials = config.ensemble_of(case.experiment, str(method)) is None
            # An ensemble of the same trainings may want more of them than there are trials.
            size = max(case.trials, int(of["trial"].max()) + 1) if of_trials else 1
            this = f"{here}: {method!r}"
            _require(this, "trials", of["trial"], range(size))
            metrics = {str(metric) for metric in of["metric"]}
            if method not in OTHERS:
                mean_alone = {m for m in whole if m.partition("@")[0] == "err_mean"}
                _require(this, "metrics", metrics, mean_alone or {"err_mean"}, whole | MAY_LACK)
                if metrics - mean_alone:
                    _require(this, "metrics", metrics, whole, MAY_LACK)
            for metric, rows in of.groupby("metric"):
                wanted = size * len(case.counts) * len(sets)
                if len(rows) != wanted and metric not in MAY_LACK:
                    raise DataError(
                        f"{this}: {len(rows)} scores of {metric}, expected {wanted} "
                        f"({size} trials, {len(case.counts)} counts, {len(sets)} sets)"
                    )
    return scores


OTHERS = ("reference",)
"""What may be scored beside baselines and learned methods; it has some metrics only."""

MAY_LACK = {"effective_size"}
"""Metrics that some answers have not."""

UNBIASED = ("crps", "energy")
"""Scores whose estimate may be below 0."""

SHARES = ("narrower", "within", "coverage", "rank")

LARGEST = 1e30
"""Of a score in units of u; an error relative to the reference's norm is below its root."""


def _require(
    where: str,
    what: str,
    found: Iterable[object],
    wanted: Iterable[object],
    allowed: Iterable[object] = (),
) -> None:
    """Refuse values that are unknown, or of which one is missing."""
    there, asked = set(found), set(wanted)
    for word, these in (("lacks", asked - there), ("unknown", there - asked - set(allowed))):
        if these:
            shown = ", ".join(repr(one)[:80] for one in sorted(these, key=str)[:5])
            raise DataError(f"{where}: {what}: {word} {shown}")


def _impossible(metric: str, value: float) -> bool:
    """Whether no score of this name can have such a value."""
    kind = metric.partition("@")[0].partition("_")[0]
    most = {"err": LARGEST**0.5} | dict.fromkeys(SHARES, 1 + 1e-6)
    return (value < 0 and kind not in UNBIASED) or abs(value) > most.get(kind, LARGEST)


def read_scores(path: Path) -> pd.DataFrame:
    """Read one file of scores and refuse what cannot be averaged."""
    try:
        scores = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a readable CSV file ({error})") from None
    missing = [name for name in SCORE_COLUMNS if name not in scores.columns]
    if missing or scores.empty:
        what = f"lacks columns {missing}" if missing else "holds no scores"
        raise DataError(f"{path}: {what}; expected {', '.join(SCORE_COLUMNS)}")
    values = np.asarray(pd.to_numeric(scores["value"], errors="coerce"), dtype=float)
    metrics = scores["metric"].astype(str)
    bad_rows = [
        not np.isfinite(value) or _impossible(metric, value)
        for metric, value in zip(metrics, values.tolist(), strict=True)
    ]
    if any(bad_rows):
        row = bad_rows.index(True)
        bad = scores.iloc[row]
        raise DataError(
            f"{path}: row {row + 1} after the header: {bad['metric']} of method "
            f"{bad['method']!r} (trial {bad['trial']}, {bad['sensors']} sensors, set {bad['set']}) "
            f"is {bad['value']}, which is no such score; only finite values can be averaged"
        )
    return scores[SCORE_COLUMNS].assign(value=values, file=str(path))


def _estimates(group: pd.DataFrame, where: dict[str, Any]) -> dict[tuple[str, str], Estimate]:
    """Return the estimates of one sensor count, skills included."""
    place = ", ".join(f"{key} {value}" for key, value in where.items())
    found: dict[tuple[str, str], Estimate] = {}
    scores = group.pivot(index=["method", "metric", "trial"], columns="set", values="value")
    for head, wide in scores.groupby(level=["method", "metric"]):
        assert isinstance(head, tuple)
        (method, metric), values = head, wide.to_numpy()
        if np.isnan(values).any():
            trial, lacking = np.argwhere(np.isnan(values))[0]
            of = group.loc[(group["method"] == method) & (group["metric"] == metric), "file"]
            raise DataError(
                f"{of.iloc[0]}: {place}: {metric} of {method!r}, trial "
                f"{wide.index[trial][2]}, lacks set {wide.columns[lacking]}; all methods and "
                "trials must be scored on the same sets"
            )
        found[str(method), str(metric)] = estimate(values)
    for error, name in SKILLS.items():
        of = [method for method, metric in found if metric == error and method != SENSOR_FREE]
        if error == "err_std" and not of:
            continue  # without a reference nobody has it
        if (SENSOR_FREE, error) not in found:
            raise DataError(f"{place}: no {error} of {SENSOR_FREE!r}, over which skill is measured")
        over = found[SENSOR_FREE, error]
        found |= {(method, name): skill(found[method, error], over) for method in of}
    for score, name in GAINS.items():
        of = [m for m, metric in found if metric == score and m not in (SENSOR_FREE, COKRIGING)]
        if (COKRIGING, score) in found:
            over = found[COKRIGING, score]
            found |= {(method, name): skill(found[method, score], over) for method in of}
    return found


def most_precise(summaries: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """Return an experiment's rows in its evaluation of most sets."""
    found = summaries.loc[summaries["experiment"] == experiment]
    label = "precise" if "precise" in set(found["evaluation"]) else "paper"
    return found.loc[found["evaluation"] == label]

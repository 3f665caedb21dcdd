"""The evaluation job: every observation set of an evaluation, scored and written as rows.

Posteriors are sampled from the prior of z (Algorithm 1), never through the encoder. Rows are
``method, trial, evaluation, sensors, set, metric, value``; summaries average them later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from uqsonet.errors import DataError
from uqsonet.files import write_text
from uqsonet.gauss.seeds import torch_generator
from uqsonet.networks.devices import keep_freed_memory
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.operator.weight_files import read_weights
from uqsonet_study import BASELINES
from uqsonet_study.baselines import build_baseline
from uqsonet_study.beyond.exact import ExactLaw, is_exact
from uqsonet_study.ensemble import load_ensemble, load_trials
from uqsonet_study.evaluation.scores import (
    Expansion,
    ScoringTargets,
    load_targets,
    score_reference,
    score_set,
)
from uqsonet_study.kept_modes import Keeper
from uqsonet_study.predictor import Predictor
from uqsonet_study.settings import Evaluation
from uqsonet_study.storage import load_functions

LOG = logging.getLogger("uqsonet")

LOG_EVERY = 200  # observation sets between log lines


def evaluate(
    method: str,
    label: str,
    config: Evaluation,
    noise_std: float,
    seed: int,
    functions: Path,
    reference: Path,
    path: Path,
    *,
    weights: Sequence[Path] = (),
    ensemble: bool = False,
    training: int | None = None,
    cut_lines: Sequence[str] = (),
) -> None:
    """Score a method and write its rows as CSV.

    Parameters
    ----------
    method : str
        ``baselines`` stands for all baselines and, as ``reference``, an independent reference
        draw.
    label : str
        Of the evaluation, ``paper`` or ``precise``.
    noise_std : float
        Of the observations.
    path : Path
        CSV to write.
    weights : sequence of Path
        Of a learned method, whose trials are scored one by one.
    ensemble : bool
        Take all trials of all weights as one predictor.
    training : int, optional
        Pairs that baselines are fitted to, by default all.
    cut_lines : sequence of str
        Grid lines such as ``x=0.5`` with errors of their own.
    """
    keep_freed_memory()
    require_weights(weights)
    targets = load_targets(functions, reference, config, cut_lines)
    rows: list[dict[str, Any]] = []
    if method == "baselines":
        pairs = load_functions(functions, "training", training)
        pairs.keeper = Keeper(functions)
        bases = None  # of cokriging, which regression answers in, too
        for name in BASELINES:
            model = build_baseline(name, pairs, noise_std, bases)
            bases = getattr(model, "bases", None)
            rows += _scored(model, targets, (name, 0, label), noise_std, seed)
        for s in range(len(targets.sets.function)):
            rows += _rows(targets, ("reference", 0, label), s, score_reference(targets, s))
    else:
        for trial, model in [(0, load_ensemble(weights))] if ensemble else load_trials(weights):
            if is_exact(weights):
                assert isinstance(model, KarhunenLoeveModel)  # no other method has a law
                model.law = ExactLaw(model.fields.name)
            rows += _scored(model, targets, (method, trial, label), noise_std, seed)
    text = pd.DataFrame(rows).to_csv(index=False, float_format="%.6g", lineterminator="\n")
    write_text(path, text)


def require_weights(weights: Sequence[Path]) -> None:
    """Refuse weights of other trials than their place in the list says.

    Raises
    ------
    DataError
    """
    for trial, path in enumerate(weights):
        if (found := read_weights(path)[1].get("trials")) != [trial]:
            raise DataError(f"{path}: holds trials {found}, expected [{trial}]")


def _scored(
    model: Predictor,
    targets: ScoringTargets,
    what: tuple[str, int, str],
    noise_std: float,
    seed: int,
) -> list[dict[str, Any]]:
    """Return the rows of one predictor, `what` being method, trial and evaluation."""
    method, trial, label = what
    observations = targets.sets.observations
    expansion: Expansion | None = None
    rows: list[dict[str, Any]] = []
    start, size = time.monotonic(), len(observations.values)
    for s in range(size):
        o = targets.sets.observations[s : s + 1]
        posterior = model.condition(o.locations, o.values, o.mask, noise_std)
        expansion = expansion or Expansion.of(posterior, targets)
        place = (targets.fields.name, "test", label, "model", method, trial, s)
        scores = score_set(posterior, expansion, targets, s, torch_generator(seed, *place))
        rows += _rows(targets, what, s, scores)
        if (s + 1) % LOG_EVERY == 0 or s + 1 == size:
            elapsed = time.monotonic() - start
            LOG.info("%s, trial %d: set %d of %d, %.0f s", method, trial, s + 1, size, elapsed)
    return rows


def _rows(
    targets: ScoringTargets, what: tuple[str, int, str], s: int, scores: dict[str, float]
) -> list[dict[str, Any]]:
    """Return a row for each score of set `s`; `what` is method, trial and evaluation."""
    head = dict(zip(("method", "trial", "evaluation"), what, strict=True))
    head |= {"sensors": int(targets.sets.counts[s]), "set": int(targets.sets.function[s])}
    return [head | {"metric": key, "value": value} for key, value in scores.items()]

"""Scores of a method against the reference posteriors, one row per set and metric.

Posteriors are sampled from the prior of z (Algorithm 1), never through the encoder. Rows are
``experiment, method, trial, evaluation, sensors, set, metric, value``; tables average them later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pandas as pd
import torch
from torch import Tensor

from uqsonet.baselines import build_baseline
from uqsonet.config import BASELINES, EvaluationConfig
from uqsonet.errors import NoUncertaintyError
from uqsonet.metrics import bures_wasserstein2, coverage, crps, relative_error, wasserstein2
from uqsonet.nn.weights import load
from uqsonet.posterior import Posterior, coefficient_moments, spread
from uqsonet.problems import Problem
from uqsonet.reference import Reference, load_reference
from uqsonet.seeds import torch_generator
from uqsonet.simulation import load_functions
from uqsonet.storage import read_weights, write_text

LOG = logging.getLogger("uqsonet")

BAND_SAMPLES = 1000
"""Samples behind CRPS and coverage, on the training grid."""

LEVELS = (0.5, 0.9, 0.95)


class Conditional(Protocol):
    """Anything that can be conditioned on sensors."""

    def condition(self, locations: object, values: object, mask: object = None) -> Posterior:
        """Return the law of u."""
        ...


@dataclass(frozen=True)
class Yardstick:
    """What posteriors are scored against."""

    problem: Problem
    reference: Reference
    truth: Tensor
    """Outputs of the observed functions on the full grid, (S, n)."""
    config: EvaluationConfig


def load_yardstick(functions: Path, reference: Path, config: EvaluationConfig) -> Yardstick:
    """Read the reference posteriors and the true outputs behind the observations."""
    found, problem, _ = load_reference(reference)
    truth = load_functions(functions, "test").u.double()[found.function]
    return Yardstick(problem, found, truth, config)


def score_set(
    posterior: Posterior,
    expansion: tuple[Tensor, Tensor],
    yardstick: Yardstick,
    s: int,
    generator: torch.Generator,
) -> dict[str, float]:
    """Return the metrics of one posterior (a batch of one) against reference set `s`.

    `expansion` is ``posterior.basis()``, the same for all posteriors of a model.
    """
    ref, problem, config = yardstick.reference, yardstick.problem, yardstick.config
    offset, basis = expansion
    try:
        drawn = posterior.draw(config.model_samples, generator)
    except NoUncertaintyError:
        return {"err_mean": float(relative_error(posterior.mean(), ref.mean[s]))}
    mean, covariance = coefficient_moments(drawn)
    predicted_mean, predicted_std = (offset + mean @ basis.T)[0], spread(basis, covariance)[0]
    to_modes = ref.mode_vectors.T @ basis
    grid, kept = problem.training_grid()
    samples = offset[kept] + drawn[0, :BAND_SAMPLES] @ basis[kept].T
    truth = yardstick.truth[s, kept]
    scores = {
        "err_mean": float(relative_error(predicted_mean, ref.mean[s])),
        "err_std": float(relative_error(predicted_std, ref.std[s])),
        "mean_std": float(predicted_std.mean()),
        "w2_gaussian": float(
            bures_wasserstein2(
                ref.mode_vectors.T @ offset + to_modes @ mean[0],
                to_modes @ covariance[0] @ to_modes.T,
                ref.mode_mean[s],
                ref.mode_covariance[s],
            )
        ),
        "crps": crps(samples, truth),
        **_coverages(samples, truth),
    }
    if ref.samples is not None:
        scores["w2"] = wasserstein2(samples, ref.samples[s], grid.quadrature())
    return scores


def _coverages(samples: Tensor, truth: Tensor) -> dict[str, float]:
    found = coverage(samples, truth, LEVELS)
    return {f"coverage_{100 * v:.0f}": share for v, share in zip(LEVELS, found, strict=True)}


def score_reference(yardstick: Yardstick, s: int) -> dict[str, float]:
    """Return the same metrics for an independent reference draw: the Monte Carlo floor."""
    ref, problem = yardstick.reference, yardstick.problem
    scores = {
        "err_mean": float(relative_error(ref.repeat_mean[s], ref.mean[s])),
        "err_std": float(relative_error(ref.repeat_std[s], ref.std[s])),
        "mean_std": float(ref.std[s].mean()),
    }
    if ref.samples is not None and ref.floor_w2 is not None:
        _, kept = problem.training_grid()
        samples, truth = ref.samples[s].double(), yardstick.truth[s, kept]
        scores |= {"w2": float(ref.floor_w2[s]), "crps": crps(samples, truth)}
        scores |= _coverages(samples, truth)
    return scores


def _models(
    method: str, weights: Path | None, functions: Path, noise_std: float
) -> Iterator[tuple[int, Conditional]]:
    """Yield (trial, model): each trial of a stack, or a baseline as its only trial."""
    if method in BASELINES:
        yield 0, build_baseline(method, load_functions(functions, "training"), noise_std)
        return
    assert weights is not None
    _, meta = read_weights(weights)
    for trial in meta["trials"]:
        yield trial, load(weights, trial)


def evaluate(
    experiment: str,
    method: str,
    label: str,
    config: EvaluationConfig,
    noise_std: float,
    seed: int,
    functions: Path,
    reference: Path,
    weights: Path | None,
    path: Path,
) -> None:
    """Score a method and write its rows as CSV.

    Parameters
    ----------
    experiment, method, label : str
        Label is the evaluation, ``paper`` or ``precise``. The method ``reference`` scores an
        independent reference draw.
    config : EvaluationConfig
    noise_std : float
    seed : int
    functions, reference : Path
    weights : Path or None
        Stacked weights of a learned method.
    path : Path
        CSV to write.
    """
    yardstick = load_yardstick(functions, reference, config)
    observations, counts = yardstick.reference.observations, yardstick.reference.observations.counts
    rows: list[dict[str, Any]] = []

    def add(trial: int, s: int, scores: dict[str, float]) -> None:
        head = {"experiment": experiment, "method": method, "trial": trial, "evaluation": label}
        head |= {"sensors": int(counts[s]), "set": int(yardstick.reference.function[s])}
        rows.extend(head | {"metric": key, "value": value} for key, value in scores.items())

    start, size = time.monotonic(), len(counts)
    if method == "reference":
        for s in range(size):
            add(0, s, score_reference(yardstick, s))
    else:
        for trial, model in _models(method, weights, functions, noise_std):
            expansion: tuple[Tensor, Tensor] | None = None
            for s in range(size):
                o = observations[s : s + 1]
                path_in_tree = (yardstick.problem.name, "test", label, "model", method, trial, s)
                posterior = model.condition(o.locations, o.values, o.mask)
                expansion = expansion or posterior.basis()
                generator = torch_generator(seed, *path_in_tree)
                scores = score_set(posterior, expansion, yardstick, s, generator)
                add(trial, s, scores)
                if (s + 1) % 200 == 0 or s + 1 == size:
                    elapsed = time.monotonic() - start
                    LOG.info("trial %d: set %d of %d, %.0f s", trial, s + 1, size, elapsed)
    text = pd.DataFrame(rows).to_csv(index=False, float_format="%.6g", lineterminator="\n")
    write_text(path, text)

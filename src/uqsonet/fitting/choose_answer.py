"""What answers which number of sensors: held-out runs compare a model with plainer answers.

A model is never worse, as far as held-out runs can tell, than regression on the pairs with a kernel
(least squares and a Gaussian process on readings are its ends), than cokriging, or than the mean of
the runs (`uqsonet.operator.baselines`). The model comes first, the others by rising CRPS, and the
rule is that of `uqsonet.fitting.held_out`. What is taken over all numbers of sensors together
answers each of them, unless another is preferable there by two standard errors: few runs show less
of one number alone. Sensors of outputs are compared where the law of the input is Gaussian, or a
mixture of such laws; under another law an answer may take a minute. With a kernel it takes a
second, so fewer runs are answered, by fewer samples.

Outputs that are no sums of modes, fronts for example, ring in linear modes, and what the operator
leaves over of all pairs is wrong wherever one stands. For them the operator's answer may only say
which held-out pairs are alike, and one of these, drawn at random, gives the output: samples of
fronts are fronts, and their spread is that of outputs whose answers are the same (a local
bootstrap), whatever its shape.
"""

from __future__ import annotations

import copy
import logging
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import ObservationError
from uqsonet.fitting.candidates import SCORED_RUNS, Candidate, EncodedRuns
from uqsonet.fitting.choose_law import held_pairs, law_scores
from uqsonet.fitting.held_out import LAYOUTS, HeldOut, SensorPlan, taken
from uqsonet.gauss.blocks import projected
from uqsonet.gauss.seeds import numpy_generator, torch_generator
from uqsonet.operator.baselines import SIDES, candidates, kept_pairs
from uqsonet.operator.closed_form import unexplained_root, widen_band
from uqsonet.operator.config import LOCAL
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.runs.functions import Functions

LOG = logging.getLogger("uqsonet")

DRAWS = 128  # functions behind the CRPS of one answer
ANSWER_POINTS = 200  # points behind it, at most
MORE_OF_OUTPUTS = 8  # sensors of outputs are compared at this multiple of the most sensors, too
MAX_OF_OUTPUTS = 256  # the largest number that this multiple may reach
SAMPLED_RUNS = 15  # held-out runs whose sensors of outputs are answered by samples
COMPARED_SAMPLES = 256  # samples behind such an answer
MIN_SCORED = 8  # held-out runs that are scored whatever their size
MAX_HELD_VALUES = 1 << 24  # values of all held-out runs together, at most, if there are more
NO_ANSWER = 10.0  # CRPS of a model without an answer, relative to that of the mean of the runs

MIN_ERRORS, MIN_GAIN = 1.0, 0.02
"""Standard errors, and share, by which a CRPS must be lower to count: what closed forms of the
model gain at other noise and other numbers of sensors is not scored."""

OWN_ERRORS = 2.0  # standard errors by which a number of sensors has an answer of its own
CRPS_ROUNDING = 1e-4  # CRPS, relative to that of the mean of the runs, that is rounding alone
TRIED = (4, 8, 16)  # numbers of nearest pairs to try
MIN_LEFT_OVER = 0.05  # near pairs are tried if an operator leaves this share of the outputs' std
MIN_UNSCORED = 200  # and there are so many held-out pairs besides those that are scored
NEAREST_ERRORS = 2.0  # standard errors by which their CRPS has to be lower

Parts = list[tuple[EncodedRuns, KarhunenLoeveModel]]
"""Splits of the runs, and the model that was fitted to the training runs of each."""

Scores = dict[tuple[str, int], dict[str, Tensor]]
"""For a side and a number of sensors the scores (3, S) of each candidate, as `taken` reads them,
relative to the CRPS of the mean of the runs."""


def choose_answer(
    parts: Parts, may_choose: bool
) -> tuple[dict[str, dict[int, str]], list[dict[str, Any]]]:
    """Return what answers which number of sensors, and a row of the comparison for each.

    Where it may not choose, the model answers always, and rows say what would be better.
    """
    found: dict[tuple[str, int], dict[str, list[Tensor]]] = defaultdict(lambda: defaultdict(list))
    for number in range(len(parts)):
        for key, by_name in _scores(parts, number).items():
            for name, scores in by_name.items():
                found[key][name].append(scores)
    joined = {
        key: {name: torch.cat(many, 1) for name, many in by_name.items()}
        for key, by_name in found.items()
    }
    choice: dict[str, dict[int, str]] = {side: {} for side in SIDES}
    rows = []
    for side in SIDES:
        by_count = {count: scores for (one, count), scores in joined.items() if one == side}
        if not by_count:
            continue
        usual, _ = _best(_over_counts(list(by_count.values())), "uqsonet", MIN_ERRORS)
        for count, scores in by_count.items():
            best, why = _best(scores, usual, OWN_ERRORS)
            answers = best if may_choose else "uqsonet"
            choice[side][count] = answers
            row = {"read": side, "sensors": count, "taken": answers, "best": best, "why": why}
            rows.append(row | _gain(scores, best))
            shown = ", ".join(f"{name} {float(one[0].mean()):.4g}" for name, one in scores.items())
            LOG.info("%d sensors of %s, CRPS: %s; taken: %s", count, side, shown, answers)
    return choice, rows


def _best(scores: Mapping[str, Tensor], usual: str, errors: float) -> tuple[str, str]:
    """Return what should answer, and why: ``crps``, ``bands``, or ``usual``."""
    means = {name: float(one[0].mean()) for name, one in scores.items()}
    if means["uqsonet"] < CRPS_ROUNDING:
        return "uqsonet", "usual"
    order = sorted(means, key=lambda name: (name != usual, means[name]))
    number, why = taken([scores[name] for name in order], errors, MIN_GAIN)
    return order[number], why or "usual"


def _over_counts(scores: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of scores over numbers of sensors, CRPS relative to that of the mean."""
    whole: dict[str, Tensor] = {}
    for name in scores[0]:
        parts = [
            torch.cat([one[name][:1] / one["mean"][0].mean(), one[name][1:]]) for one in scores
        ]
        whole[name] = torch.stack(parts).mean(0)
    return whole


def _gain(scores: Mapping[str, Tensor], best: str) -> dict[str, Any]:
    """Return by how much the best is better than the model, and the scores of all candidates."""
    less = (scores["uqsonet"][0] - scores[best][0]) / scores["uqsonet"][0].mean()
    row: dict[str, Any] = {"less": float(less.mean())}
    row["standard_error"] = float(less.std()) / len(less) ** 0.5
    for name, one in scores.items():
        row[f"crps_{name}"] = float(f"{float(one[0].mean()):.4g}")
        shares = one[1:].mean(1).tolist()  # NaN where an answer has no width, which JSON lacks
        row[f"bands_{name}"] = [None if math.isnan(share) else round(share, 3) for share in shares]
    return row


def counts_of_outputs(counts: Sequence[int], points: int) -> tuple[int, ...]:
    """Return numbers of sensors of the output that are compared, of `points` points.

    Gauges that are read at many times are many sensors, so there are more of these than of the
    input's.
    """
    most = max(counts)
    more = max(most, min(MORE_OF_OUTPUTS * most, MAX_OF_OUTPUTS))
    return tuple(sorted({min(count, points) for count in (*counts, more)}))


@torch.no_grad()
def _scores(parts: Parts, number: int) -> Scores:
    """Return the scores of a model and of its candidates on the validation runs of one split."""
    data, model = parts[number]
    most = max(MIN_SCORED, MAX_HELD_VALUES // (data.kappa.shape[1] + data.u.shape[1]))
    held = data.split.validation[: min(SCORED_RUNS, most)]
    training = data.part("training")  # it keeps its coefficients, which both of these need
    root, pairs = unexplained_root(model.bases, training), kept_pairs(model.bases, training)
    named = candidates(model, root, pairs)
    scores = _of_side(data, "inputs", data.plan, held, named)
    if [one.name for one in data.inputs] == [one.name for one in data.outputs]:
        return scores
    if model.law.separate:
        LOG.info("sensors of outputs: not compared, the law %s is slow for them", model.law.name)
        return scores
    if model.network is not None:
        held = held[:SAMPLED_RUNS]
    plan = SensorPlan(counts_of_outputs(data.plan.counts, data.u.shape[1]))
    folds = []
    thirds = np.array_split(held, LAYOUTS) if len(parts) == 1 else [held]
    for third, rows in enumerate(thirds):
        layouts = slice(third, third + 1) if len(thirds) > 1 else slice(None)
        answers = partial(_without(parts, number, rows).condition_on, size=COMPARED_SAMPLES)
        own = named | {"uqsonet": SimpleNamespace(condition_on=answers)}
        folds.append(_of_side(data, "outputs", plan, rows, own, layouts))
    for key, by_name in folds[0].items():
        scores[key] = {name: torch.cat([one[key][name] for one in folds], 1) for name in by_name}
    return scores


def _without(parts: Parts, number: int, rows: np.ndarray) -> KarhunenLoeveModel:
    """Return the model with a law of what it leaves over that is of other pairs than these.

    Sensors of outputs are answered by that law, too, and it knows the pairs that it was made of.
    Bases are shared with the model.
    """
    data, model = parts[number]
    others = [(one.part("validation"), source) for one, source in parts if source is not model]
    if not others:
        others = [(data.functions(np.setdiff1d(data.split.validation, rows)), model)]
    shared = {id(one): one for one in model.bases.buffers() if one.ndim}
    twin = copy.deepcopy(model, shared)
    widen_band(twin, others)
    return twin


def _of_side(
    data: EncodedRuns, side: str, plan: SensorPlan, rows: np.ndarray, named: Mapping[str, Any],
    layouts: slice = slice(None),
) -> Scores:  # fmt: skip
    """Return the scores of what may answer sensors of one side, on some runs and layouts."""
    of_output, seed = side == "outputs", data.seed
    held, size = data.functions(rows), (data.u if of_output else data.kappa).shape[1]
    drawn = plan.layouts(LAYOUTS, size, seed, "fit", "answers", side)
    shared = {count: one[layouts] for count, one in drawn.items()}
    part = math.ceil(len(rows) / len(next(iter(shared.values()))))
    pairs = HeldOut.read(
        held, {m: one.repeat_interleave(part, 0) for m, one in shared.items()},
        0.0 if of_output else data.noise_levels(),
        lambda m: numpy_generator(seed, "fit", "answers", side, "noise", m),
        numpy_generator(seed, "fit", "answers", "points"), ANSWER_POINTS, part, of_output=of_output,
    )  # fmt: skip
    scores: Scores = {}
    for count in pairs.sensors:
        scores[side, count] = {}
        for name, one in named.items():
            draws = torch_generator(seed, "fit", "answers", "draws")
            try:
                found = pairs.sampled(one, count, DRAWS, draws)
                found[0] /= pairs.usual()[0]
            except (ObservationError, torch.linalg.LinAlgError):  # type: ignore[attr-defined]
                found = torch.tensor([[NO_ANSWER], [0], [0]]).double().repeat(1, held.size)
            scores[side, count][name] = found
    return scores


@torch.no_grad()
def choose_nearest(data: EncodedRuns, best: Candidate) -> dict[str, Any]:
    """Let a model with its law answer with outputs of near pairs, if these score better.

    Returned are `nearest` (0: its own answers), their CRPS in `own`, and others in `tried`; nothing
    where nothing was tried.
    """
    model, held, scored = best.model, data.part("validation"), data.scored().size
    if held.size - scored < MIN_UNSCORED or LOCAL * held.u_rows.shape[1] > MAX_HELD_VALUES:
        return {}
    size = float(model.bases.output_scale)
    left_over = float(model.residual_covariance.diagonal().sum()) * size**2
    if left_over < MIN_LEFT_OVER**2 * float(held.u.double().var(0).sum()):
        return {}
    pairs = held_pairs(data.scored(), data.noise_levels(), data.layouts(), data.seed)
    scores = {0: law_scores(model, model.law, pairs, data.seed).mean(1)}
    for nearest in TRIED:
        take_nearest(model, held, range(scored, held.size), nearest, model)
        scores[nearest] = law_scores(model, model.law, pairs, data.seed).mean(1)
    means = {nearest: float(one[0].mean()) for nearest, one in scores.items()}
    LOG.info("CRPS of outputs of so many near pairs (0: its own): %s", means)
    order = sorted(means, key=lambda nearest: (nearest > 0, means[nearest]))
    chosen = order[taken([scores[nearest] for nearest in order], NEAREST_ERRORS)[0]]
    take_nearest(model, held, range(held.size), chosen, model)
    tried = [{"nearest": nearest, "crps": means[nearest]} for nearest in TRIED]
    return {"nearest": chosen, "own": means[0], "tried": tried}


@torch.no_grad()
def take_nearest(
    model: KarhunenLoeveModel, held: Functions, rows: Sequence[int], nearest: int,
    source: KarhunenLoeveModel,
) -> None:  # fmt: skip
    """Give a model held-out pairs, and answers of an operator that has not seen them (`source`)."""
    bases, of = model.bases, source.bases
    a = projected(held.transformed_inputs(), of.input_mean, of.from_fields())
    known = of.output_modes.double() * of.output_scale.double()
    answers = of.output_mean + source.answers_to(held, a).double() @ known.T
    some = torch.tensor(rows[:LOCAL])
    model.use_nearest(bases.output_coefficients(answers[some]), held.u[some], nearest)

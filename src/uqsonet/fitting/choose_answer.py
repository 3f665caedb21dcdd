"""What answers sensors of each side: a model, or something plainer that is not worse.

Held-out runs compare a model with the outputs of near runs, with regression on the pairs, with
cokriging, and with the mean of the runs (`uqsonet.operator.baselines`), by the rule of
`uqsonet.fitting.comparison` over all numbers of sensors together. Sensors of outputs are compared
where the law of the input is Gaussian, or a mixture of such laws; under another law an answer may
take a minute. With a kernel it takes a second, so fewer runs are answered, by fewer samples.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from uqsonet.fitting.candidates import SCORED_RUNS, EncodedRuns
from uqsonet.fitting.choose_law import equip
from uqsonet.fitting.comparison import Comparison
from uqsonet.fitting.plan import Places, SensorPlan
from uqsonet.gauss.blocks import projected
from uqsonet.laws import NAMES, law_class
from uqsonet.operator.baselines import PLAIN, plain
from uqsonet.operator.closed_form import targets, widen_band, with_left_over
from uqsonet.operator.config import LOCAL
from uqsonet.operator.kernel_branch import best_linear
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.runs.functions import Functions

LOG = logging.getLogger("uqsonet")

MORE_OF_OUTPUTS = 8  # sensors of outputs are compared at this multiple of the most sensors, too
MAX_OF_OUTPUTS = 256  # the largest number that this multiple may reach
SAMPLED_RUNS = 15  # held-out runs whose sensors of outputs are answered by samples
COMPARED_SAMPLES = 256  # samples behind such an answer
THIRDS = 3  # parts of the validation runs, each answered with what the others leave over
MIN_SCORED = 8  # held-out runs that are scored whatever their size
MIN_OF_LAWS, MAX_ALL_SENSORS = 20, 8000  # and runs however many sensors; sensors of all together
MAX_HELD_VALUES = 1 << 24  # values of all held-out runs together, at most, if there are more
TRIED = (4, 8, 16)  # numbers of nearest pairs to try
MIN_LEFT_OVER = 0.05  # near pairs are tried if an operator leaves this share of the outputs' std
MIN_FOR_LAWS = 100  # of fewer runs laws are not told apart
ALIKE_ERRORS = 2.0  # standard errors within which a CRPS is not told apart from the lowest
MIN_UNSCORED = 200  # and there are so many held-out pairs besides those that are scored

Parts = list[tuple[EncodedRuns, KarhunenLoeveModel]]
"""Splits of the runs, and the model that was fitted to the training runs of each."""


def compared_runs(data: EncodedRuns) -> np.ndarray:
    """Return the numbers of the validation runs that laws and answers are compared on."""
    most = max(MIN_SCORED, MAX_HELD_VALUES // (data.kappa.shape[1] + data.u.shape[1]))
    fewer = max(MIN_OF_LAWS, MAX_ALL_SENSORS // max(data.plan.counts))
    return data.split.validation[: min(SCORED_RUNS, most, fewer)]


def choose(parts: Parts, law: str) -> Choice:
    """Put a law of the input into the model of each split, and choose what answers.

    A law that is named answers; rows say what would be better.
    """
    (data, model), plainer = parts[0], plain_answers(parts)
    models, training = [one for _, one in parts], [one.part("training") for one, _ in parts]
    held = [
        one.as_read("inputs", compared_runs(one), one.plan_of_inputs(), k, len(parts))
        for k, (one, _) in enumerate(parts)
    ]
    inputs = Comparison(held, data.seed)
    names = list(NAMES) if law == "auto" else [law]
    if law == "auto" and len(data.kappa) < MIN_FOR_LAWS:
        names = ["gaussian"]
        LOG.info("the law is gaussian: too few runs to compare laws on")
    elif law == "auto" and data.of_outputs:
        # Laws that move samples take minutes for an answer to sensors of outputs.
        names = ["gaussian", *(name for name in NAMES[1:] if not law_class(name).separate)]
    laws = equip(models, names, training, inputs, noise_std=data.noise_of_inputs(), seed=data.seed)
    own, near = model.config.law, near_answers(data, model)
    for name, every in {**{n: [one] for n, one in near.items()}, **plainer}.items():
        inputs.add(name, every)
    own, _ = inputs.taken([own, *near])
    rows = [row_of(inputs, "inputs", own, law == "auto")]
    if (outputs := compare_outputs(parts, plainer)) is not None:
        rows.append(row_of(outputs, "outputs", "uqsonet", law == "auto"))
    nearest = near[own].config.nearest if own in near else 0
    return Choice(laws, rows, nearest, {row["read"]: row["taken"] for row in rows})


@dataclass(frozen=True)
class Choice:
    """What was chosen, and rows for the card.

    `laws` has a row for each law, `rows` one for each side that sensors may read, and `taken` what
    answers these: ``uqsonet``, or one of `uqsonet.operator.baselines.PLAIN`. `nearest` is the
    number of near runs whose outputs the model answers with.
    """

    laws: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    nearest: int
    taken: dict[str, str]


def row_of(compared: Comparison, side: str, own: str, may_choose: bool) -> dict[str, Any]:
    """Return what was tried, what is taken, how sure that is, and what is not told apart from it.

    The model is the candidate `own`; where others may not be chosen, `best` would be better.
    """
    order = {name: name for name in (own, *PLAIN) if name in compared.scores}
    order[own] = "uqsonet"
    best, why = compared.taken(list(order))
    above = {name: compared.above(name, best) for name in order}
    less, error = compared.above(best, own)
    row: dict[str, Any] = {
        "read": side,
        "sensors": list(compared.parts[0].sensors),
        "taken": order[best] if may_choose else "uqsonet",
        "best": order[best],
        "why": why,
        "less": -less,
        "standard_error": error,
        "runs": len(compared.groups),
        "layouts": int(compared.groups.max()) + 1,
        "alike": [
            shown
            for name, shown in order.items()
            if name != best and above[name][0] < ALIKE_ERRORS * above[name][1]
        ],
    }
    for name, shown in order.items():
        row[f"above_{shown}"] = float(f"{above[name][0]:.4g}")
        shares = compared.relative()[name][1:].mean(1).tolist()
        # NaN where an answer has no width, which JSON lacks.
        row[f"bands_{shown}"] = [None if math.isnan(one) else round(one, 3) for one in shares]
    return row


@torch.no_grad()
def plain_answers(parts: Parts) -> dict[str, list[Any]]:
    """Return what may answer in place of a model, for each split, by name."""
    found: dict[str, list[Any]] = {name: [] for name in PLAIN}
    for data, model in parts:
        training = data.part("training")
        pairs = targets(model.bases, training)
        linear = with_left_over(best_linear(model.bases, training), pairs)
        for name, every in found.items():
            every.append(plain(name, model, linear, pairs))
    return found


def compare_outputs(parts: Parts, plainer: Mapping[str, list[Any]]) -> Comparison | None:
    """Return the comparison for sensors of outputs; None where there is none.

    What the operator leaves over is a part of these answers, and it is known of validation runs:
    so each is answered with what others leave over.
    """
    data, model = parts[0]
    if [one.name for one in data.inputs] == [one.name for one in data.outputs]:
        return None
    if model.law.separate:
        LOG.info("sensors of outputs: not compared, the law %s is slow for them", model.law.name)
        return None
    plan, (first, size) = data.plan, (data.kappa.shape[1], data.u.shape[1])
    if not data.of_outputs:
        counts = counts_of_outputs(data.plan.counts, size)
        plan = SensorPlan((Places(first, size, counts),))
    left_out = list(_left_out(parts))
    held = [
        parts[k][0].as_read("outputs", rows, plan, place, len(left_out))
        for place, (k, rows, _) in enumerate(left_out)
    ]
    compared = Comparison(held, data.seed)
    own = [partial(twin.condition_on, size=COMPARED_SAMPLES) for _, _, twin in left_out]
    if not compared.add("uqsonet", [SimpleNamespace(condition_on=one) for one in own]):
        compared.no_answer("uqsonet")
    for name, every in plainer.items():
        compared.add(name, [every[k] for k, _, _ in left_out])
    return compared


def _left_out(parts: Parts) -> Iterator[tuple[int, np.ndarray, KarhunenLoeveModel]]:
    """Yield the number of a split, some of its validation runs, and a model for these.

    The law of what it leaves over is of other runs. Bases are shared with the model of the split.
    """
    for k, (data, model) in enumerate(parts):
        most = SCORED_RUNS if model.network is None else SAMPLED_RUNS
        rows = compared_runs(data)[: math.ceil(most / len(parts))]
        for some in [rows] if len(parts) > 1 else np.array_split(rows, THIRDS):
            others = [(one.part("validation"), of) for one, of in parts[:k] + parts[k + 1 :]]
            rest = np.setdiff1d(data.split.validation, some)
            shared = {id(one): one for one in model.bases.buffers() if one.ndim}
            twin = copy.deepcopy(model, shared)
            widen_band(twin, others or [(data.functions(rest), model)])
            yield k, some, twin


def counts_of_outputs(counts: Sequence[int], points: int) -> tuple[int, ...]:
    """Return numbers of sensors of the output that are compared, of `points` points.

    Gauges that are read at many times are many sensors, so there are more of these than of the
    input's.
    """
    most = max(counts)
    more = max(most, min(MORE_OF_OUTPUTS * most, MAX_OF_OUTPUTS))
    return tuple(sorted({min(count, points) for count in (*counts, more)}))


def near_answers(data: EncodedRuns, model: KarhunenLoeveModel) -> dict[str, KarhunenLoeveModel]:
    """Return models that answer with outputs of near held-out pairs, where that may be better."""
    held, scored = data.part("validation"), data.scored().size
    if held.size - scored < MIN_UNSCORED or LOCAL * held.u_rows.shape[1] > MAX_HELD_VALUES:
        return {}
    size = float(model.bases.output_scale)
    left_over = float(model.residual_covariance.diagonal().sum()) * size**2
    if left_over < MIN_LEFT_OVER**2 * float(held.u.double().var(0).sum()):
        return {}
    found = {}
    for nearest in TRIED:
        one = found[f"{nearest} nearest"] = copy.copy(model)
        one._buffers = dict(model._buffers)  # all others are shared
        take_nearest(one, held, range(scored, held.size), nearest, model)
    return found


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

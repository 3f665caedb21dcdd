"""Outputs that are no sums of modes, fronts for example: those of held-out pairs with near answers.

A front in linear modes rings, and what the operator leaves over of all pairs is wrong wherever one
stands. Here the operator's answer only says which held-out pairs are alike, and one of these, drawn
at random, gives the output: samples of fronts are fronts, and their spread is that of outputs whose
answers are the same (a local bootstrap), whatever its shape.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from uqsonet.fitting.choose_law import held_pairs, law_scores
from uqsonet.gauss.blocks import projected
from uqsonet.operator.config import LOCAL
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.runs.functions import Functions

if TYPE_CHECKING:
    from uqsonet.fitting.candidates import Candidate, EncodedRuns

LOG = logging.getLogger("uqsonet")

TRIED = (4, 8, 16)
"""Numbers of nearest pairs to try."""

MIN_LEFT_OVER = 0.05
"""Minimum share of the outputs' standard deviation that an operator leaves over for a trial."""

MIN_PAIRS = 200
"""Minimum number of held-out pairs besides those that are scored."""

MAX_VALUES = 1 << 24
"""Maximum number of values of the outputs that a model keeps."""

GAIN = 2.0
"""Standard errors by which the CRPS has to be lower."""


@torch.no_grad()
def choose_nearest(data: EncodedRuns, best: Candidate) -> dict[str, Any]:
    """Let a model with its law answer with outputs of near pairs, if these score better.

    Returns
    -------
    dict
        `nearest` (0: its own answers), their CRPS in `own`, others in `tried`; empty where nothing
        was tried.
    """
    model, held, scored = best.model, data.part("validation"), data.scored().size
    if held.size - scored < MIN_PAIRS or LOCAL * held.u_rows.shape[1] > MAX_VALUES:
        return {}
    size = float(model.bases.output_scale)
    left_over = float(model.residual_covariance.diagonal().sum()) * size**2
    if left_over < MIN_LEFT_OVER**2 * float(held.u.double().var(0).sum()):
        return {}
    sets = held_pairs(data.scored(), data.noise_levels(), data.layouts(), data.seed)
    base = law_scores(model, model.law, sets, data.seed)[0].mean(0)
    rows, chosen, most = [], 0, 0.0
    for nearest in TRIED:
        take_nearest(model, held, range(scored, held.size), nearest, model)
        gain = base - law_scores(model, model.law, sets, data.seed)[0].mean(0)
        rows.append({"nearest": nearest, "crps": float((base - gain).mean())})
        LOG.info("outputs of the nearest %d: CRPS %.4g", nearest, rows[-1]["crps"])
        if float(gain.mean()) > max(most, GAIN * float(gain.std()) / math.sqrt(len(gain))):
            chosen, most = nearest, float(gain.mean())
    take_nearest(model, held, range(held.size), chosen, model)
    return {"nearest": chosen, "own": float(base.mean()), "tried": rows}


@torch.no_grad()
def take_nearest(
    model: KarhunenLoeveModel, held: Functions, rows: Sequence[int], nearest: int,
    source: KarhunenLoeveModel,
) -> None:  # fmt: skip
    """Give a model held-out pairs, and answers of an operator that has not seen them (`source`)."""
    bases, of = model.bases, source.bases
    a = projected(held.transformed_inputs(), of.input_mean, of.to_coefficients)
    known = of.output_modes.double() * of.output_scale.double()
    answers = of.output_mean + source.answers_to(held, a).double() @ known.T - bases.output_mean
    answers = answers @ bases.output_modes.double() / bases.output_scale.double()
    some = torch.tensor(rows[:LOCAL])
    model.use_nearest(answers[some], held.u[some], nearest)

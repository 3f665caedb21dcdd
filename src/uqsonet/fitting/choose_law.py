"""Which law an input has: each is fitted, and scored on pairs that nothing was fitted to.

`auto` keeps the Gaussian law where the coefficients of the training inputs are no farther from
Gaussian than chance allows, inputs take more than a few values, and its fields stay within their
range. Elsewhere it takes the simplest law that is not rejected: its CRPS on the held-out pairs,
relative to the Gaussian law's at each number of sensors, is not higher than the best one's by more
than two standard errors of the paired difference. A Gaussian law, a mixture or a family is rejected
as well if its fields leave the range of the training inputs far more often than new inputs would:
they are not fields of this kind, even where the CRPS hardly differs. A mixture with scales is then
fitted without them.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from uqsonet.errors import ConfigError, ObservationError
from uqsonet.fitting.held_out import LEVELS, HeldOut, scores_of_samples
from uqsonet.gauss.blocks import projected
from uqsonet.gauss.seeds import numpy_generator, torch_generator
from uqsonet.laws import NAMES
from uqsonet.laws.base import InputLaw
from uqsonet.laws.bases import POINTS
from uqsonet.laws.common import InputSample, classes_of
from uqsonet.runs.runs import distance_from_gaussian

if TYPE_CHECKING:
    from uqsonet.operator.model import KarhunenLoeveModel
    from uqsonet.runs.functions import Functions

LOG = logging.getLogger("uqsonet")

SCORE_DRAWS = 256
"""Number of draws behind the CRPS of one answer."""

LAW_POINTS = 200
"""Maximum number of output points that a score is averaged over."""

MAX_PAIRS = 200
"""Maximum number of held-out pairs."""

MIN_PAIRS = 20
"""Number of held-out pairs that are used whatever their sensors."""

MAX_ALL_SENSORS = 8000
"""Maximum number of sensors of all held-out pairs together, if there are more than `MIN_PAIRS`."""

RANGE_DRAWS = 1000
"""Number of a law's fields whose range is compared with that of the training inputs."""

CHANCE = 1.73
"""Kolmogorov distance from Gaussian, times the root of the number of inputs, that 19 of 20 samples
of Gaussian inputs stay below."""

MAX_OUTSIDE = 0.05
"""Accepted share of a law's fields that leave the range of the training inputs."""

MAX_EXCESS = 2.0
"""Accepted excess of a law's score over the best one's, in standard errors."""

EQUAL_WITHIN = 0.01
"""Laws are equal whose CRPS differ by no more than this share. The CRPS hardly tells how wide an
answer is, so the bands of one may hold no more or less of the output than those of an equal one, by
this share, either."""


def require_law(law: str) -> None:
    """Refuse a name that no law has.

    Raises
    ------
    ConfigError
        If there is no such law.
    """
    if law not in ("auto", *NAMES):
        raise ConfigError(f"law {law!r} is unknown; there are auto, {', '.join(NAMES)}")


def equip(
    model: KarhunenLoeveModel,
    law: str,
    training: Functions,
    held: Functions,
    *,
    noise_std: float | Tensor = 0.0,
    layouts: Mapping[int, Tensor],
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Fit a law of the input and put it into a model whose operator is trained.

    Parameters
    ----------
    model : KarhunenLoeveModel
    law : str
        ``auto``, or one of `uqsonet.laws.NAMES`.
    training : Functions
        The pairs that the model was trained on.
    held : Functions
        Pairs that nothing was fitted to; outputs on the training grid or on the full one.
    noise_std : float or Tensor, shape (n,)
        Of the observations, or of those at each grid point of the input.
    layouts : mapping of int to Tensor (S, m)
        Grid points of the input where the sensors of each held-out pair stand, by their number.
    seed : int

    Returns
    -------
    list of dict
        For each law that was fitted: `law`, `seconds` (to fit), `crps_<m>`, `held_50` and `held_90`
        (shares of the output inside bands), `above_best` and `standard_error` (relative), `outside`
        (share of its fields that leave the range of the training inputs), `distance` of the
        coefficients from Gaussian and that which chance allows, `chosen`.

    Raises
    ------
    ConfigError
        If there is no such law, or it does not fit these inputs.
    """
    require_law(law)
    held_out = held_pairs(held, noise_std, layouts, seed)
    sample = input_sample(model, training)
    distance = distance_from_gaussian(sample.coefficients)
    chance, limit = CHANCE / math.sqrt(training.size), _max_outside(training.size)
    names = NAMES if law == "auto" else (law,)
    if (
        law == "auto"
        and distance <= chance
        and classes_of(sample.fields) is None
        and _outside(model, None, sample, seed) <= limit
    ):
        names = ("gaussian",)
    rows: list[dict[str, Any]] = []
    laws: list[InputLaw | None] = []
    scores: list[Tensor] = []
    for name in names:
        start = time.monotonic()
        variants = _fitted(name, sample, seed)
        scaled = name == "mixture" and len(variants[0].clusters.scales) > 1
        if scaled and _outside(model, variants[0], sample, seed) > limit:
            variants = _fitted(name, sample, seed, scales=False)
        seconds = round(time.monotonic() - start, 1)
        try:
            if len(variants) > 1:
                few = [law_scores(model, v, held_out, seed, len(held_out) // 4) for v in variants]
                variants = [variants[int(torch.stack(few)[:, 0].mean((1, 2)).argmin())]]
            scores += [law_scores(model, v, held_out, seed) for v in variants]
        except ObservationError as error:
            LOG.info("law %s: no answer to a held-out pair (%s)", name, error)
            continue
        for best in variants:
            laws.append(best)
            by_count = {
                f"crps_{m}": float(s.mean()) for m, s in zip(layouts, scores[-1][0], strict=True)
            }
            shares = scores[-1][1:].mean((1, 2)).tolist()
            by_count |= {f"held_{100 * q:.0f}": h for q, h in zip(LEVELS, shares, strict=True)}
            tests = {"outside": _outside(model, best, sample, seed), "distance": distance}
            rows.append({"law": name, "seconds": seconds, **by_count, **tests, "chance": chance})
            LOG.info("law %s: %s", name, ", ".join(f"{k} {v:.4g}" for k, v in by_count.items()))
    if not rows:
        raise ConfigError(f"law {law!r} does not fit these inputs: {_WHY.get(law, _NO_ANSWER)}")
    model.use_law(laws[_simplest(scores, rows, training.size)])
    return rows


def held_pairs(
    held: Functions, noise_std: float | Tensor, layouts: Mapping[int, Tensor], seed: int
) -> HeldOut:
    """Return held-out pairs as sensors read them; fewer of them where there are many sensors."""
    most = min(MAX_PAIRS, max(MIN_PAIRS, MAX_ALL_SENSORS // max(layouts)))
    some = {count: places[:most] for count, places in layouts.items()}
    points = numpy_generator(seed, "law", "points")
    return HeldOut.read(
        held, some, noise_std, lambda count: numpy_generator(seed, "law", "noise", count), points,
        LAW_POINTS, part=1,
    )  # fmt: skip


@torch.no_grad()
def law_scores(
    model: KarhunenLoeveModel, law: InputLaw | None, held_out: HeldOut, seed: int,
    size: int | None = None,
) -> Tensor:  # fmt: skip
    """Return CRPS and shares inside bands of `LEVELS`, (3, counts, N), of answers with a law.

    They are of the first `size` held-out pairs, or of all.
    """
    before, model.law = model.law, law
    try:
        rows = []
        for count in held_out.sensors:
            generator = torch_generator(seed, "law", "draws")
            scores = [
                scores_of_samples(answer, basis, truth, SCORE_DRAWS, generator, LEVELS)
                for truth, answer, basis in held_out.answers(model, count, size)
            ]
            rows.append(torch.cat(scores, 1))
        return torch.stack(rows, 1)
    finally:
        model.law = before


_NO_ANSWER = "it has no answer to a held-out pair"
_WHY = {
    "thresholded": "they take more than a few values, or only one at some point, or have classes "
    "that no cut Gaussian field has",
    "facies": "they do not jump between classes on a grid, or take only a few values",
    "copula": "they are too few, or take only a few values",
    "family": "they take only a few values, or are several fields",
    "bounded": "a Gaussian law of theirs leaves their range hardly ever, or almost always",
}


def _fitted(name: str, sample: InputSample, seed: int, scales: bool = True) -> list[Any]:
    """Return the law of that name in each variant; nothing where it does not fit the inputs.

    A mixture has no scales unless they are allowed.
    """
    if name == "gaussian":
        return [None]
    # Deferred: only laws that are tried are loaded.
    laws = import_module(f"uqsonet.laws.{name}")
    if name == "mixture":
        return [laws.MixtureLaw.fit(sample, numpy_generator(seed, "law", name), scales)]
    if name == "analogue":
        return [laws.AnalogueLaw.fit(sample, share) for share in laws.NEAR_SHARES]
    if name == "facies":
        fitted = [laws.FaciesLaw.fit(sample, count) for count in laws.COUNTS]
        return [law for law in fitted if law is not None]
    if name in ("thresholded", "copula"):
        law = (laws.ThresholdedLaw if name == "thresholded" else laws.CopulaLaw).fit(sample)
    elif name == "family":
        law = laws.fit_family(sample, numpy_generator(seed, "law", name))
    else:
        law = laws.BoundedLaw.fit(sample, torch_generator(seed, "law", name))
    return [] if law is None else [law]


def refit(
    model: KarhunenLoeveModel, law: InputLaw | None, training: Functions, seed: int = 0
) -> None:
    """Put a law of the same kind, fitted to other pairs, into a model.

    Where these inputs do not allow it any more, the model keeps the Gaussian law.
    """
    if law is None:
        return
    share = getattr(law, "share", None)  # of the analogue law, whose variants differ in it
    varied = law.rest is not None or len(law.tensors().get("scales", ())) > 1
    scales = law.name != "mixture" or varied
    variants = _fitted(law.name, input_sample(model, training), seed, scales)
    alike = [one for one in variants if getattr(one, "share", None) == share]
    model.use_law(alike[0] if alike else None)


def input_sample(model: KarhunenLoeveModel, training: Functions) -> InputSample:
    """Return training inputs as laws are fitted to them."""
    bases, inputs = model.bases, training.transformed_inputs()
    a = projected(inputs, bases.input_mean, bases.from_fields())
    fields = torch.empty(inputs.shape, dtype=torch.float32)
    left = torch.zeros(len(a), dtype=torch.float64)
    for part, values in inputs.column_blocks():
        fields[:, part] = values
        seen = bases.input_mean[part] + a @ bases.input_factor[part].double().T
        left += (values - seen).square().sum(1)
    return InputSample(bases, fields, a, (left / inputs.shape[1]).sqrt())


@torch.no_grad()
def _outside(
    model: KarhunenLoeveModel, law: InputLaw | None, sample: InputSample, seed: int
) -> float:
    """Return the share of a law's fields that leave the range of the training inputs.

    Zero for laws whose fields are training inputs, or take their values.
    """
    if law is not None and law.name not in ("mixture", "family", "bounded"):
        return 0.0
    before, model.law = model.law, law
    no_sensors = torch.zeros(1, 0, model.fields.input.grid.dim), torch.zeros(1, 0)
    prior = model.input_posterior(*no_sensors)
    model.law = before
    a = prior.sample(RANGE_DRAWS, torch_generator(seed, "law", "outside"))[0]
    low, high = float(sample.fields.amin()), float(sample.fields.amax())
    slack, inside = 1e-3 * (high - low), torch.ones(len(a), dtype=torch.bool)
    mean, factor = model.bases.input_mean.float(), model.bases.input_factor
    for some, modes in zip(mean.split(POINTS), factor.split(POINTS), strict=True):
        field = some + a @ modes.T
        inside &= (field.amin(1) >= low - slack) & (field.amax(1) <= high + slack)
    return 1 - float(inside.float().mean())


def _max_outside(size: int) -> float:
    """Return the share of a law's fields beyond the range of N inputs that is allowed."""
    # A new input beats the lowest or the highest of N with probability 2 / (N + 1).
    return MAX_OUTSIDE + 4 / size


def _simplest(scores: list[Tensor], rows: list[dict[str, Any]], size: int) -> int:
    """Return which law is taken, and note in the rows why."""
    base = scores[0][0].mean(1, keepdim=True)
    relative = [(one[0] / base).mean(0) for one in scores]
    best = min(relative, key=lambda one: float(one.mean()))
    limit = _max_outside(size)
    fair = any(row["outside"] <= limit for row in rows)
    good = []
    for number, (one, row) in enumerate(zip(relative, rows, strict=True)):
        worse = one - best
        error = float(worse.std()) / math.sqrt(len(worse))
        row |= {"above_best": float(worse.mean()), "standard_error": error}
        possible = row["outside"] <= limit or not fair
        if possible and float(worse.mean()) <= MAX_EXCESS * error:
            good.append(number)
    if not good:  # whatever stays within the range scores worse
        good = [next(k for k, row in enumerate(rows) if row["above_best"] == 0)]
    held = {number: scores[number][1:].mean(1) for number in good}
    chosen = next(
        (one for one in good
         if not any(_is_better(relative, held, other, one) for other in good)), good[0]
    )  # fmt: skip
    for number, row in enumerate(rows):
        row["chosen"] = number == chosen
    return chosen


def _is_better(relative: list[Tensor], held: Mapping[int, Tensor], other: int, one: int) -> bool:
    """Return whether another law's CRPS is as good, and one's bands miss by more than chance."""
    worse = relative[other] - relative[one]
    if float(worse.mean()) > min(float(worse.std()) / math.sqrt(len(worse)), EQUAL_WITHIN):
        return False
    for mine, its, level in zip(held[one], held[other], LEVELS, strict=True):
        error = float((mine - its).std()) / math.sqrt(len(mine))
        excess = abs(float(mine.mean()) - level) - abs(float(its.mean()) - level)
        if excess > max(MAX_EXCESS * error, EQUAL_WITHIN):
            return True
    return False

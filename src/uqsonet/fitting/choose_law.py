"""Which law an input has: each is fitted, and scored on pairs that nothing was fitted to.

`auto` keeps the Gaussian law where coefficients and single values of the training inputs are no
farther from Gaussian than chance allows, inputs take more than a few values, and its fields stay
within their range. Elsewhere laws are compared from the simplest on by the rule of
`uqsonet.fitting.held_out`, their CRPS relative to the Gaussian law's at each number of sensors.
Laws whose fields leave the range of the training inputs far more often than new inputs would take
no part, unless all others score worse: inputs are not of this kind, even where the CRPS hardly
differs. For the same reason a law whose single values have the inputs' distribution is taken where
normal ones do not have it, unless its CRPS is higher by more than chance.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from uqsonet.errors import ConfigError, ObservationError
from uqsonet.fitting.held_out import LEVELS, HeldOut, preferable, taken
from uqsonet.gauss.blocks import projected
from uqsonet.gauss.seeds import numpy_generator, torch_generator
from uqsonet.laws import GONE, NAMES, law_class
from uqsonet.laws.base import InputLaw, NormalLaw, classes_of
from uqsonet.laws.bases import BASIS_POINTS, InputSample
from uqsonet.runs.runs import distance_from_gaussian
from uqsonet.sensors.sensors import no_sensors

if TYPE_CHECKING:
    from uqsonet.operator.model import KarhunenLoeveModel
    from uqsonet.runs.functions import Functions

LOG = logging.getLogger("uqsonet")

SCORE_DRAWS = 256  # draws behind the CRPS of one answer
LAW_POINTS = 200  # output points behind it, at most
MAX_HELD = 200  # held-out pairs, at most
MIN_HELD = 20  # held-out pairs that are used whatever their sensors
MAX_ALL_SENSORS = 8000  # sensors of all pairs together, at most, if there are more pairs
RANGE_DRAWS = 1000  # fields of a law whose range is compared with that of training inputs

CHANCE_DISTANCE = 1.73
"""Kolmogorov distance from Gaussian, times the root of the number of inputs, that 19 of 20 samples
of Gaussian inputs stay below."""

CHANCE_VALUES = 0.9
"""The same of values at a point whose mean and variance are estimated (Lilliefors 1967, J. Am.
Stat. Assoc. 62, 399)."""

TESTED_POINTS = 200  # points whose values are compared with normal ones, at most
MAX_OUTSIDE = 0.05  # accepted share of a law's fields that leave the range of the training inputs
EXACT_CRPS = 0.02  # CRPS, relative to that without sensors, of answers that are as good as exact
MAX_EXCESS = 2.0  # accepted excess of a law's CRPS over another one's, in standard errors


def require_law(law: str) -> None:
    """Refuse (`ConfigError`) a name that no law has."""
    if isinstance(law, str) and law in GONE:
        raise ConfigError(f"law {law!r} is gone: {GONE[law]}")
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
        coefficients from Gaussian and that which chance allows, `values` (the same distance of
        values at single points), `chosen`.

    Raises
    ------
    ConfigError
        If there is no such law, or it does not fit these inputs.
    """
    require_law(law)
    held_out = held_pairs(held, noise_std, layouts, seed)
    sample = input_sample(model, training, noise_std)
    distance = distance_from_gaussian(sample.coefficients)
    chance = CHANCE_DISTANCE / math.sqrt(training.size)
    apart = distance_of_values(sample.fields)
    normal = apart <= CHANCE_VALUES / math.sqrt(training.size)
    # A new input beats the lowest or the highest of N with probability 2 / (N + 1).
    limit = MAX_OUTSIDE + 4 / training.size
    names = NAMES if law == "auto" else (law,)
    if law == "auto" and distance <= chance and normal:
        if classes_of(sample.fields) is None and _outside(model, None, sample, seed) <= limit:
            names = ("gaussian",)
    rows: list[dict[str, Any]] = []
    laws: list[InputLaw | None] = []
    scores: list[Tensor] = []
    for name in names:
        start = time.monotonic()
        one = None if name == "gaussian" else law_class(name).fit(sample, seed)
        if one is None and name != "gaussian":
            continue
        seconds = round(time.monotonic() - start, 1)
        try:
            scores.append(law_scores(model, one, held_out, seed))
        except ObservationError as error:
            LOG.info("law %s: no answer to a held-out pair (%s)", name, error)
            continue
        laws.append(one)
        means = scores[-1].mean(2)
        row = {f"crps_{m}": float(mean) for m, mean in zip(layouts, means[0], strict=True)}
        for level, shares in zip(LEVELS, means[1:], strict=True):
            row[f"held_{100 * level:.0f}"] = float(shares.mean())
        LOG.info("law %s: %s", name, ", ".join(f"{k} {v:.4g}" for k, v in row.items()))
        row |= {"outside": _outside(model, one, sample, seed), "distance": distance}
        rows.append({"law": name, "seconds": seconds, **row, "chance": chance, "values": apart})
    if not rows:
        why = (InputLaw if law == "gaussian" else law_class(law)).misfit
        raise ConfigError(f"law {law!r} does not fit these inputs: {why}")
    suited = [not normal and one is not None and one.whole for one in laws]
    model.use_law(laws[_simplest(scores, rows, limit, suited, held_out.usual()[0])])
    return rows


def distance_of_values(fields: Tensor) -> float:
    """Return how far values of fields (N, n) at single points are from normal.

    The Kolmogorov distance between values less their mean, over their standard deviation, and
    standard normals, averaged over points.
    """
    size, n = fields.shape
    values = fields[:, torch.linspace(0, n - 1, min(n, TESTED_POINTS)).long()].double()
    spread = values.std(0)
    free = spread > 1e-9 * values.abs().amax()
    if not bool(free.any()):
        return 0.0
    z = ((values - values.mean(0)) / spread)[:, free].sort(0).values
    share, steps = torch.special.ndtr(z), torch.arange(size + 1, dtype=z.dtype)[:, None] / size
    return float(torch.maximum(steps[1:] - share, share - steps[:-1]).amax(0).mean())


def held_pairs(
    held: Functions, noise_std: float | Tensor, layouts: Mapping[int, Tensor], seed: int
) -> HeldOut:
    """Return held-out pairs as sensors read them; fewer of them where there are many sensors."""
    most = min(MAX_HELD, max(MIN_HELD, MAX_ALL_SENSORS // max(layouts)))
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
    before, model.law = model.law, law or NormalLaw()
    try:
        rows = []
        for count in held_out.sensors:
            draws = torch_generator(seed, "law", "draws")
            rows.append(held_out.sampled(model, count, SCORE_DRAWS, draws, size))
        return torch.stack(rows, 1)
    finally:
        model.law = before


def refit(
    model: KarhunenLoeveModel, law: InputLaw | None, training: Functions, seed: int = 0,
    noise_std: float | Tensor = 0.0,
) -> None:  # fmt: skip
    """Put a law of the same kind, fitted to other pairs, into a model.

    Where these inputs do not allow it any more, the model keeps the Gaussian law.
    """
    if law is not None:
        model.use_law(law.fit(input_sample(model, training, noise_std), seed))


def input_sample(
    model: KarhunenLoeveModel, training: Functions, noise_std: float | Tensor = 0.0
) -> InputSample:
    """Return training inputs as laws are fitted to them, for readings with this noise."""
    bases, inputs = model.bases, training.transformed_inputs()
    a = projected(inputs, bases.input_mean, bases.from_fields())
    fields = torch.empty(inputs.shape, dtype=torch.float32)
    left = torch.zeros(len(a), dtype=torch.float64)
    for part, values in inputs.column_blocks():
        fields[:, part] = values
        seen = bases.input_mean[part] + a @ bases.input_factor[part].double().T
        left += (values - seen).square().sum(1)
    return InputSample(bases, fields, a, (left / inputs.shape[1]).sqrt(), noise_std)


@torch.no_grad()
def _outside(
    model: KarhunenLoeveModel, law: InputLaw | None, sample: InputSample, seed: int
) -> float:
    """Return the share of a law's fields that leave the range of the training inputs.

    Zero for laws whose samples are whole fields: these take values of the inputs.
    """
    if law is not None and law.whole:
        return 0.0
    prior = (law or NormalLaw()).condition(model.bases, no_sensors([model.fields.input]))
    assert prior is not None
    a = prior.sample(RANGE_DRAWS, torch_generator(seed, "law", "outside"))[0]
    low, high = float(sample.fields.amin()), float(sample.fields.amax())
    slack, inside = 1e-3 * (high - low), torch.ones(len(a), dtype=torch.bool)
    mean, factor = model.bases.input_mean.float(), model.bases.input_factor
    for some, modes in zip(mean.split(BASIS_POINTS), factor.split(BASIS_POINTS), strict=True):
        field = some + a @ modes.T
        inside &= (field.amin(1) >= low - slack) & (field.amax(1) <= high + slack)
    return 1 - float(inside.float().mean())


def _simplest(
    scores: list[Tensor], rows: list[dict[str, Any]], limit: float, suited: Sequence[bool],
    usual: float,
) -> int:  # fmt: skip
    """Return which law is taken, and note in the rows why.

    `limit` is how much of a law's fields may leave the range of the inputs, `suited` says whether
    single values have the inputs' distribution under a law alone, and `usual` is the CRPS without
    sensors.
    """
    base = scores[0][0].mean(1, keepdim=True) + EXACT_CRPS * usual
    every = [torch.cat([one[:1] / base, one[1:]]).mean(1) for one in scores]
    best = min(every, key=lambda one: float(one[0].mean()))
    for one, row in zip(every, rows, strict=True):
        worse = one[0] - best[0]
        error = float(worse.std()) / math.sqrt(len(worse))
        row |= {"above_best": float(worse.mean()), "standard_error": error}
    possible = [k for k, row in enumerate(rows) if row["outside"] <= limit]
    within = bool(possible)
    possible = possible or list(range(len(rows)))
    number, _ = taken([every[k] for k in possible], MAX_EXCESS)
    chosen = possible[number]
    if within and preferable(best, every[chosen], MAX_EXCESS) == "crps":
        chosen = next(k for k, row in enumerate(rows) if row["above_best"] == 0)
    for number in possible:
        if suited[number] and not preferable(every[chosen], every[number], MAX_EXCESS):
            chosen = number
    for number, row in enumerate(rows):
        row["chosen"] = number == chosen
    return chosen

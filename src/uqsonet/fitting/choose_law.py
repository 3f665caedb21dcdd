"""Which law an input has: each is fitted, and scored on pairs that nothing was fitted to.

`auto` keeps the Gaussian law where coefficients of the training inputs, single values, and
differences of neighbouring values are no farther from Gaussian than chance allows, inputs take more
than a few values, and its fields stay within their range. Elsewhere laws are compared by the rule
of `uqsonet.fitting.comparison`. The simplest comes first, but laws that inputs contradict come
last, as the CRPS hardly shows it: those whose fields leave the range of the training inputs far
more often than new inputs would, and, where single values are not normal, those that have no other.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from uqsonet.errors import ConfigError
from uqsonet.fitting.comparison import Comparison
from uqsonet.fitting.held_out import LEVELS
from uqsonet.gauss.blocks import projected
from uqsonet.gauss.given import Given
from uqsonet.gauss.seeds import torch_generator
from uqsonet.laws import GONE, NAMES, law_class
from uqsonet.laws.base import InputLaw, classes_of
from uqsonet.laws.bases import InputSample
from uqsonet.runs.runs import distance_from_gaussian
from uqsonet.sensors.sensors import no_sensors

if TYPE_CHECKING:
    from uqsonet.operator.model import KarhunenLoeveModel
    from uqsonet.runs.functions import Functions

LOG = logging.getLogger("uqsonet")

RANGE_DRAWS = 1000  # fields of a law whose range is compared with that of training inputs

CHANCE_DISTANCE = 1.73
"""Kolmogorov distance from Gaussian, times the root of the number of inputs, that 19 of 20 samples
of Gaussian inputs stay below."""

CHANCE_VALUES = 0.9
"""The same of values at a point whose mean and variance are estimated (Lilliefors 1967, J. Am.
Stat. Assoc. 62, 399)."""

TESTED_POINTS = 200  # points whose values are compared with normal ones, at most
SEEN = 1e-5  # std, relative to the largest value, of values that are no rounding
MAX_OUTSIDE = 0.05  # accepted share of a law's fields that leave the range of the training inputs


def require_law(law: str) -> None:
    """Refuse (`ConfigError`) a name that no law has."""
    if isinstance(law, str) and law in GONE:
        raise ConfigError(f"law {law!r} is gone: {GONE[law]}")
    if law not in ("auto", *NAMES):
        raise ConfigError(f"law {law!r} is unknown; there are auto, {', '.join(NAMES)}")


def equip(
    models: Sequence[KarhunenLoeveModel], names: Sequence[str], training: Sequence[Functions],
    compared: Comparison, *, noise_std: float | Tensor = 0.0, seed: int = 0,
) -> list[dict[str, Any]]:  # fmt: skip
    """Fit a law of the input and put it into models whose operators are trained.

    Parameters
    ----------
    models : sequence of KarhunenLoeveModel
        Of the same kind, each trained on other pairs: there are several where pairs are few.
    names : sequence of str
        Laws to try, of `uqsonet.laws.NAMES`; the Gaussian one alone where inputs may be Gaussian.
    training : sequence of Functions
        The pairs that each was trained on.
    compared : Comparison
        On pairs that nothing was fitted to, a part for each model; each law is added to it by its
        name.
    noise_std : float or Tensor, shape (n,)
        Of the observations, or of those at each grid point of the input.
    seed : int

    Returns
    -------
    list of dict
        For each law that was fitted: `law`, `crps_<m>`, `held_50` and `held_90`
        (shares of the output inside bands), `above_best` and `standard_error` (relative), `outside`
        (share of its fields that leave the range of the training inputs), `distance` of the
        coefficients from Gaussian and that which chance allows, `values` (the same distance of
        single values, and of differences of neighbours), `chosen`.

    Raises
    ------
    ConfigError
        If there is no such law, or none fits these inputs.
    """
    for name in names:
        require_law(name)
    samples = [input_sample(*one, noise_std) for one in zip(models, training, strict=True)]
    sample, size = samples[0], training[0].size
    distance = distance_from_gaussian(sample.coefficients)
    single, rough = (distance_of_values(one) for one in (sample.fields, sample.fields.diff(dim=1)))
    chance, allowed = (one / math.sqrt(size) for one in (CHANCE_DISTANCE, CHANCE_VALUES))
    # A new input beats the lowest or the highest of N with probability 2 / (N + 1).
    limit = MAX_OUTSIDE + 4 / size
    if len(names) > 1 and distance <= chance and max(single, rough) <= allowed:
        if classes_of(sample.fields) is None and _outside(_prior(models[0]), sample, seed) <= limit:
            names = ("gaussian",)
    rows: dict[str, dict[str, Any]] = {}
    equipped: dict[str, list[KarhunenLoeveModel]] = {}
    normal: dict[str, bool] = {}  # single values are, or nearly so
    for name in names:
        LOG.log(15, "fitting the law %s", name)
        equipped[name] = [copy.copy(model) for model in models]  # buffers are shared
        for model, one in zip(equipped[name], samples, strict=True):
            model.use_law(None if name == "gaussian" else law_class(name).fit(one, seed))
        unfit = name != "gaussian" and any(model.law.name != name for model in equipped[name])
        if unfit or not compared.add(name, equipped[name]):
            continue
        means, counts = compared.scores[name].mean(2), compared.parts[0].sensors
        row = {f"crps_{m}": float(mean) for m, mean in zip(counts, means[0], strict=True)}
        for level, shares in zip(LEVELS, means[1:], strict=True):
            row[f"held_{100 * level:.0f}"] = float(shares.mean())
        prior = _prior(equipped[name][0])
        normal[name] = prior.functions is None
        row |= {"outside": _outside(prior, sample, seed), "distance": distance}
        row |= {"chance": chance, "values": max(single, rough)}
        rows[name] = {"law": name, **row}
    if not rows:
        why = (InputLaw if names[0] == "gaussian" else law_class(names[0])).misfit
        raise ConfigError(f"law {names[0]!r} does not fit these inputs: {why}")

    def contradicted(name: str) -> tuple[bool, bool]:
        return rows[name]["outside"] > limit, single > allowed and normal[name]

    taken, _ = compared.taken(sorted(rows, key=contradicted))
    best = min(rows, key=lambda name: float(compared.relative()[name][0].mean()))
    for name, row in rows.items():
        row["above_best"], row["standard_error"] = compared.above(name, best)
        row["chosen"] = name == taken
    for model, one in zip(models, equipped[taken], strict=True):
        model.use_law(one.law)
    return list(rows.values())


def distance_of_values(fields: Tensor) -> float:
    """Return how far values (N, n) at single points are from normal.

    The Kolmogorov distance between values less their mean, over their standard deviation, and
    standard normals, averaged over points.
    """
    size, n = fields.shape
    if not n:
        return 0.0
    values = fields[:, torch.linspace(0, n - 1, min(n, TESTED_POINTS)).long()].double()
    spread = values.std(0)
    free = spread > SEEN * values.abs().amax()
    if not bool(free.any()):
        return 0.0
    z = ((values - values.mean(0)) / spread)[:, free].sort(0).values
    share, steps = torch.special.ndtr(z), torch.arange(size + 1, dtype=z.dtype)[:, None] / size
    return float(torch.maximum(steps[1:] - share, share - steps[:-1]).amax(0).mean())


def refit(
    model: KarhunenLoeveModel, law: InputLaw, training: Functions, seed: int = 0,
    noise_std: float | Tensor = 0.0,
) -> None:  # fmt: skip
    """Put a law of the same kind, fitted to other pairs, into a model.

    Where these inputs do not allow it any more, the model keeps the Gaussian law.
    """
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
    left = left / inputs.shape[1]
    # Nearly as many modes as inputs leave less of these than of others.
    left += (float(bases.input_remainder) ** 2 - left.mean()).clamp_min(0)
    return InputSample(bases, fields, a, left.sqrt(), noise_std)


def _prior(model: KarhunenLoeveModel) -> Given:
    """Return the law of a model's input without sensors."""
    return model.input_law_given(no_sensors([model.fields.input]))


@torch.no_grad()
def _outside(prior: Given, sample: InputSample, seed: int) -> float:
    """Return the share of a law's fields that leave the range of training inputs.

    Zero for laws whose samples are whole fields: these take values of the inputs.
    """
    if prior.functions is not None:
        return 0.0
    a = prior.sample(RANGE_DRAWS, torch_generator(seed, "law", "outside"))[0]
    low, high = float(sample.fields.amin()), float(sample.fields.amax())
    slack = 1e-3 * (high - low)
    inside = sample.bases.within(a, low - slack, high + slack)
    return 1 - float(inside.float().mean())

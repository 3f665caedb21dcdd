"""Which law an input has: each is fitted, and scored on pairs that nothing was fitted to.

`auto` keeps the Gaussian law where the coefficients of the training inputs are no farther from
Gaussian than chance allows, inputs take more than a few values, and its fields stay within their
range. Elsewhere it takes the simplest law that is not rejected: its CRPS on the held-out pairs,
relative to the Gaussian law's at each number of sensors, is not higher than the best one's by more
than two standard errors of the paired difference. A Gaussian law, and a mixture,
is rejected as well if its fields leave the range of the training inputs far more often than new
inputs would: they are not fields of this kind, even where the CRPS hardly tells.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from uqsonet.errors import ConfigError, ObservationError
from uqsonet.fields.field import Observations
from uqsonet.gauss.metrics import ascending, crps
from uqsonet.gauss.seeds import numpy_generator, torch_generator
from uqsonet.laws import NAMES
from uqsonet.laws.analogue import SHARES, AnalogueLaw
from uqsonet.laws.base import InputLaw
from uqsonet.laws.bounded import BoundedLaw
from uqsonet.laws.common import InputSample
from uqsonet.laws.mixture import MixtureLaw
from uqsonet.laws.thresholded import ThresholdedLaw, classes_of
from uqsonet.runs.description import distance_from_gaussian

if TYPE_CHECKING:
    from uqsonet.operator.model import KarhunenLoeveModel
    from uqsonet.runs.functions import Functions

LOG = logging.getLogger("uqsonet")

SCORED_SETS, SCORED_POINTS, DRAWS = 200, 200, 256
"""Held-out pairs at each number of sensors, points of the output, and draws behind a score."""

LEAST_SETS, SENSORS = 20, 8000
"""Held-out pairs at least; more only as long as they have no more sensors than these together."""

FIELDS = 1000
"""Fields of a law whose range is looked at."""

CHANCE = 1.73
"""Distance from Gaussian, over one by the root of the number of inputs, that chance allows in about
19 of 20 samples."""

OUTSIDE = 0.05
"""Share of a law's fields beyond the range of the training inputs that is not held against it."""

ERRORS = 2.0
"""Standard errors by which a law may score worse than the best."""


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
    law : {"auto", "gaussian", "mixture", "thresholded", "bounded", "analogue"}
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
        For each law that was fitted: `law`, `seconds` (to fit), `crps_<m>`, `above_best` and
        `standard_error` (relative), `outside` (share of its fields that leave the range of the
        training inputs), `distance` of the coefficients from Gaussian and that which
        chance allows, `chosen`.

    Raises
    ------
    ConfigError
        If there is no such law, or it does not fit these inputs.
    """
    require_law(law)
    scorer = _Scorer(model, held, noise_std, layouts, seed)
    sample = input_sample(model, training)
    distance = distance_from_gaussian(sample.coefficients)
    chance = CHANCE / math.sqrt(training.size)
    names = NAMES if law == "auto" else (law,)
    if (
        law == "auto"
        and distance <= chance
        and classes_of(sample.fields) is None
        and _outside(model, None, sample, seed) <= _most_outside(training.size)
    ):
        names = ("gaussian",)
    rows: list[dict[str, Any]] = []
    fitted: list[tuple[InputLaw | None, Tensor]] = []
    for name in names:
        start = time.monotonic()
        candidates = _fitted(name, sample, seed)
        seconds = time.monotonic() - start
        if not candidates:
            continue
        found = candidates[0]
        if len(candidates) > 1:
            found = min(candidates, key=lambda one: float(scorer.scores(one, quick=True).mean()))
        try:
            scores = scorer.scores(found)
        except ObservationError as error:
            LOG.info("law %s: no answer to a held-out pair (%s)", name, error)
            continue
        fitted.append((found, scores))
        by_count = {f"crps_{m}": float(s.mean()) for m, s in zip(layouts, scores, strict=True)}
        rows.append({"law": name, "seconds": round(seconds, 1), **by_count})
        rows[-1] |= {"outside": _outside(model, found, sample, seed)}
        rows[-1] |= {"distance": distance, "chance": chance}
        LOG.info("law %s: %s", name, ", ".join(f"{k} {v:.4g}" for k, v in by_count.items()))
    if not rows:
        raise ConfigError(f"law {law!r} does not fit these inputs: {_WHY.get(law, _NO_ANSWER)}")
    model.use_law(fitted[_simplest([scores for _, scores in fitted], rows, training.size)][0])
    return rows


_NO_ANSWER = "it has no answer to a held-out pair"
_WHY = {
    "thresholded": "they take more than a few values, or only one at some point, or have classes "
    "that no cut Gaussian field has",
    "bounded": "a Gaussian law of theirs leaves their range hardly ever, or almost always",
}


def _fitted(name: str, sample: InputSample, seed: int) -> list[InputLaw | None]:
    """Return the law of that name in each variant; nothing where it does not fit the inputs."""
    if name == "gaussian":
        return [None]
    if name == "mixture":
        return [MixtureLaw.fit(sample, numpy_generator(seed, "law", name))]
    if name == "analogue":
        return [AnalogueLaw.fit(sample, share) for share in SHARES]
    if name == "thresholded":
        found: InputLaw | None = ThresholdedLaw.fit(sample)
    else:
        found = BoundedLaw.fit(sample, torch_generator(seed, "law", name))
    return [] if found is None else [found]


def refit(
    model: KarhunenLoeveModel, law: InputLaw | None, training: Functions, seed: int = 0
) -> None:
    """Put a law of the same kind, fitted to other pairs, into a model.

    Where these inputs do not allow it any more, the model keeps the Gaussian law.
    """
    if isinstance(law, AnalogueLaw):
        model.use_law(AnalogueLaw.fit(input_sample(model, training), law.share))
    elif law is not None:
        found = _fitted(law.name, input_sample(model, training), seed)
        model.use_law(found[0] if found else None)


def input_sample(model: KarhunenLoeveModel, training: Functions) -> InputSample:
    """Return training inputs as laws are fitted to them."""
    bases = model.bases
    fields, coefficients, remainders = [], [], []
    factor, to = bases.input_factor.double(), bases.from_fields()
    for kappa, _ in training.blocks():
        field = bases.fields.input.transform.forward(kappa.double())
        a = (field - bases.input_mean) @ to
        left = field - bases.input_mean - a @ factor.T
        fields.append(field.float())
        coefficients.append(a)
        remainders.append(left.square().mean(1).sqrt())
    return InputSample(bases, torch.cat(fields), torch.cat(coefficients), torch.cat(remainders))


@torch.no_grad()
def _outside(
    model: KarhunenLoeveModel, law: InputLaw | None, sample: InputSample, seed: int
) -> float:
    """Return the share of a law's fields that leave the range of the training inputs.

    Zero for laws whose fields are training inputs, or take their values.
    """
    if law is not None and not isinstance(law, MixtureLaw | BoundedLaw):
        return 0.0
    before, model.law = model.law, law
    none = torch.zeros(1, 0, model.fields.input.grid.dim), torch.zeros(1, 0)
    given = model.input_posterior(*none)
    model.law = before
    a = given.sample(FIELDS, torch_generator(seed, "law", "outside"))[0]
    low, high = float(sample.fields.amin()), float(sample.fields.amax())
    field = model.bases.input_mean.float() + a @ model.bases.input_factor.T
    slack = 1e-3 * (high - low)
    inside = (field.amin(1) >= low - slack) & (field.amax(1) <= high + slack)
    return 1 - float(inside.float().mean())


def _most_outside(size: int) -> float:
    """Return the share of a law's fields beyond the range of N inputs that is allowed."""
    # A new input beats the lowest or the highest of N with probability 2 / (N + 1).
    return OUTSIDE + 4 / size


def _simplest(scores: list[Tensor], rows: list[dict[str, Any]], size: int) -> int:
    """Return which law is taken, and note in the rows why."""
    base = scores[0].mean(1, keepdim=True)
    relative = [(one / base).mean(0) for one in scores]
    best = min(relative, key=lambda one: float(one.mean()))
    limit = _most_outside(size)
    fair = any(row["outside"] <= limit for row in rows)
    chosen = None
    for number, (one, row) in enumerate(zip(relative, rows, strict=True)):
        worse = one - best
        error = float(worse.std()) / math.sqrt(len(worse))
        row |= {"above_best": float(worse.mean()), "standard_error": error}
        possible = row["outside"] <= limit or not fair
        if chosen is None and possible and float(worse.mean()) <= ERRORS * error:
            chosen = number
    if chosen is None:  # whatever stays within the range scores worse
        chosen = next(k for k, row in enumerate(rows) if row["above_best"] == 0)
    for number, row in enumerate(rows):
        row["chosen"] = number == chosen
    return chosen


class _Scorer:
    """Held-out pairs with sensors on them."""

    def __init__(
        self,
        model: KarhunenLoeveModel,
        held: Functions,
        noise_std: float | Tensor,
        layouts: Mapping[int, Tensor],
        seed: int,
    ) -> None:
        self._model, self._seed = model, seed
        grid, kept = model.fields.training_grid()
        affordable = max(LEAST_SETS, SENSORS // max(layouts))
        most = min(SCORED_SETS, affordable)
        sets = min(most, held.size, *(len(indices) for indices in layouts.values()))
        u = held.u[:sets].double()
        u = u if u.shape[1] == grid.size else u[:, kept]
        order = numpy_generator(seed, "law", "points").permutation(grid.size)[:SCORED_POINTS]
        columns = torch.from_numpy(order).sort().values
        self._truth = u[:, columns]
        self._offset, self._basis = model.bases.output_basis(grid.points()[columns])
        kappa, given = held.kappa[:sets].double(), model.fields.input
        self._sets: list[tuple[Observations, Tensor]] = []
        for count, indices in layouts.items():
            generator = numpy_generator(seed, "law", "noise", count)
            places = indices[:sets].long()
            level = torch.as_tensor(noise_std, dtype=torch.float64).expand(kappa.shape[1])[places]
            noise = torch.from_numpy(generator.standard_normal((sets, count))) * level
            x, y = given.read(kappa, places, noise if bool(level.any()) else None)
            mask = torch.ones_like(y, dtype=torch.bool)
            self._sets.append((Observations(x, y, mask), level))

    @torch.no_grad()
    def scores(self, law: InputLaw | None, quick: bool = False) -> Tensor:
        """Return the CRPS (counts, S) of each held-out pair with a law; `quick`: of some pairs."""
        before, self._model.law = self._model.law, law
        try:
            return torch.stack([self._of(*one, quick) for one in self._sets])
        finally:
            self._model.law = before

    def _of(self, o: Observations, noise: Tensor, quick: bool) -> Tensor:
        generator = torch_generator(self._seed, "law", "draws")
        found = []
        for s in range(len(self._truth) // 4 if quick else len(self._truth)):
            one = slice(s, s + 1)
            answer = self._model.condition(o.locations[one], o.values[one], o.mask[one], noise[one])
            c = answer.coefficient_samples(DRAWS, generator)[0].double()
            samples = self._offset + c @ self._basis.T
            found.append(crps(ascending(samples), self._truth[s]))
        return torch.tensor(found, dtype=torch.float64)

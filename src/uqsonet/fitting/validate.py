"""Is it any good, and does its band hold what it says: scores on runs that a model has not seen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import ConfigError, DataError, NoUncertaintyError, ObservationError
from uqsonet.fields.numbers import require_noise, without_mask
from uqsonet.fitting.regression import Regression
from uqsonet.fitting.scores import RANK_BINS, Report, Score
from uqsonet.gauss.metrics import (
    ascending,
    coverage,
    crps,
    energy_score,
    rank_shares,
    relative_error,
)
from uqsonet.gauss.seeds import numpy_generator
from uqsonet.runs.functions import Functions
from uqsonet.runs.runs import rows_of, split_runs
from uqsonet.sensors.sensors import SensorSets

if TYPE_CHECKING:
    from uqsonet.emulator.answer import FieldPosterior
    from uqsonet.emulator.emulator import Emulator
    from uqsonet.fields.named_field import NamedField
    from uqsonet.runs.runs import Runs

LEVELS = (0.5, 0.8, 0.9)
"""Of the bands whose coverage is counted."""

LAYOUTS = 3
"""Different random layouts for each number of sensors; runs share them."""

SAMPLES = 1000
"""Functions behind the scores of one answer."""

ENERGY_SAMPLES = 250
"""Those of them behind the energy score, whose cost grows with their square."""


POINTS = 2000
"""Output points that scores are averaged over, at most."""


@dataclass(frozen=True)
class _HeldOut:
    """Held-out runs as a model's fields: where inputs can be read, and what is true of outputs."""

    places: SensorSets
    """One set with every input point; its values are not meant."""
    readings: Tensor
    """Values (N, n) of the input fields at those points."""
    outputs: list[tuple[Tensor, Tensor]]
    """Points (M, d) and truths (N, M) of each output field."""

    @classmethod
    def of(cls, emulator: Emulator, runs: Runs, seed: int) -> _HeldOut:
        for side, mine in (("inputs", emulator.inputs), ("outputs", emulator.outputs)):
            names, there = [f.name for f in mine], list(getattr(runs, side))
            if lacking := [name for name in names if name not in there]:
                raise DataError(
                    f"{runs.name}: no {side[:-1]} field {lacking[0]!r}; there are "
                    f"{', '.join(there)}"
                )
        numbers, locations, readings = [], [], []
        dim = max(f.domain.dim for f in emulator.inputs)
        for number, one in enumerate(emulator.inputs):
            field = runs.inputs[one.name]
            x = field.domain.points()
            inside = _inside(one.domain, x)
            if not bool(inside.any()):
                raise DataError(f"{runs.name}: no point of {one.name} lies in the model's domain")
            values = torch.from_numpy(np.asarray(field.values)).double()[:, inside]
            if one.transform.positive and not bool((values > 0).all()):
                raise DataError(f"{runs.name}: {one.name} must be positive under log")
            numbers.append(torch.full((int(inside.sum()),), number))
            locations.append(torch.nn.functional.pad(x[inside], [0, dim - x.shape[1]]))
            readings.append(values)
        outputs = []
        for one in emulator.outputs:
            field = runs.outputs[one.name]
            x = field.domain.points()
            kept = _inside(one.domain, x).nonzero()[:, 0]
            if not len(kept):
                raise DataError(f"{runs.name}: no point of {one.name} lies in the model's domain")
            drawn = numpy_generator(seed, "scores", "points").permutation(len(kept))[:POINTS]
            kept = kept[np.sort(drawn)]
            values = torch.from_numpy(np.asarray(field.values)).double()
            outputs.append((x[kept], values[:, kept]))
        count = sum(len(n) for n in numbers)
        blank, mask = torch.zeros(1, count).double(), torch.ones(1, count, dtype=torch.bool)
        field_of, x = torch.cat(numbers)[None], torch.cat(locations)[None]
        places = SensorSets(field_of, x, blank, blank, mask, ["0"], True, "torch")
        return cls(places, torch.cat(readings, 1), outputs)

    def sets(
        self, emulator: Emulator, runs: Tensor, layout: Tensor, noise: float, drawn: Tensor
    ) -> SensorSets:
        """Return some runs observed at the points `layout` (m,)."""
        values = self.readings[runs][:, layout]
        field = self.places.field[0, layout]
        for number, one in enumerate(emulator.inputs):
            here = field == number
            if noise and bool(here.any()):
                moved = one.transform.forward(values[:, here]) + noise * drawn[:, here]
                values[:, here] = one.transform.inverse(moved)
        shape = values.shape
        stated = torch.full(shape, noise, dtype=torch.float64)
        x = self.places.locations[:, layout].expand(len(runs), -1, -1)
        mask = torch.ones(shape, dtype=torch.bool)
        labels = [str(int(run)) for run in runs]
        return SensorSets(field.expand(shape), x, values, stated, mask, labels, False, "torch")


def _inside(domain: Any, x: Tensor) -> Tensor:
    """Return which points (n, d) lie in the box of a domain."""
    if x.shape[1] != domain.dim:
        raise DataError(f"points have {x.shape[1]} coordinates, the model's {domain.dim}")
    lower, upper = (torch.tensor(e, dtype=torch.float64) for e in (domain.lower, domain.upper))
    slack = 1e-6 * (upper - lower)
    return ((x >= lower - slack) & (x <= upper + slack)).all(-1)


def counts_or_places(
    sensors: object, fields: Sequence[NamedField], points: int
) -> list[int] | Tensor:
    """Return what a user said about sensors: numbers of them, or places (m, d).

    Parameters
    ----------
    sensors : int, sequence of int, or array (m, d)
    fields : sequence of NamedField
        The inputs.
    points : int
        Where sensors may stand, at most.

    Raises
    ------
    ConfigError
        If it is neither, or a number is out of range.
    ObservationError
        If a place is outside the domain.
    """
    sensors = without_mask(sensors, "sensors", error=ConfigError)
    try:
        found = np.atleast_1d(np.asarray(sensors))
        found = found if found.dtype.kind in "iu" else found.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"sensors: counts or places expected ({error})") from None
    if found.ndim == 1 and found.dtype.kind in "iu":
        counts = sorted({int(m) for m in found})
        if wrong := [m for m in counts if not 1 <= m <= points]:
            raise ConfigError(f"sensors: counts must be from 1 to {points}, found {wrong[0]}")
        return counts
    if len(fields) > 1:
        raise ConfigError("sensors: places need a single input field; give counts instead")
    domain, places = fields[0].domain, torch.from_numpy(found).double()
    places = places[:, None] if places.ndim == 1 else places
    if places.ndim != 2 or places.shape[1] != domain.dim or not len(places):
        raise ConfigError(
            f"sensors: counts, or places of shape (m, {domain.dim}), expected; "
            f"found {tuple(found.shape)}"
        )
    domain.require_inside(places)
    return places


def _layouts(
    emulator: Emulator, held_out: _HeldOut, sensors: object, seed: int, runs: int
) -> Iterator[tuple[int, list[tuple[Tensor, Tensor]]]]:
    """Yield numbers of sensors with (runs, layout) pairs: points of the held-out inputs."""
    size = held_out.places.values.shape[1]
    if sensors is None:
        sensors = emulator.card.get("recipe", {}).get("sensors") or [3, 10, 30]
    found = counts_or_places(sensors, emulator.inputs, size)
    if isinstance(found, list):
        for count in found:
            generator = numpy_generator(seed, "scores", "layouts", count)
            pairs = []
            for part in torch.arange(runs).tensor_split(min(LAYOUTS, runs)):
                drawn = generator.choice(size, count, replace=False)
                pairs.append((part, torch.from_numpy(drawn)))
            yield count, pairs
        return
    points = held_out.places.locations[0, :, : found.shape[1]]
    nearest = torch.cdist(found, points).argmin(1).unique()
    yield len(nearest), [(torch.arange(runs), nearest)]


def score(
    emulator: Emulator,
    held_out: Runs,
    sensors: object = None,
    *,
    noise_std: float | None = None,
    seed: int = 0,
    conformal: bool = True,
    regression: Emulator | None = None,
) -> tuple[list[Score], FieldPosterior, Tensor, Tensor]:
    """Return scores of a model, of baselines and of no sensors, and an example for a picture.

    Parameters are those of `Emulator.validate`; without `conformal` only plain bands are counted.
    """
    if not (hasattr(held_out, "inputs") and len(held_out)):
        raise DataError(f"held_out must be uqsonet.Runs, at least one; found {held_out!r:.60}")
    noise = float(emulator.noise_std or 0.0) if noise_std is None else float(noise_std)
    require_noise(torch.tensor(noise, dtype=torch.float64))
    found = _HeldOut.of(emulator, held_out, seed)
    runs = len(held_out)
    scores: list[Score] = []
    example: tuple[FieldPosterior, Tensor, Tensor] | None = None
    layouts = list(_layouts(emulator, found, sensors, seed, runs))
    for place, (count, pairs) in enumerate(layouts):
        drawn = numpy_generator(seed, "scores", "noise", count).standard_normal((runs, count))
        sets = [
            (part, found.sets(emulator, part, layout, noise, torch.from_numpy(drawn)[part]))
            for part, layout in pairs
        ]
        methods: list[tuple[str, Emulator]] = [("uqsonet", emulator)]
        if emulator.cokriging is not None:
            methods.append(("cokriging", emulator.with_operator(emulator.cokriging)))
        if regression is not None:
            methods.append(("regression", regression))
        if emulator.encoded:
            methods.append(("sensor_free", emulator))
        for number, (x, truth) in enumerate(found.outputs):
            for method, model in methods:
                name = emulator.outputs[number].name
                if method == "sensor_free" and place > 0:  # the same without sensors
                    known = next(s for s in scores if (s.method, s.field) == (method, name))
                    scores.append(replace(known, sensors=count))
                    continue
                tally = _Tally(method, name, count)
                for part, some in sets:
                    given = _blank(some) if method == "sensor_free" else some
                    posterior = _posterior(model, given, number)
                    bands = conformal and model.calibration is not None
                    tally.add(posterior, x, truth[part], bands)
                scores.append(tally.score())
        if place == len(layouts) // 2:
            single = replace(sets[0][1][:1], single=True)
            x, truth = found.outputs[0]
            example = _posterior(emulator, single, 0), truth[0], x
    assert example is not None
    return scores, *example


def _on_pairs(emulator: Emulator, runs: Runs) -> Emulator:
    """Return the same fields answered by regression on the runs that a model was fitted to.

    Those that calibrate its bands are left out, as `fit` did.
    """
    data, recipe = emulator.card.get("data", {}), emulator.card.get("recipe", {})
    same = all(
        one.name in fields and fields[one.name].domain.size == one.domain.size
        for mine, fields in ((emulator.inputs, runs.inputs), (emulator.outputs, runs.outputs))
        for one in mine
    )
    if not same or data.get("runs") != len(runs) or "seed" not in recipe:
        raise DataError(
            f"{runs.name}: pairs must be the {data.get('runs', 0)} runs that the model was fitted "
            f"to; found {len(runs)}, or other fields or points"
        )
    split = split_runs(len(runs), recipe["seed"])
    kept = runs[np.sort(np.concatenate([split.training, split.validation]))]
    rows = rows_of(kept.inputs, emulator.inputs), rows_of(kept.outputs, emulator.outputs)
    return emulator.with_operator(Regression(Functions(emulator.fields, "training", *rows), 0.0))


def _posterior(emulator: Emulator, sets: SensorSets, number: int) -> FieldPosterior:
    from uqsonet.emulator.answer import FieldPosterior

    return FieldPosterior(emulator, sets, number)


def _blank(sets: SensorSets) -> SensorSets:
    """Return the same sets without their sensors."""
    return sets.each(lambda t: t[:, :0])


class _Tally:
    """Scores of one method, run by run."""

    def __init__(self, method: str, field: str, sensors: int) -> None:
        self._what = method, field, sensors
        self._errors: list[float] = []
        self._crps: list[float] = []
        self._energy: list[float] = []
        self._ranks: list[list[float]] = []
        self._functional: list[float] = []
        self._held: dict[str, list[list[float]]] = {"plain": [], "conformal": [], "whole": []}

    def add(self, posterior: FieldPosterior, x: Tensor, truth: Tensor, conformal: bool) -> None:
        """Take in some runs with their truths (B, M) at points x (M, d)."""
        mean = posterior.mean(x)
        equal = torch.full((len(x),), 1 / len(x), dtype=torch.float64)
        for k in range(len(truth)):
            self._errors.append(float(relative_error(mean[k], truth[k])))
            one = _one(posterior, k)
            try:
                samples = one.sample(SAMPLES, x, seed=1)
            except NoUncertaintyError:
                continue
            ordered = ascending(samples)
            self._crps.append(crps(ordered, truth[k]))
            self._energy.append(energy_score(samples[:ENERGY_SAMPLES], truth[k], equal))
            self._held["plain"].append(coverage(ordered, truth[k], LEVELS))
            self._ranks.append(rank_shares(ordered, truth[k], RANK_BINS))
            below = samples.mean(1) < truth[k].mean()
            self._functional.append(float(below.double().mean()))
        for whole in (False, True) if conformal else ():
            shares = []
            for level in LEVELS:
                try:
                    lower, upper = posterior.band(level, x, "conformal", whole)
                except ObservationError:  # too few calibration runs for this level
                    shares.append(torch.full((len(truth),), torch.nan))
                    continue
                slack = 1e-9 * (upper - lower).amax(1, keepdim=True)
                inside = (truth >= lower - slack) & (truth <= upper + slack)
                free = upper - lower > slack
                inside = inside | ~free
                counted = inside.double()
                counted[~free] = torch.nan
                shares.append(inside.all(1).double() if whole else counted.nanmean(1))
            self._held["whole" if whole else "conformal"] += torch.stack(shares, 1).tolist()

    def score(self) -> Score:
        """Return the averages."""
        errors = np.array(self._errors)

        def mean(rows: Sequence[float]) -> float:
            return float(np.mean(rows)) if rows else math.nan

        def bands(kind: str) -> dict[float, float] | None:
            rows = self._held[kind]
            return dict(zip(LEVELS, np.mean(rows, 0).tolist(), strict=True)) if rows else None

        return Score(
            *self._what,
            runs=len(errors),
            err_mean=float(errors.mean()),
            err_mean_se=float(errors.std(ddof=1) / math.sqrt(len(errors)))
            if len(errors) > 1
            else 0.0,
            crps=mean(self._crps),
            energy=mean(self._energy),
            plain=bands("plain") or {},
            conformal=bands("conformal"),
            whole=bands("whole"),
            ranks=np.mean(self._ranks, 0).tolist() if self._ranks else [],
            functional_ranks=self._functional,
        )


def _one(posterior: FieldPosterior, k: int) -> FieldPosterior:
    return posterior.given(replace(posterior.sensors[k : k + 1], single=True))


def score_rows(
    emulator: Emulator,
    held_out: Runs,
    sensors: object,
    *,
    noise_std: float,
    seed: int,
    pairs: Functions,
) -> list[dict[str, Any]]:
    """Return rows for a model's card: scores with plain bands."""
    found, *_ = score(
        emulator, held_out, sensors, noise_std=noise_std, seed=seed, conformal=False,
        regression=emulator.with_operator(Regression(pairs, 0.0)),
    )  # fmt: skip
    return [one.row() for one in found]


def validate(
    emulator: Emulator,
    held_out: Runs,
    sensors: object,
    *,
    noise_std: float | None,
    seed: int,
    pairs: Runs | None = None,
) -> Report:
    """Score a model on held-out runs (`Emulator.validate`)."""
    regression = None if pairs is None else _on_pairs(emulator, pairs)
    scores, example, truth, x = score(
        emulator, held_out, sensors, noise_std=noise_std, seed=seed, regression=regression
    )
    title = f"{emulator!r} on {len(held_out)} runs of {held_out.name}"
    return Report(emulator, scores, title, example, truth, x)

"""Scores on runs that a model has not seen: is it any good, and do its bands hold the truths."""

from __future__ import annotations

import logging
import math
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from uqsonet.emulator.answer import FieldPosterior
from uqsonet.emulator.encode import sensors_of_fit
from uqsonet.emulator.field_law import BAND_SAMPLES
from uqsonet.errors import (
    DataError,
    NoUncertaintyError,
    ObservationError,
    ObservationWarning,
)
from uqsonet.fields.grid import inside
from uqsonet.fields.numbers import real_numbers, require_noise
from uqsonet.files import path_of, write_text
from uqsonet.fitting.card import Model, sample_remarks, table_lines
from uqsonet.fitting.held_out import Read, some_points
from uqsonet.fitting.plan import SensorPlan
from uqsonet.gauss.metrics import (
    MIN_SPAN,
    ascending,
    coverage,
    crps,
    energy_score,
    quantile,
    rank_shares,
    relative_error,
)
from uqsonet.gauss.seeds import numpy_generator
from uqsonet.operator.baselines import Cokriging
from uqsonet.runs.runs import Runs
from uqsonet.sensors.sensors import Sensors, field_number
from uqsonet.show.terminal import PROGRESS_LEVEL, never_silent

if TYPE_CHECKING:
    from uqsonet.fields.field import Field
    from uqsonet.runs.runs import FieldRuns

LOG = logging.getLogger("uqsonet")

COVERAGE_LEVELS = (0.5, 0.8, 0.9)  # levels of the bands whose coverage is counted

ENDS = (0.5, *((1 + side * level) / 2 for level in COVERAGE_LEVELS for side in (-1, 1)))
"""Levels of the median and of the ends of these bands."""

LAYOUTS = 3  # number of layouts for each number of sensors; runs share them
SCORE_SAMPLES = BAND_SAMPLES  # functions behind the scores of one answer, and behind its bands
MAX_DRAWN = 1 << 22  # values of functions that are drawn at a time
ENERGY_SAMPLES = 250  # functions behind the energy score: its cost grows with their square

MIN_TRUTH_POINTS, MAX_TRUTH_POINTS, MAX_TRUTHS = 200, 2000, 100_000
"""Numbers of output points that scores are averaged over, and of truths of all runs together: of
many runs each says less, as their points go up and down together."""


RANK_BINS = 10  # number of bins of the rank histogram
SLACK = 0.1  # of the truths' range at a point, by which samples may leave it
RANGE_RUNS = 20  # truths whose range says something, at least
MIN_CHANCE = 0.01  # of ranks under a calibrated law, below which a report says so


@dataclass(frozen=True)
class Score:
    """What one method scores on one output field with one number of sensors.

    Attributes
    ----------
    method : {"uqsonet", "cokriging", "regression", "sensor_free"}
    field : str
    sensors, runs : int
    err_mean, err_mean_se : float
        Relative L2 error of the mean against the truths, averaged over runs, and its standard
        error.
    crps, energy : float
        In the units of the field; averaged over points and runs. Energy in the norm of L2 over the
        domain, its volume taken as one.
    plain, conformal, whole : dict of float to float, or None
        Share of truths that the plain bands hold, and the conformal ones for single points and for
        whole functions, by level. None without calibration runs.
    ranks : list of float
        Share of points whose truth's rank among the samples is in each tenth.
    functional_ranks : list of float
        The rank of the truth's mean over the domain, run by run, in [0, 1]: uniform for a
        calibrated law (simulation-based calibration; Talts et al., arXiv 1804.06788).
    roughness : float
        By how much samples differ between neighbouring points, over how much the truths do: the
        root of the ratio of their variograms there.
    outside : float
        Share of the samples' values that leave the truths' range at the point by more than `SLACK`
        of it, over points with at least `RANGE_RUNS`; not a number if there are none.
    """

    method: str
    field: str
    sensors: int
    runs: int
    err_mean: float
    err_mean_se: float
    crps: float
    energy: float
    plain: dict[float, float]
    conformal: dict[float, float] | None
    whole: dict[float, float] | None
    ranks: list[float]
    functional_ranks: list[float]
    roughness: float = math.nan
    outside: float = math.nan

    def row(self) -> dict[str, Any]:
        """Return the score as a flat row of a table; errors in percent, coverage as shares."""
        kept = "method", "field", "sensors", "runs"
        row: dict[str, Any] = {name: getattr(self, name) for name in kept}
        row |= {name: round(100 * getattr(self, name), 3) for name in ("err_mean", "err_mean_se")}
        row |= {name: float(f"{getattr(self, name):.5g}") for name in ("crps", "energy")}
        for kind in ("plain", "conformal", "whole"):
            bands = getattr(self, kind) or {}
            row |= {f"{kind}_{100 * level:.0f}": round(share, 4) for level, share in bands.items()}
        return row | {name: round(getattr(self, name), 4) for name in ("roughness", "outside")}

    def chance(self) -> float:
        """Return the chance that a calibrated law has as uneven functional ranks (chi-squared)."""
        from scipy.stats import chisquare

        bins = max(2, min(10, len(self.functional_ranks) // 5))
        return float(chisquare(np.histogram(self.functional_ranks, bins, (0, 1))[0]).pvalue)


@dataclass(frozen=True)
class Report:
    """Scores of a model beside those without networks, on runs that it has not seen.

    Attributes
    ----------
    emulator : Model
    scores : list of Score
    title : str
    example : FieldPosterior
        The answer to the first run with the middle number of sensors, for a picture.
    truth : Tensor
        What it should hold, at `points`.
    points : Tensor
    """

    emulator: Model
    scores: list[Score]
    title: str
    example: FieldPosterior
    truth: Tensor
    points: Tensor

    def rows(self) -> list[dict[str, Any]]:
        """Return the scores as rows of a table."""
        return [score.row() for score in self.scores]

    def __str__(self) -> str:
        return "\n".join([self.title, *table_lines(self.rows()), "", *self.remarks()])

    def remarks(self) -> list[str]:
        """Return in words what the scores say."""
        remarks = []
        for score in self.scores:
            if score.method != "uqsonet":
                continue
            where = f"{score.field}, {score.sensors} sensors"
            others = {s.method: s for s in self.scores
                      if (s.field, s.sensors) == (score.field, score.sensors)}  # fmt: skip
            free = others.get("sensor_free")
            if free is not None and score.crps > 0.98 * free.crps:
                remarks.append(f"{where}: the sensors tell almost nothing (CRPS as without them)")
            slack = 2 / math.sqrt(score.runs)
            held = score.conformal or score.plain
            for level, share in held.items():
                if abs(share - level) > slack:
                    remarks.append(f"{where}: the {level:.0%} band holds {share:.0%} of the truths")
            remarks += [f"{where}: {text}" for text in sample_remarks(score.row())]
            if score.functional_ranks and (p := score.chance()) < MIN_CHANCE:
                remarks.append(
                    f"{where}: ranks of the domain's mean are not uniform (probability {p:.1g}): "
                    "the law is shifted, too narrow or too wide"
                )
        return remarks or ["Bands hold what they promise, within the error of so many runs."]

    def save(self, path: Path | str) -> None:
        """Write one HTML page with table and pictures; nothing in it is fetched from elsewhere."""
        from uqsonet.show.pictures import report_page

        write_text(path_of(path), report_page(self))


def _in_domain(one: Field, field: FieldRuns, runs: str) -> tuple[Tensor, Tensor]:
    """Return a field's points (n, d) in the domain of the model's field, and their numbers (n,)."""
    x, domain = field.domain.points(), one.domain
    if x.shape[1] != domain.dim:
        raise DataError(f"points have {x.shape[1]} coordinates, the model's {domain.dim}")
    numbers = inside(domain.lower, domain.upper, x).nonzero()[:, 0]
    if not len(numbers):
        raise DataError(f"{runs}: no point of {one.name} lies in the model's domain")
    return x[numbers], numbers


def _require_fields(emulator: Model, runs: Runs) -> None:
    """Refuse runs that lack a field of the model, or have values that its transform does not."""
    for side, fields in (("input", emulator.inputs), ("output", emulator.outputs)):
        there = getattr(runs, f"{side}s")
        if lacking := [f.name for f in fields if f.name not in there]:
            raise DataError(
                f"{runs.name}: no {side} field {lacking[0]!r}; there are {', '.join(there)}"
            )
    for one in emulator.inputs:
        if one.transform.positive and not np.nanmin(runs.inputs[one.name].values) > 0:
            raise DataError(f"{runs.name}: {one.name} must be positive under log")


def _held_out(emulator: Model, runs: Runs, sensors: object, noise_std: object, seed: int) -> Read:
    """Return held-out runs as sensors of a model's fields read them, some runs to a layout."""
    _require_fields(emulator, runs)
    most = max(MIN_TRUTH_POINTS, min(MAX_TRUTH_POINTS, MAX_TRUTHS // len(runs)))
    fields = emulator.named_fields
    stored = [runs.inputs[one.name] for one in emulator.inputs]
    stored += [runs.outputs[one.name] for one in emulator.outputs]
    places = [_in_domain(*one, runs.name) for one in zip(fields, stored, strict=True)]
    if sensors is None:
        sensors = sensors_of_fit(emulator) or [3, 10, 30]
    plan = SensorPlan.of(sensors, fields, len(emulator.inputs), [x for x, _ in places])
    levels = _levels(emulator, noise_std)
    if runs.gaps:
        from uqsonet.fitting.gap_readings import read_gaps  # deferred: few runs have gaps

        return read_gaps(emulator, stored, places, plan, levels, seed, most)
    truths = []
    for one, (x, numbers) in zip(emulator.outputs, places[len(emulator.inputs) :], strict=True):
        some = some_points(len(x), most, numpy_generator(seed, "scores", "points"))
        values = torch.from_numpy(runs.outputs[one.name].values[:, numbers[some].numpy()]).double()
        truths.append((x[some], values))
    dim = max(x.shape[1] for x, _ in places)
    points = torch.cat([torch.nn.functional.pad(x, [0, dim - x.shape[1]]) for x, _ in places])
    field = torch.cat([torch.full((len(x),), k) for k, (x, _) in enumerate(places)])
    numbers = torch.cat([here for _, here in places])
    levels, every = levels[field], torch.arange(len(runs))
    parts = every.tensor_split(1 if plan.fixed else min(LAYOUTS, len(runs)))
    observed: dict[int, list[tuple[Tensor, Sensors]]] = {}
    for count, drawn in plan.layouts(len(parts), seed, "scores", "layouts").items():
        noise = numpy_generator(seed, "scores", "noise", count)
        error = torch.from_numpy(noise.standard_normal((len(runs), count)))
        observed[count] = []
        for rows, layout in zip(parts, drawn, strict=True):
            values = torch.empty(len(rows), count, dtype=torch.float64)
            for k, one in enumerate(fields):
                here = field[layout] == k
                columns = numbers[layout[here]].numpy()
                exact = stored[k].values[rows.numpy()[:, None], columns]
                read, level = torch.from_numpy(exact).double(), levels[layout[here]]
                if bool(level.any()):
                    noisy = one.transform.forward(read) + level * error[rows][:, here]
                    read = one.transform.inverse(noisy)
                values[:, here] = read
            sets = Sensors(
                points[layout].expand(len(rows), -1, -1), values,
                torch.ones_like(values, dtype=torch.bool),
                noise_std=levels[layout].expand(values.shape),
                field=field[layout].expand(values.shape), labels=[str(int(row)) for row in rows],
            )  # fmt: skip
            observed[count].append((rows, sets))
    return Read(observed, dict.fromkeys(observed, truths))


def _levels(emulator: Model, noise_std: object) -> Tensor:
    """Return the noise of each field's sensors: stated for all, by field, or the model's own.

    It refuses (`ObservationError`) levels that are no noise, and fields that there are not.
    """
    fields, stated = emulator.named_fields, noise_std if isinstance(noise_std, Mapping) else {}
    for name in stated:
        field_number(fields, name, "noise_std: field")
    levels = [emulator.default_noise(k) for k in range(len(fields))]
    if noise_std is not None and not stated:
        levels = [noise_std] * len(fields)
    levels = [stated.get(one.name, level) for one, level in zip(fields, levels, strict=True)]
    found = torch.stack([real_numbers(level, "noise_std") for level in levels])
    require_noise(found)
    return found


class Judged(NamedTuple):
    """A model, runs that it has not seen, and other models to compare it with, by name."""

    emulator: Model
    runs: Runs
    others: Mapping[str, Model] = MappingProxyType({})

    def methods(self) -> dict[str, Model]:
        """Return the model, cokriging in its bases, the others, and the model without sensors."""
        one, found = self.emulator, {"uqsonet": self.emulator}
        if one.linear is not None:
            found["cokriging"] = one.with_operator(Cokriging.on(one.bases, one.linear))
        return found | dict(self.others) | ({"sensor_free": one} if one.encoded else {})


def score(
    judged: Sequence[Judged], sensors: object, *, noise_std: object, seed: int,
    conformal: bool = True,
) -> tuple[list[Score], FieldPosterior, Tensor, Tensor]:  # fmt: skip
    """Return scores of a model, of baselines and of no sensors, and an example for a picture.

    Several models of the same kind, each with runs of its own, have one score. Parameters are those
    of `Emulator.validate`; without `conformal` only plain bands are counted.
    """
    emulator = judged[0].emulator
    observed = [_held_out(one.emulator, one.runs, sensors, noise_std, seed) for one in judged]
    parts = [(one.methods(), held) for one, held in zip(judged, observed, strict=True)]
    scores: list[Score] = []
    free: dict[int, Score] = {}
    for count in observed[0].sensors:
        for number, output in enumerate(emulator.outputs):
            for method in parts[0][0]:
                if method == "sensor_free" and number in free and not judged[0].runs.gaps:
                    scores.append(replace(free[number], sensors=count))
                    continue
                LOG.log(PROGRESS_LEVEL, "scoring %s with %d sensors", method, count)
                answers = []
                for methods, held in parts:
                    x, truth = held.truths[count][number]
                    for rows, sets in held.sensors[count]:
                        used = sets.each(lambda t: t[:, :0]) if method == "sensor_free" else sets
                        answer = methods[method].answer(used, len(emulator.inputs) + number)
                        answers.append((answer, truth[rows], x))
                bands = conformal and bool(parts[0][0][method].calibration)
                with warnings.catch_warnings():  # of many answers some are improbable
                    warnings.simplefilter("ignore", ObservationWarning)
                    scores.append(_scored((method, output.name, count), answers, bands))
                if method == "sensor_free":
                    free[number] = scores[-1]
    held, counts = observed[0], list(observed[0].sensors)
    middle = counts[len(counts) // 2]
    (x, truth), (_, sets) = held.truths[middle][0], held.sensors[middle][0]
    example = emulator.answer(replace(sets[:1], single=True), len(emulator.inputs))
    return scores, example, truth[0], x


def _scored(
    what: tuple[str, str, int], answers: Sequence[tuple[FieldPosterior, Tensor, Tensor]],
    conformal: bool,
) -> Score:  # fmt: skip
    """Return the scores of answers with their truths (B, M) and points (M, d), over all runs.

    `what` is the method, the field and the number of sensors.
    """
    found: defaultdict[str, list[Any]] = defaultdict(list)
    every = torch.cat([truths for _, truths, _ in answers])
    low, high = every.nan_to_num(torch.inf).amin(0), every.nan_to_num(-torch.inf).amax(0)
    beyond, near = SLACK * (high - low), _nearest(answers[0][2])
    ranged = (~every.isnan()).sum(0) >= RANGE_RUNS
    for posterior, truths, x in answers:
        bands, separate = [], posterior.law.alone
        for row, (mean, samples) in enumerate(_drawn(posterior, x)):
            ordered = None if samples is None else ascending(samples)
            if ordered is not None and separate and conformal:
                bands.append(torch.stack([quantile(ordered, end) for end in ENDS]))
            known = (~truths[row].isnan()).nonzero()[:, 0]  # all, but of runs with gaps
            truth = truths[row, known]
            if not len(known):
                continue
            # Dry runs have no relative error.
            error = float(relative_error(mean[known], truth)) if bool(truth.any()) else math.nan
            found["error"].append(error)
            if samples is None or ordered is None:
                continue
            steps = truths[row] - truths[row, near]
            both = (~steps.isnan()).nonzero()[:, 0]
            ours = samples[:, both] - samples[:, near[both]]
            found["steps"].append([float(f.square().mean()) for f in (ours, steps[both])])
            ordered, samples = ordered[known], samples[:, known]
            equal = torch.full((len(known),), 1 / len(known), dtype=torch.float64)
            found["crps"].append(crps(ordered, truth))
            found["energy"].append(energy_score(samples[:ENERGY_SAMPLES], truth, equal))
            found["plain"].append(coverage(ordered, truth, COVERAGE_LEVELS))
            found["ranks"].append(rank_shares(ordered, truth, RANK_BINS))
            found["functional"].append(float((samples.mean(1) < truth.mean()).double().mean()))
            left = (samples < (low - beyond)[known]) | (samples > (high + beyond)[known])
            found["outside"].append(float(left[:, ranged[known]].double().mean()))
        if conformal:
            plain = torch.stack(bands) if separate else posterior.quantile(ENDS, x, SCORE_SAMPLES)
            for kind in ("conformal", "whole"):
                found[kind] += _inside(posterior, plain, truths, kind == "whole").tolist()
    with warnings.catch_warnings():  # where none of the runs has an open value
        warnings.filterwarnings("ignore", "Mean of empty slice")
        means = {name: np.nanmean(rows, 0).tolist() for name, rows in found.items()}
    bands = {kind: dict(zip(COVERAGE_LEVELS, means[kind], strict=True))
             for kind in ("plain", "conformal", "whole") if kind in means}  # fmt: skip
    errors, (ours, true) = np.array(found["error"]), means.get("steps", (math.nan, math.nan))
    size, spread = len(errors), float(np.nanstd(errors, ddof=1)) if len(errors) > 1 else 0.0
    return Score(
        *what, size, float(np.nanmean(errors)), spread / math.sqrt(size),
        crps=means.get("crps", math.nan), energy=means.get("energy", math.nan),
        plain=bands.get("plain", {}), conformal=bands.get("conformal"), whole=bands.get("whole"),
        ranks=means.get("ranks", []), functional_ranks=found["functional"],
        roughness=math.sqrt(ours / true) if true > 0 else math.nan,
        outside=means.get("outside", math.nan),
    )  # fmt: skip


def _nearest(x: Tensor) -> Tensor:
    """Return the number (M,) of the point next to each of points (M, d), their box being a cube."""
    size = (x.amax(0) - x.amin(0)).clamp_min(1e-300)
    distance = torch.cdist(x / size, x / size)
    distance.fill_diagonal_(torch.inf)
    return distance.argmin(1)


def _drawn(posterior: FieldPosterior, x: Tensor) -> Iterator[tuple[Tensor, Any]]:
    """Yield the mean (M,) of each set, and functions (S, M) or None without uncertainty.

    Laws that are sampled set by set take long: their functions are those behind their bands. The
    mean of what is known by functions alone is that of these.
    """
    sets, separate = posterior.sensors, posterior.law.alone
    drawn = separate or posterior.law.drawn
    some = 1 if separate else max(1, MAX_DRAWN // (SCORE_SAMPLES * len(x)))
    alike = not bool(sets.mask.any())  # without sensors all have one law
    for rows in torch.arange(len(sets)).split(len(sets) if alike else some):
        part = posterior.given(sets[rows[:1] if alike else rows])
        try:
            samples = part.sample(SCORE_SAMPLES, x, rng=0 if separate else 1)
        except NoUncertaintyError:
            samples = None
        means = samples.mean(1) if drawn and samples is not None else part.mean(x)
        for place in range(len(rows)):
            row = 0 if alike else place
            yield means[row], None if samples is None else samples[row]


def _inside(posterior: FieldPosterior, plain: Tensor, truth: Tensor, whole: bool) -> Tensor:
    """Return the shares (B, levels) of truths (B, M) inside conformal bands.

    Plain bands are (B, 1 + 2 levels, M), as `ENDS` has them. Points where a band has hardly any
    width (`MIN_SPAN`), or nothing was read, do not count. The share is not a number where there are
    too few calibration runs for the level.
    """
    shares = []
    for k, level in enumerate(COVERAGE_LEVELS):
        try:
            band = posterior.widened(plain[:, [2 * k + 1, 0, 2 * k + 2]], level, whole)
        except ObservationError:
            shares.append(torch.full((len(truth),), torch.nan))
            continue
        lower, upper = band[:, 0], band[:, 2]
        widest = (upper - lower).amax(1, keepdim=True)
        slack = 1e-9 * widest
        inside = (truth >= lower - slack) & (truth <= upper + slack)
        free = (upper - lower > MIN_SPAN * widest) & ~truth.isnan()
        if whole:
            all_inside = (inside | ~free).all(1).double()
            shares.append(all_inside.where((~truth.isnan()).any(1), torch.nan))
        else:
            shares.append(inside.double().where(free, torch.nan).nanmean(1))
    return torch.stack(shares, 1)


def validate(
    emulator: Model, held_out: Runs, sensors: object, noise_std: object, seed: int
) -> Report:  # fmt: skip
    """Score a model on held-out runs (`Emulator.validate`)."""
    with never_silent("validate"):
        if not (hasattr(held_out, "inputs") and len(held_out)):
            raise DataError(f"held_out must be uqsonet.Runs, at least one; found {held_out!r:.60}")
        judged = [Judged(emulator, held_out)]
        scores, example, truth, x = score(judged, sensors, noise_std=noise_std, seed=seed)
    title = f"{emulator!r} on {len(held_out)} runs of {held_out.name}"
    return Report(emulator, scores, title, example, truth, x)

"""Scores on runs that a model has not seen: is it any good, and do its bands hold the truths."""

from __future__ import annotations

import logging
import math
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from uqsonet.emulator.answer import FieldPosterior
from uqsonet.emulator.field_law import BAND_SAMPLES
from uqsonet.errors import DataError, DataWarning, NoUncertaintyError, ObservationError
from uqsonet.fields.grid import inside
from uqsonet.fields.numbers import require_noise
from uqsonet.files import write_text
from uqsonet.fitting.card import Model, table_lines
from uqsonet.fitting.held_out import LAYOUTS, HeldOut, SensorPlan, some_points
from uqsonet.gauss.metrics import (
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
from uqsonet.operator.regression import Regression
from uqsonet.runs.functions import Functions
from uqsonet.runs.runs import Runs, rows_of
from uqsonet.runs.soundness import sound_split
from uqsonet.sensors.sensors import Sensors
from uqsonet.show.terminal import PROGRESS_LEVEL, never_silent

if TYPE_CHECKING:
    from uqsonet.fields.field import Field
    from uqsonet.runs.runs import FieldRuns

LOG = logging.getLogger("uqsonet")

COVERAGE_LEVELS = (0.5, 0.8, 0.9)  # levels of the bands whose coverage is counted

ENDS = (0.5, *((1 + side * level) / 2 for level in COVERAGE_LEVELS for side in (-1, 1)))
"""Levels of the median and of the ends of these bands."""

SCORE_SAMPLES = BAND_SAMPLES  # functions behind the scores of one answer, and behind its bands
MAX_DRAWN = 1 << 22  # values of functions that are drawn at a time
ENERGY_SAMPLES = 250  # functions behind the energy score: its cost grows with their square

MIN_TRUTH_POINTS, MAX_TRUTH_POINTS, MAX_TRUTHS = 200, 2000, 100_000
"""Numbers of output points that scores are averaged over, and of truths of all runs together: of
many runs each says less, as their points go up and down together."""


RANK_BINS = 10  # number of bins of the rank histogram


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
    tests : dict of str to float
        Chances of ranks, TARP and C2ST under a calibrated law (`uqsonet.fitting.sample_tests`), and
        how often its classifier is right; of a report, ours alone.
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
    tests: dict[str, float]

    def row(self) -> dict[str, Any]:
        """Return the score as a flat row of a table; errors in percent, coverage as shares."""
        kept = "method", "field", "sensors", "runs"
        row: dict[str, Any] = {name: getattr(self, name) for name in kept}
        row |= {name: round(100 * getattr(self, name), 3) for name in ("err_mean", "err_mean_se")}
        row |= {name: float(f"{getattr(self, name):.5g}") for name in ("crps", "energy")}
        for kind in ("plain", "conformal", "whole"):
            bands = getattr(self, kind) or {}
            row |= {f"{kind}_{100 * level:.0f}": round(share, 4) for level, share in bands.items()}
        return row | {name: float(f"{value:.2g}") for name, value in self.tests.items()}


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
            for test, text in (
                ("ranks_p", "ranks of the domain's mean are not uniform"),
                ("tarp_p", "distances from other truths are not uniform (TARP)"),
                ("c2st_p", "a classifier tells truths from samples (C2ST)"),
            ):
                if (p := score.tests.get(test, 1.0)) < 0.01:
                    wrong = "the law is shifted, too narrow or too wide"
                    remarks.append(f"{where}: {text} (probability {p:.1g}): {wrong}")
        return remarks or ["Bands hold what they promise, within the error of so many runs."]

    def save(self, path: Path | str) -> None:
        """Write one HTML page with table and pictures; nothing in it is fetched from elsewhere."""
        from uqsonet.show.pictures import report_page

        write_text(Path(path), report_page(self))


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
        if one.transform.positive and not runs.inputs[one.name].values.min() > 0:
            raise DataError(f"{runs.name}: {one.name} must be positive under log")


def _held_out(emulator: Model, runs: Runs, sensors: object, noise_std: float, seed: int) -> HeldOut:
    """Return held-out runs as sensors of a model's inputs read them, some runs to a layout."""
    _require_fields(emulator, runs)
    truths = []
    most = max(MIN_TRUTH_POINTS, min(MAX_TRUTH_POINTS, MAX_TRUTHS // len(runs)))
    for one in emulator.outputs:
        field = runs.outputs[one.name]
        x, numbers = _in_domain(one, field, runs.name)
        some = some_points(len(x), most, numpy_generator(seed, "scores", "points"))
        values = torch.from_numpy(field.values[:, numbers[some].numpy()]).double()
        truths.append((x[some], values))
    places = [_in_domain(one, runs.inputs[one.name], runs.name) for one in emulator.inputs]
    dim = max(x.shape[1] for x, _ in places)
    points = torch.cat([torch.nn.functional.pad(x, [0, dim - x.shape[1]]) for x, _ in places])
    field = torch.cat([torch.full((len(x),), k) for k, (x, _) in enumerate(places)])
    numbers = torch.cat([here for _, here in places])
    if sensors is None:
        sensors = emulator.card.get("recipe", {}).get("sensors") or [3, 10, 30]
    plan, every = SensorPlan.of(sensors, emulator.inputs, points), torch.arange(len(runs))
    parts = every.tensor_split(1 if plan.fixed is not None else min(LAYOUTS, len(runs)))
    layouts = plan.layouts(len(parts), len(field), seed, "scores", "layouts")
    observed: dict[int, list[tuple[Tensor, Sensors]]] = {}
    for count, drawn in layouts.items():
        noise = numpy_generator(seed, "scores", "noise", count)
        error = noise_std * torch.from_numpy(noise.standard_normal((len(runs), count)))
        observed[count] = []
        for rows, layout in zip(parts, drawn, strict=True):
            values = torch.empty(len(rows), count, dtype=torch.float64)
            for k, one in enumerate(emulator.inputs):
                here = field[layout] == k
                columns = numbers[layout[here]].numpy()
                exact = runs.inputs[one.name].values[rows.numpy()[:, None], columns]
                read = torch.from_numpy(exact).double()
                if noise_std:
                    noisy = one.transform.forward(read) + error[rows][:, here]
                    read = one.transform.inverse(noisy)
                values[:, here] = read
            sets = Sensors(
                points[layout].expand(len(rows), -1, -1), values,
                torch.ones_like(values, dtype=torch.bool),
                noise_std=torch.full_like(values, noise_std),
                field=field[layout].expand(values.shape), labels=[str(int(row)) for row in rows],
            )  # fmt: skip
            observed[count].append((rows, sets))
    return HeldOut(observed, truths)


def score(
    emulator: Model, held_out: Runs, sensors: object, *, noise_std: float | None, seed: int,
    conformal: bool = True, regression: Model | None = None,
) -> tuple[list[Score], FieldPosterior, Tensor, Tensor]:  # fmt: skip
    """Return scores of a model, of baselines and of no sensors, and an example for a picture.

    Parameters are those of `Emulator.validate`; without `conformal` only plain bands are counted.
    """
    if not (hasattr(held_out, "inputs") and len(held_out)):
        raise DataError(f"held_out must be uqsonet.Runs, at least one; found {held_out!r:.60}")
    noise = float(emulator.noise_std or 0.0) if noise_std is None else float(noise_std)
    require_noise(torch.tensor(noise, dtype=torch.float64))
    observed = _held_out(emulator, held_out, sensors, noise, seed)
    order = numpy_generator(seed, "scores", "references").permutation(len(held_out))
    others = torch.from_numpy(np.roll(order, 1)[order.argsort()])  # of each run another one
    methods: list[tuple[str, Model]] = [("uqsonet", emulator)]
    if emulator.unexplained is not None:
        bases: Any = emulator.bases
        cokriging = Cokriging.on(bases, emulator.unexplained)
        methods.append(("cokriging", emulator.with_operator(cokriging)))
    if regression is not None:
        methods.append(("regression", regression))
    if emulator.encoded:
        methods.append(("sensor_free", emulator))
    scores: list[Score] = []
    free: dict[int, Score] = {}
    for count, parts in observed.sensors.items():
        for number, (x, truth) in enumerate(observed.truths):
            for method, model in methods:
                if method == "sensor_free" and number in free:  # the same for any count
                    scores.append(replace(free[number], sensors=count))
                    continue
                LOG.log(PROGRESS_LEVEL, "scoring %s with %d sensors", method, count)
                answers = []
                for rows, sets in parts:
                    used = sets.each(lambda t: t[:, :0]) if method == "sensor_free" else sets
                    posterior = model.answer(used, len(model.inputs) + number)
                    other = truth[others[rows]] if conformal and method == "uqsonet" else None
                    answers.append((posterior, truth[rows], other))
                bands = conformal and model.calibration is not None
                name = emulator.outputs[number].name
                scores.append(_scored((method, name, count), answers, x, bands))
                if method == "sensor_free":
                    free[number] = scores[-1]
    counts, (x, truth) = list(observed.sensors), observed.truths[0]
    _, sets = observed.sensors[counts[len(counts) // 2]][0]
    example = emulator.answer(replace(sets[:1], single=True), len(emulator.inputs))
    return scores, example, truth[0], x


def _on_pairs(emulator: Model, runs: Runs) -> Model:
    """Return the same fields answered by regression on the runs that a model was fitted to.

    Those that calibrate its bands are left out, as `fit` did.
    """
    data, recipe = emulator.card.get("data", {}), emulator.card.get("recipe", {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # `fit` has said it
        runs, split = sound_split(runs, recipe.get("seed", 0))
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
    kept = np.sort(np.concatenate([split.training, split.validation]))
    sides = (runs.inputs, emulator.inputs), (runs.outputs, emulator.outputs)
    rows = (rows_of(*side).take(kept) for side in sides)
    return emulator.with_operator(Regression(Functions(emulator.fields, "training", *rows), 0.0))


def _scored(
    what: tuple[str, str, int], answers: Sequence[tuple[FieldPosterior, Tensor, Tensor | None]],
    x: Tensor,
    conformal: bool,
) -> Score:  # fmt: skip
    """Return the scores of answers with their truths (B, M) at points x (M, d), over all runs.

    `what` is the method, the field and the number of sensors.
    """
    found: defaultdict[str, list[Any]] = defaultdict(list)
    equal = torch.full((len(x),), 1 / len(x), dtype=torch.float64)
    for posterior, truths, others in answers:
        bands, separate = [], posterior.law.separate
        for row, (mean, samples) in enumerate(_drawn(posterior, x)):
            truth = truths[row]
            # Dry runs have no relative error.
            error = float(relative_error(mean, truth)) if bool(truth.any()) else math.nan
            found["error"].append(error)
            if samples is None:
                continue
            ordered = ascending(samples)
            if separate and conformal:
                bands.append(torch.stack([quantile(ordered, end) for end in ENDS]))
            found["crps"].append(crps(ordered, truth))
            found["energy"].append(energy_score(samples[:ENERGY_SAMPLES], truth, equal))
            found["plain"].append(coverage(ordered, truth, COVERAGE_LEVELS))
            found["ranks"].append(rank_shares(ordered, truth, RANK_BINS))
            found["functional"].append(float((samples.mean(1) < truth.mean()).double().mean()))
            if others is not None:
                from uqsonet.fitting.sample_tests import residuals, tarp

                drawn, at, other = samples.numpy(), truth.numpy(), others[row].numpy()
                found["tarp"].append(tarp(drawn, at, other))
                found["residuals"].append(residuals(drawn, at, len(found["residuals"])))
        if conformal:
            plain = torch.stack(bands) if separate else posterior.quantile(ENDS, x, SCORE_SAMPLES)
            for kind in ("conformal", "whole"):
                found[kind] += _inside(posterior, plain, truths, kind == "whole").tolist()
    tests = {}
    if found["tarp"]:
        from uqsonet.fitting.sample_tests import chances

        tests = chances(found)
    tested = "tarp", "residuals"
    means = {name: np.mean(rows, 0).tolist() for name, rows in found.items() if name not in tested}
    bands = {kind: dict(zip(COVERAGE_LEVELS, means[kind], strict=True))
             for kind in ("plain", "conformal", "whole") if kind in means}  # fmt: skip
    errors = np.array(found["error"])
    size, spread = len(errors), float(np.nanstd(errors, ddof=1)) if len(errors) > 1 else 0.0
    return Score(
        *what, size, float(np.nanmean(errors)), spread / math.sqrt(size),
        crps=means.get("crps", math.nan), energy=means.get("energy", math.nan),
        plain=bands.get("plain", {}), conformal=bands.get("conformal"), whole=bands.get("whole"),
        ranks=means.get("ranks", []), functional_ranks=found["functional"], tests=tests,
    )  # fmt: skip


def _drawn(posterior: FieldPosterior, x: Tensor) -> Iterator[tuple[Tensor, Any]]:
    """Yield the mean (M,) of each set, and functions (S, M) or None without uncertainty.

    Laws that are sampled set by set take long: their functions are those behind their bands, and
    their mean is that of these functions.
    """
    sets, separate = posterior.sensors, posterior.law.separate
    some = 1 if separate else max(1, MAX_DRAWN // (SCORE_SAMPLES * len(x)))
    alike = not bool(sets.mask.any())  # without sensors all have one law
    for rows in torch.arange(len(sets)).split(len(sets) if alike else some):
        part = posterior.given(sets[rows[:1] if alike else rows])
        try:
            samples = part.sample(SCORE_SAMPLES, x, seed=0 if separate else 1)
        except NoUncertaintyError:
            samples = None
        means = samples.mean(1) if separate and samples is not None else part.mean(x)
        for place in range(len(rows)):
            row = 0 if alike else place
            yield means[row], None if samples is None else samples[row]


def _inside(posterior: FieldPosterior, plain: Tensor, truth: Tensor, whole: bool) -> Tensor:
    """Return the shares (B, levels) of truths (B, M) inside conformal bands.

    Plain bands are (B, 1 + 2 levels, M), as `ENDS` has them. Points where a band has no width (a
    boundary condition) do not count. The share is not a number where there are too few calibration
    runs for the level.
    """
    shares = []
    for k, level in enumerate(COVERAGE_LEVELS):
        try:
            band = posterior.widened(plain[:, [2 * k + 1, 0, 2 * k + 2]], level, whole)
        except ObservationError:
            shares.append(torch.full((len(truth),), torch.nan))
            continue
        lower, upper = band[:, 0], band[:, 2]
        slack = 1e-9 * (upper - lower).amax(1, keepdim=True)
        free = upper - lower > slack
        inside = (truth >= lower - slack) & (truth <= upper + slack) | ~free
        counted = inside.double().where(free, torch.nan)
        shares.append(inside.all(1).double() if whole else counted.nanmean(1))
    return torch.stack(shares, 1)


def validate(
    emulator: Model, held_out: Runs, sensors: object, noise_std: float | None, seed: int,
    pairs: Runs | None,
) -> Report:  # fmt: skip
    """Score a model on held-out runs (`Emulator.validate`)."""
    with never_silent("validate"):
        regression = None if pairs is None else _on_pairs(emulator, pairs)
        scores, example, truth, x = score(
            emulator, held_out, sensors, noise_std=noise_std, seed=seed, regression=regression
        )
    title = f"{emulator!r} on {len(held_out)} runs of {held_out.name}"
    return Report(emulator, scores, title, example, truth, x)

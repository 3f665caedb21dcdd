"""`fit`: from a user's runs to a model, its size chosen by scores on runs that it has not seen.

1. The runs are split: some calibrate bands and are used for nothing else, some validate. Of few
   runs none is kept apart: they validate, and calibrate, in turn (`uqsonet.runs.runs.split_runs`).
2. Linear models of rising size, with each transform in question, are scored on the validation runs
   at random sensors (CRPS). The largest that is as good as the best is taken
   (`uqsonet.fitting.candidates`).
3. An operator with a ridge, and one with a kernel (`uqsonet.operator.kernel_branch`), are taken in
   its place only if their score is better by more than chance.
4. What the operator leaves unexplained of the validation runs becomes part of every band.
5. The law of the inputs is chosen the same way (`uqsonet.fitting.choose_law`).
6. The chosen model is fitted again to training and validation runs together.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uqsonet.emulator.calibration import CalibrationRuns, calibration_runs
from uqsonet.emulator.checks import drowned
from uqsonet.emulator.emulator import Emulator
from uqsonet.errors import ConfigError, DataError, DataWarning, nearest, renamed
from uqsonet.fitting.candidates import (
    SCORED_RUNS,
    Candidate,
    EncodedRuns,
    choose_linear,
    linear_model,
    truncated,
)
from uqsonet.fitting.card import limits
from uqsonet.fitting.choose_answer import SAMPLED_RUNS, Choice, Parts, choose, take_nearest
from uqsonet.fitting.choose_law import refit, require_law
from uqsonet.fitting.comparison import first_not_worse, preferable
from uqsonet.fitting.validate import Judged, score
from uqsonet.gauss.seeds import RNG, root_of
from uqsonet.operator.baselines import plain
from uqsonet.operator.closed_form import scale_modes, targets, widen_band, with_left_over
from uqsonet.operator.config import KarhunenLoeveNetwork
from uqsonet.operator.kernel_branch import LENGTHS, LINEAR, best_linear, use_kernel
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.runs.functions import Functions
from uqsonet.runs.runs import Runs, memory_text
from uqsonet.runs.soundness import sound_split, without_rounding
from uqsonet.show.terminal import never_silent

LOG = logging.getLogger("uqsonet")

MIN_RUNS = 8  # fewer runs are too few to learn an operator from
MIN_LEFT = 1e-3  # kernels are tried if a linear operator leaves this share of outputs or more


@renamed(seed="rng")
def fit(
    runs: Runs,
    minutes: float | None = None,
    *,
    sensors: object = None,
    noise_std: object = 0.0,
    rng: RNG = 0,
    bar: bool = True,
    law: str = "auto",
    drift: bool = False,
) -> Emulator:
    """Learn the operator of some runs, with bands that contain what they promise.

    Parameters
    ----------
    runs : Runs
        At least 8. Of fewer than 200 none is kept apart: each validates and calibrates in turn
        what was fitted to others, and the model is fitted to all (cross-conformal bands: Vovk,
        Ann. Math. Artif. Intell. 74, 2015). They may have gaps (`uqsonet.fitting.gaps`).
    minutes : float, optional
        Without effect, as nothing is trained: it gives a warning, and goes in the next version.
    sensors : int, sequence of int, array (m, d), or mapping of field to one of these, optional
        How many sensors to expect, or where they will stand: sizes, transforms and laws are chosen
        for them. ``{"head": 8}`` or ``{"head": wells}`` says that they read an output, or which
        input; several fields may be read together. By default 3, 10 and 30 of the inputs at random
        points. The model may be asked about any others.
    noise_std : float, or mapping of field to float
        Noise of these sensors, and the default of `Emulator.condition`; in the transformed field,
        so in the field's own units, or a relative error under ``log``. One number is for the
        fields that `sensors` names, else for the inputs.
    rng : int, SeedSequence or Generator
        Of the split and the layouts.
    bar : bool
        Show on a terminal what is being done.
    law : str
        Law of the inputs: `gaussian`, `mixture`, `latent`, `bounded`, or `auto`: the simplest whose
        score on the validation runs is no worse than the best.
    drift : bool
        New fields may have another level and another variance than the runs, as in another decade
        or on another machine: readings find them (`uqsonet.fitting.drift`). The law is Gaussian but
        for these, and the model itself answers. All runs are learned from and none calibrates, as
        new ones are not like them.

    Returns
    -------
    Emulator
        Its `card` says what was chosen, how it scores on the calibration runs, and its limits.

    Raises
    ------
    DataError
        If there are too few runs, or a field cannot be used.
    ConfigError
        If an argument is out of range.
    """
    _require(runs, law, drift, minutes)
    noise, seed = _noise(runs, sensors, noise_std), root_of(rng)
    with never_silent("fit", bar):
        LOG.info("%s: %s", runs.name, memory_text(runs))
        if runs.gaps:
            from uqsonet.fitting.gaps import fit_gaps  # deferred: few runs have gaps

            return fit_gaps(runs, sensors, noise, seed)
        runs, splits = sound_split(runs, seed)
        runs = without_rounding(runs)
        if drift:
            splits = [one.uncalibrated() for one in splits]
        data, best, largest, tried = choose_linear(runs, splits, sensors, noise, seed)
        for text in drowned(data.inputs + data.outputs, noise):
            warnings.warn(text, DataWarning, stacklevel=3)
        best = _choose_operator(data, best, largest, tried)
        LOG.info("chosen: %s", _branch(best))
        parts = list(zip(data.folds(), best.models, strict=True))
        choice = Choice([], [], 0, {}) if drift else choose(parts, law)
        every = data.part("training", "validation")
        final = linear_model(every, **_size_of_all(best, parts, every))
        scale_modes(final.bases, best.model.bases.mode_std)
        if best.lengths:
            use_kernel(final, every, best.lengths)
        if drift:
            from uqsonet.fitting.drift import with_levels  # deferred: few fits need mixtures

            final = with_levels(final, data.inputs, data.outputs)
        left = widen_band(final, [(one.part("validation"), model) for one, model in parts])
        # Laws count what modes leave out of runs that were held out as noise of readings.
        if drift:
            from uqsonet.fitting.drift import law_of_levels

            final.use_law(law_of_levels(final.bases, data.inputs))
        else:
            refit(final, best.model.law, every, seed, data.noise_of_inputs())
        recipe = _recipe(data, best, final, choice) | {"seed": seed, "tried": tried}
        recipe |= {"drift": True} if drift else {}
        return _emulator(runs, data, parts, final, every, recipe, choice, left)


def _recipe(
    data: EncodedRuns, best: Candidate, final: KarhunenLoeveModel, choice: Choice
) -> dict[str, Any]:
    """Return what was chosen, for the card."""
    found = {
        "branch": _branch(best),
        **_size(final.config),
        "law": final.config.law,
        "transforms": {f.name: f.transform.name for f in data.inputs + data.outputs},
        "sensors": data.plan.stated,
        "laws": choice.laws,
        "answers": choice.rows,
    }
    return found | ({"nearest": choice.nearest} if choice.nearest else {})


def _require(runs: object, law: str, drift: bool, minutes: float | None) -> None:
    """Refuse what is not enough runs, and laws that there are not, or not with a drift or gaps.

    It warns of `minutes`, which are without effect.
    """
    if minutes is not None:
        text = "minutes has no effect: the operator is found in closed form, without training"
        warnings.warn(text, FutureWarning, stacklevel=4)
    require_law(law)
    if drift and law not in ("auto", "gaussian"):
        raise ConfigError(f"drift=True is for the law 'gaussian', found law={law!r}")
    if not isinstance(runs, Runs):
        raise DataError(f"runs must be uqsonet.Runs, found {type(runs).__name__}")
    if len(runs) < MIN_RUNS:
        raise DataError(
            f"{runs.name}: {len(runs)} runs; at least {MIN_RUNS} are needed to learn an operator, "
            "and to choose its size by those that it has not seen. Make more runs, or split them "
            "into regions that are alike"
        )
    if runs.gaps and (drift or law not in ("auto", "gaussian")):
        asked = "drift=True" if drift else f"law={law!r}"
        raise ConfigError(
            f"{runs.name}: runs with gaps have the law 'gaussian', without drift; found {asked}. "
            "missing='fill' or 'drop' makes runs complete"
        )


def _noise(runs: Runs, sensors: object, noise_std: Any) -> dict[str, float]:
    read = sensors if isinstance(sensors, Mapping) else runs.inputs
    return noise_of([*runs.inputs, *runs.outputs], read, noise_std)


def noise_of(there: Sequence[str], read: Iterable[object], noise_std: Any) -> dict[str, float]:
    """Return the noise of sensors by field; refuse what is not finite, or negative.

    One number is meant for those that are `read` of the fields that are `there`.
    """
    if not isinstance(noise_std, Mapping):
        noise_std = dict.fromkeys(map(str, read), noise_std)
    for name, level in noise_std.items():
        if name not in there:
            known = f"{', '.join(there)}{nearest(str(name), there)}"
            raise ConfigError(f"noise_std: field {name!r} is unknown; there are {known}")
        if not (isinstance(level, int | float | np.number) and 0 <= level < math.inf):
            raise ConfigError(f"noise_std must be finite and not negative, found {level!r}")
    return dict(noise_std)


@torch.no_grad()
def _choose_operator(
    data: EncodedRuns, best: Candidate, largest: Candidate, tried: list[dict[str, Any]]
) -> Candidate:
    """Return the linear model of least squares, or one with a ridge or a kernel that is better.

    What counts is the error of outputs of validation runs, given their whole inputs: it tells
    operators apart where sensors leave much open. Scores at sensors must be as good.
    """
    splits = data.folds()
    training = [one.part("training") for one in splits]
    pairs = [one.part("validation") for one in splits]
    errors, candidates = [_errors(best, pairs)], [best]
    if float(errors[0].mean()) < MIN_LEFT:
        LOG.info("the operator is linear")
        return best
    # Sensors of outputs are answered by samples if there is a kernel: minutes for all runs.
    plan = data.plan_of_inputs()
    held = list(zip(pairs, (one.held_out(plan) for one in splits), strict=True))
    scores = Candidate.of(best.models, held).scores if data.of_outputs else best.scores
    sizes = [*dict.fromkeys(one.model.config.input_modes for one in (largest, best))]
    for lengths, count in ((LINEAR, sizes[0]), *((LENGTHS, size) for size in sizes)):
        models = [truncated(one, count) for one in largest.models]
        for model, functions in zip(models, training, strict=True):
            use_kernel(model, functions, lengths)
        one = Candidate.of(models, held, lengths)
        left, name = _errors(one, pairs), _branch(one)
        row = {"error": round(float(left.mean()), 6), "crps": round(one.score, 6)}
        tried.append({"branch": name, **_size(models[0].config)} | row)
        LOG.info("%s, %d input modes: error of outputs %.4g", name, count, row["error"])
        if not preferable(scores.mean(0)[None], one.scores.mean(0)[None]):
            errors.append(left)
            candidates.append(one)
    return candidates[first_not_worse([one[None] for one in errors])[0]]


def _errors(one: Candidate, held: Sequence[Functions]) -> Tensor:
    """Return the error (V,) of each validation run's output, over the size of all of them."""
    found, size = [], 0.0
    for model, pairs in zip(one.models, held, strict=True):
        known = targets(model.bases, pairs)
        left = model.answers_to(pairs, known["a"]).double() - known["c"]
        found.append(left.norm(dim=1))
        size += float(known["c"].double().square().sum())
    return torch.cat(found) / (size / len(torch.cat(found))) ** 0.5


def _branch(candidate: Candidate) -> str:
    """Return what the operator is, in words."""
    if candidate.model.config.kernel:
        return "linear and kernel"
    return "linear, with a ridge" if candidate.lengths else "linear"


def _size(network: KarhunenLoeveNetwork) -> dict[str, int]:
    """Return numbers of modes, as the card has them."""
    return {"input_modes": network.input_modes, "output_modes": network.output_modes}


def _size_of_all(best: Candidate, parts: Parts, every: Functions) -> dict[str, int]:
    """Return numbers of modes for all pairs: as many as pairs allow where those of splits were."""
    found, fewest = _size(best.model.config), min(len(one.split.training) for one, _ in parts)
    points = {"input_modes": every.kappa_rows.shape[1], "output_modes": every.u_rows.shape[1]}
    return {
        side: min(every.size - 1, points[side]) if count == fewest - 1 else count
        for side, count in found.items()
    }


def _emulator(
    runs: Runs, data: EncodedRuns, parts: Parts, final: KarhunenLoeveModel, every: Functions,
    recipe: dict[str, Any], choice: Choice, remainder: tuple[Tensor, Tensor],
) -> Emulator:  # fmt: skip
    """Return the final model with its band, baselines, calibration runs and card.

    Calibration runs are kept apart, or those of each split calibrate what was fitted to its others.
    """
    if choice.nearest:
        held = data.part("validation")
        take_nearest(final, held, range(held.size), choice.nearest, parts[0][1])
    emulator, regression = _answering(data, final, every, choice, remainder)
    calibration, judged = [], []
    held_out = [(one.part("validation"), model) for one, model in parts]
    in_turn = len(parts) > 1
    most = SAMPLED_RUNS if data.of_outputs and final.network is not None else SCORED_RUNS
    for one, model in parts if len(data.split.calibration) else []:
        asked = emulator, regression
        if in_turn:
            left = widen_band(model, held_out)
            asked = _answering(data, model, one.part("training"), choice, left)
        kept = one.split.calibration
        rows = data.kappa.take(kept), data.u.take(kept)
        calibration.append(calibration_runs(*rows, data.seed, asked[0] if in_turn else None))
        judged.append(Judged(asked[0], runs[kept[:most]], {"regression": asked[1]}))
    sizes = {
        "training": every.size if in_turn else len(data.split.training),
        "validation": sum(len(one.split.validation) for one, _ in parts),
        "calibration": sum(map(len, calibration)),
    }
    card: dict[str, Any] = {"title": runs.name, "data": {"runs": len(runs), **sizes}}
    card["recipe"] = recipe
    if judged:
        LOG.info("scores of the model, beside others")
        sensors = data.plan.stated
        scores, *_ = score(judged, sensors, noise_std=None, seed=data.seed, conformal=False)
        card["scores"] = [one.row() for one in scores]
    emulator = replace(emulator, calibration=CalibrationRuns(tuple(calibration)), card=card)
    card["limits"] = limits(emulator, runs, card)
    return emulator


def _answering(
    data: EncodedRuns, model: KarhunenLoeveModel, fitted: Functions, choice: Choice,
    remainder: tuple[Tensor, Tensor],
) -> tuple[Emulator, Emulator]:  # fmt: skip
    """Return a model with what was chosen to answer in its place, and regression on its pairs."""
    pairs = targets(model.bases, fitted)
    linear = with_left_over(best_linear(model.bases, fitted), pairs)
    given: dict[str, Any] = {
        f"given_{side}": plain(name, model, linear, pairs)
        for side, name in choice.taken.items()
        if name != "uqsonet"
    }
    found = Emulator(
        model, data.inputs, data.outputs, noise_std=data.noise_std, remainder=remainder,
        linear=linear, **given,
    )  # fmt: skip
    return found, found.with_operator(plain("regression", model, linear, pairs))

"""`fit`: from a user's runs to a model, its size chosen by scores on runs that it has not seen.

1. The runs are split: some calibrate bands and are used for nothing else, some validate.
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
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uqsonet.emulator.calibration import calibration_runs
from uqsonet.emulator.emulator import Emulator
from uqsonet.errors import ConfigError, DataError
from uqsonet.fitting.candidates import (
    SCORED_RUNS,
    Candidate,
    EncodedRuns,
    choose_linear,
    linear_model,
    truncated,
)
from uqsonet.fitting.card import limits
from uqsonet.fitting.choose_answer import Choice, choose, take_nearest
from uqsonet.fitting.choose_law import refit, require_law
from uqsonet.fitting.comparison import first_not_worse, preferable
from uqsonet.fitting.validate import score
from uqsonet.operator.baselines import plain
from uqsonet.operator.closed_form import targets, unexplained_root, widen_band
from uqsonet.operator.config import KarhunenLoeveNetwork
from uqsonet.operator.kernel_branch import LENGTHS, LINEAR, use_kernel
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.runs.functions import Functions
from uqsonet.runs.runs import Runs, Split, memory_text
from uqsonet.runs.soundness import sound_split, without_rounding
from uqsonet.show.terminal import never_silent

LOG = logging.getLogger("uqsonet")

MIN_RUNS = 8  # fewer runs are too few to learn an operator from
MIN_LEFT = 1e-3  # kernels are tried if a linear operator leaves this share of outputs or more


def fit(
    runs: Runs,
    *,
    sensors: object = None,
    noise_std: float = 0.0,
    seed: int = 0,
    bar: bool = True,
    law: str = "auto",
    drift: bool = False,
) -> Emulator:
    """Learn the operator of some runs, with bands that contain what they promise.

    Parameters
    ----------
    runs : Runs
        At least 8; with fewer than 20 there are no conformal bands.
    sensors : int, sequence of int, or array (m, d), optional
        How many sensors to expect, or where they will stand: sizes are chosen for them. By default
        3, 10 and 30 at random points. The model may be asked about any others.
    noise_std : float
        Noise to expect, and the default of `Emulator.condition`; in the transformed field, so a
        relative error under ``log``.
    seed : int
        Seed of the split and the layouts.
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
    with never_silent("fit", bar):
        _require_arguments(runs, noise_std)
        require_law(law)
        if drift and law not in ("auto", "gaussian"):
            raise ConfigError(f"drift=True is for the law 'gaussian', found law={law!r}")
        LOG.info("%s: %s", runs.name, memory_text(runs))
        runs, split = sound_split(runs, seed)
        runs = without_rounding(runs)
        if drift:
            nothing, training = split.calibration[:0], (split.training, split.calibration)
            split = Split(np.concatenate(training), split.validation, nothing)
        data, best, largest, tried = choose_linear(runs, split, sensors, noise_std, seed)
        best = _choose_operator(data, best, largest, tried)
        LOG.info("chosen: %s", _branch(best))
        if drift:
            choice = Choice([], [], 0, {})
        else:
            choice = choose(list(zip(data.folds(), best.models, strict=True)), law)
        every = data.part("training", "validation")
        final = linear_model(every, **_size(best.model.config))
        if best.lengths:
            use_kernel(final, every, best.lengths)
        if drift:
            from uqsonet.fitting.drift import with_levels  # deferred: few fits need mixtures

            final = with_levels(final, data.inputs, data.outputs)
        splits = zip(data.folds(), best.models, strict=True)
        left = widen_band(final, [(one.part("validation"), model) for one, model in splits])
        # Laws count what modes leave out of runs that were held out as noise of readings.
        if drift:
            from uqsonet.fitting.drift import law_of_levels

            final.use_law(law_of_levels(final.bases, data.inputs))
        else:
            refit(final, best.model.law, every, seed, data.noise_levels())
        recipe = {
            "branch": _branch(best),
            **_size(final.config),
            "law": final.config.law,
            "transforms": {f.name: f.transform.name for f in data.inputs + data.outputs},
            "sensors": data.sensors(),
            "seed": seed,
            "laws": choice.laws,
            "tried": tried,
            "answers": choice.rows,
        }
        recipe |= {"nearest": choice.nearest} if choice.nearest else {}
        recipe |= {"drift": True} if drift else {}
        return _emulator(runs, data, best, final, every, recipe, choice, left)


def _require_arguments(runs: object, noise_std: object) -> None:
    """Refuse what is not enough runs, or noise that is not finite or negative."""
    if not isinstance(runs, Runs):
        raise DataError(f"runs must be uqsonet.Runs, found {type(runs).__name__}")
    if len(runs) < MIN_RUNS:
        raise DataError(
            f"{runs.name}: {len(runs)} runs; at least {MIN_RUNS} are needed to learn an operator, "
            "and to choose its size by those that it has not seen. Make more runs, or split them "
            "into regions that are alike"
        )
    if not (isinstance(noise_std, int | float | np.number) and 0 <= noise_std < math.inf):
        raise ConfigError(f"noise_std must be finite and not negative, found {noise_std!r}")


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
    held = list(zip(pairs, (one.held_out() for one in splits), strict=True))
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
        if not preferable(best.scores.mean(0)[None], one.scores.mean(0)[None]):
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


def _emulator(
    runs: Runs, data: EncodedRuns, best: Candidate, final: KarhunenLoeveModel, every: Functions,
    recipe: dict[str, Any], choice: Choice, remainder: Tensor,
) -> Emulator:  # fmt: skip
    """Return the final model with its band, baselines, calibration runs and card."""
    if choice.nearest:
        held = data.part("validation")
        take_nearest(final, held, range(held.size), choice.nearest, best.model)
    kept, seed = data.split.calibration, data.seed
    sizes = {part: len(rows) for part, rows in vars(data.split).items()}
    data_card = {"runs": len(runs), **sizes}
    card: dict[str, Any] = {"title": runs.name, "data": data_card, "recipe": recipe}
    root, pairs = unexplained_root(final.bases, every), targets(final.bases, every)
    plainer = {
        side: plain(name, final, root, pairs)
        for side, name in choice.taken.items()
        if name != "uqsonet"
    }
    emulator = Emulator(
        final, data.inputs, data.outputs, noise_std=data.noise_std, card=card, remainder=remainder,
        unexplained=root,
        given_inputs=plainer.get("inputs"), given_outputs=plainer.get("outputs"),
        calibration=(
            calibration_runs(data.kappa.take(kept), data.u.take(kept), seed) if len(kept) else None
        ),
    )  # fmt: skip
    if len(kept):
        scores, *_ = score(
            emulator, runs[kept[:SCORED_RUNS]], data.sensors(), noise_std=data.noise_std,
            seed=seed, conformal=False,
            regression=emulator.with_operator(plain("regression", final, root, pairs)),
        )  # fmt: skip
        card["scores"] = [one.row() for one in scores]
    card["limits"] = limits(emulator, runs, card)
    return emulator

"""`fit`: from a user's runs to a model, its size chosen by scores on runs that it has not seen.

1. The runs are split: some calibrate bands and are used for nothing else, some validate.
2. Linear models of rising size, with each transform in question, are scored on the validation runs
   at random sensors (CRPS). The largest that is as good as the best is taken
   (`uqsonet.fitting.candidates`).
3. A perceptron is trained on top of it, and kept only if its score is better by more than chance.
4. What the operator leaves unexplained of the validation runs becomes part of every band.
5. The law of the inputs is chosen the same way (`uqsonet.fitting.choose_law`).
6. The chosen model is fitted again to training and validation runs together.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import logging
import math
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uqsonet.emulator.calibration import calibration_runs
from uqsonet.emulator.emulator import Emulator
from uqsonet.errors import ConfigError, DataError
from uqsonet.files import array_digest, path_of, remove_debris, require_writable
from uqsonet.fitting.candidates import (
    SCORED_RUNS,
    Candidate,
    EncodedRuns,
    choose_linear,
    linear_model,
)
from uqsonet.fitting.card import limits
from uqsonet.fitting.choose_answer import choose_answer, choose_nearest, take_nearest
from uqsonet.fitting.choose_law import equip, refit, require_law
from uqsonet.fitting.held_out import taken
from uqsonet.fitting.validate import score
from uqsonet.operator.baselines import Choice, Floor, Unread, kept_pairs
from uqsonet.operator.closed_form import targets, unexplained, unexplained_root, widen_band
from uqsonet.operator.config import KarhunenLoeveNetwork
from uqsonet.operator.devices import require_device
from uqsonet.operator.file import read_weights, write_weights
from uqsonet.operator.kernel_branch import use_kernel
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.operator.regression import Regression
from uqsonet.operator.settings import MethodConfig, TrainingConfig
from uqsonet.operator.train import Skills, Trainer, Trial, set_weights, skill_columns, train
from uqsonet.runs.functions import Functions
from uqsonet.runs.runs import Runs, memory_text
from uqsonet.runs.soundness import sound_split, without_rounding
from uqsonet.show.terminal import never_silent

LOG = logging.getLogger("uqsonet")

OPERATIONS = 2e10
"""Floating-point operations per second of training that one core is assumed to do. It is fixed, so
that the same call gives the same model on a slow machine."""

MIN_RUNS = 8  # fewer runs are too few to learn an operator from
MAX_ITERATIONS = 6000  # maximum number of iterations of one training
MIN_LEFT = 1e-3  # perceptrons are tried if a linear operator leaves this share of outputs or more


def fit(
    runs: Runs,
    minutes: float = 5.0,
    *,
    sensors: object = None,
    noise_std: float = 0.0,
    seed: int = 0,
    device: str = "cpu",
    state: Path | str | None = None,
    bar: bool = True,
    law: str = "auto",
) -> Emulator:
    """Learn the operator of some runs, with bands that contain what they promise.

    Parameters
    ----------
    runs : Runs
        At least 8; with fewer than 20 there are no conformal bands.
    minutes : float
        About how long training may take on one core; closed forms come on top, seconds for a
        thousand runs on a thousand points. It fixes the number of iterations, not a clock: the same
        call gives the same model.
    sensors : int, sequence of int, or array (m, d), optional
        How many sensors to expect, or where they will stand: sizes are chosen for them. By default
        3, 10 and 30 at random points. The model may be asked about any others.
    noise_std : float
        Noise to expect, and the default of `Emulator.condition`; in the transformed field, so a
        relative error under ``log``.
    seed : int
        Seed of the split, the layouts and the training.
    device : str
        ``cpu`` or ``cuda``.
    state : path, optional
        Folder of checkpoints: the same call with the same folder continues where it was stopped.
        Files of others in it are never changed.
    bar : bool
        Draw a progress bar on a terminal.
    law : str
        Law of the inputs: `gaussian`, `mixture`, `latent`, or `auto`: the simplest whose score on
        the validation runs is no worse than the best.

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
    TrainingError
        If training fails or is stopped.
    """
    with never_silent("fit", bar), ExitStack() as stack:
        _require_arguments(runs, minutes, noise_std)
        require_law(law)
        require_device(device)
        folder = path_of(stack.enter_context(TemporaryDirectory()) if state is None else state)
        LOG.info("%s: %s", runs.name, memory_text(runs))
        runs, split = sound_split(runs, seed)
        runs = without_rounding(runs)
        data, best, tried = choose_linear(runs, split, sensors, noise_std, seed)
        run = _Trainings(seed, folder, device, bar)
        best = _choose_perceptron(data, best, minutes, run, tried)
        LOG.info("chosen: %s", "linear" if best.method is None else "perceptron")
        named = law
        if law == "auto" and len(best.models) > 1:
            named = "gaussian"
            LOG.info("the law is gaussian: too few runs to compare laws on")
        laws = equip(
            best.model, named, data.part("training"), data.scored(),
            noise_std=data.noise_levels(), layouts=data.layouts(), seed=seed,
        )  # fmt: skip
        best = _choose_kernel(data, best, tried)
        left_over = {} if best.model.config.kernel else choose_nearest(data, best)
        every = data.part("training", "validation")
        if best.method is None:
            config = best.model.config
            final = linear_model(every, config.input_modes, config.output_modes)
        else:
            final = run.trained(every, best.method, "final")
        if best.model.config.kernel:
            use_kernel(final, every)
        splits = list(zip(data.folds(), best.models, strict=True))
        choice, answers = choose_answer(splits, law == "auto")
        refit(final, best.model.law, every, seed, data.noise_levels())
        recipe = {
            "branch": _branch(best),
            **_size(final.config, best.method),
            "law": final.config.law,
            "transforms": {f.name: f.transform.name for f in data.inputs + data.outputs},
            "sensors": data.sensors(),
            "seed": seed,
            "laws": laws,
            "tried": tried,
            "answers": answers,
        }
        recipe |= {"left_over": left_over} if left_over else {}
        return _emulator(runs, data, best, final, every, recipe, choice)


def _require_arguments(runs: object, minutes: object, noise_std: object) -> None:
    """Refuse what is not enough runs, or not a number that is finite and not negative."""
    if not isinstance(runs, Runs):
        raise DataError(f"runs must be uqsonet.Runs, found {type(runs).__name__}")
    if len(runs) < MIN_RUNS:
        raise DataError(
            f"{runs.name}: {len(runs)} runs; at least {MIN_RUNS} are needed to learn an operator, "
            "and to choose its size by those that it has not seen. Make more runs, or split them "
            "into regions that are alike"
        )
    for name, value in (("minutes", minutes), ("noise_std", noise_std)):
        if not (isinstance(value, int | float | np.number) and math.isfinite(value) and value >= 0):
            raise ConfigError(f"{name} must be finite and not negative, found {value!r}")


def _choose_perceptron(
    data: EncodedRuns, best: Candidate, minutes: float, run: _Trainings, tried: list[dict[str, Any]]
) -> Candidate:
    """Return the linear model, or a perceptron on top of it whose score is better."""
    methods = _trainings(best.model.config, len(data.split.training), minutes)
    if not methods or len(best.models) > 1:
        return best
    functions, held = data.part("training"), data.part("validation")
    pairs, bases = targets(best.model.bases, held), best.model.bases
    left = unexplained(pairs["a"], pairs["c"], bases.linear_weight)
    if left.norm() < MIN_LEFT * pairs["c"].norm():
        LOG.info("the operator is linear: no perceptron is tried")
        return best
    held_out, root = data.held_out(), unexplained_root(bases, functions)

    def crps(model: Any) -> dict[int, float]:
        scores = held_out.scores(model).mean(1).tolist()
        return dict(zip(held_out.sensors, scores, strict=True))

    unread = crps(Unread.on(bases, root))

    def skills(model: Any) -> dict[str, float]:
        """Return by what share the CRPS is below that without sensors, by their number."""
        return skill_columns("skill_crps", crps(model), unread)

    for number, method in enumerate(methods):
        model = run.trained(functions, method, f"choice-{number}", skills)
        candidate = Candidate.of([model], [(held, held_out)], method)
        row = {"branch": "perceptron", **_size(model.config, method)}
        tried.append(row | {"crps": round(candidate.score, 6)})
        better, _ = taken([one.scores.mean(0)[None] for one in (best, candidate)], 1.0)
        best = (best, candidate)[better]
    return best


@torch.no_grad()
def _choose_kernel(data: EncodedRuns, best: Candidate, tried: list[dict[str, Any]]) -> Candidate:
    """Return the model, with a kernel in place of its perceptron where its answers are better.

    It is tried for inputs that latent fields make: sensors of outputs are then answered by moves of
    these, and those must see a branch that knows where classes jump.
    """
    if len(best.models) > 1 or best.model.law is None or not best.model.law.made:
        return best
    held, other = data.part("validation"), copy.deepcopy(best.model)
    use_kernel(other, data.part("training"))
    pairs, left = targets(best.model.bases, held), []
    for model in (best.model, other):
        left.append(float((model.answers_to(held, pairs["a"]) - pairs["c"]).square().mean()))
    tried.append({"branch": "kernel", "centres": other.config.kernel, "error": left[1] / left[0]})
    if left[1] >= left[0]:
        return best
    widen_band(other, [(held, other)])
    return replace(best, model=other, models=[other], method=None)


def _branch(best: Candidate) -> str:
    """Return what the operator is, in words."""
    if best.model.config.kernel:
        return "linear and kernel"
    return "linear" if best.method is None else "linear and perceptron"


def _size(network: KarhunenLoeveNetwork, method: MethodConfig | None) -> dict[str, int]:
    """Return numbers of modes and of iterations, as the card has them."""
    iterations = 0 if method is None else method.training.iterations
    modes = {"input_modes": network.input_modes, "output_modes": network.output_modes}
    return modes | {"iterations": iterations}


def _emulator(
    runs: Runs, data: EncodedRuns, best: Candidate, final: KarhunenLoeveModel, every: Functions,
    recipe: dict[str, Any], choice: Choice,
) -> Emulator:  # fmt: skip
    """Return the final model with its band, baselines, calibration runs and card."""
    splits = zip(data.folds(), best.models, strict=True)
    remainder = widen_band(final, [(one.part("validation"), model) for one, model in splits])
    if best.model.config.nearest:
        held = data.part("validation")
        take_nearest(final, held, range(held.size), best.model.config.nearest, best.model)
    kept, seed = data.split.calibration, data.seed
    sizes = {part: len(rows) for part, rows in vars(data.split).items()}
    data_card = {"runs": len(runs), **sizes}
    card: dict[str, Any] = {"title": runs.name, "data": data_card, "recipe": recipe}
    root, floor = unexplained_root(final.bases, every), None
    if any(name != "uqsonet" for of_side in choice.values() for name in of_side.values()):
        floor = Floor.of(final, root, kept_pairs(final.bases, every), choice)
    emulator = Emulator(
        final, data.inputs, data.outputs, noise_std=data.noise_std, card=card, remainder=remainder,
        unexplained=root, floor=floor,
        calibration=(
            calibration_runs(data.kappa.take(kept), data.u.take(kept), seed) if len(kept) else None
        ),
    )  # fmt: skip
    if len(kept):
        bases = final.bases if every.kappa_rows.wide else None
        scores, *_ = score(
            emulator, runs[kept[:SCORED_RUNS]], data.sensors(), noise_std=data.noise_std,
            seed=seed, conformal=False,
            regression=emulator.with_operator(Regression(every, 0.0, bases=bases)),
        )  # fmt: skip
        card["scores"] = [one.row() for one in scores]
    card["limits"] = limits(emulator, runs, card)
    return emulator


def _trainings(config: KarhunenLoeveNetwork, runs: int, minutes: float) -> list[MethodConfig]:
    """Return the trainings of perceptrons that fit into the time: a short one and a long one."""
    network = config.model_copy(update={"branch": [256, 256, 256]})
    sizes = [config.input_modes, *network.branch, config.output_modes]
    weights = sum(a * b for a, b in itertools.pairwise(sizes)) + sizes[0] * sizes[-1]
    batch = max(8, min(500, runs // 2))
    # Forward and back are three products; the long one is trained twice, the second time on all.
    affordable = int(60 * minutes * OPERATIONS / (6 * batch * weights))
    long = min(MAX_ITERATIONS, int(affordable / 2.2))
    lengths = [n for n in (long // 10, long) if n >= 20]

    trainings = [
        TrainingConfig(
            iterations=n, batch_size=batch, learning_rate=2e-3, schedule="cosine",
            weight_decay=1e-2, validate_every=max(1, n // 3),
        )
        for n in lengths
    ]  # fmt: skip
    return [MethodConfig(network=network, training=training) for training in trainings]


def remove_trainings(folder: Path) -> None:
    """Remove what trainings of `fit` left in a folder, and the folder if it is empty then."""
    with suppress(OSError):  # as where it holds what others put there
        for path in (*folder.glob("*.safetensors"), *folder.glob("*.state")):
            if _left_by_training(path):
                path.unlink()
        folder.rmdir()


def _left_by_training(path: Path) -> bool:
    """Return whether a file is the result or the checkpoint of a training of `fit`."""
    try:
        meta = read_weights(path)[1]
    except DataError:
        return False
    found = meta.get("origin", meta.get("identity"))
    return isinstance(found, dict) and found.get("stage") == path.stem


@dataclass(frozen=True)
class _Trainings:
    """A folder in which trainings leave checkpoints and results, to be taken up again."""

    seed: int
    folder: Path
    device: str
    bar: bool

    def trained(
        self, functions: Functions, method: MethodConfig, stage: str,
        skills: Skills = lambda _: {},
    ) -> KarhunenLoeveModel:  # fmt: skip
        """Return a trained model; a finished or half-finished training is taken up."""
        trial = Trial("uqsonet", method, 0.0, 0, self.seed)
        digests = [
            hashlib.sha256("".join(array_digest(b.numpy()) for b in rows.blocks()).encode())
            for rows in (functions.kappa_rows, functions.u_rows)
        ]
        origin = {"runs": [one.hexdigest() for one in digests], "stage": stage}
        kept = {**origin, "config": method.model_dump(mode="json"), "seed": self.seed, "trial": 0}
        done, checkpoint = self.folder / f"{stage}.safetensors", self.folder / f"{stage}.state"
        for path in (done, checkpoint):
            require_writable(path)
            remove_debris(path)
            if path.exists() and not _left_by_training(path):
                raise DataError(f"{path}: in the way of a training and not left by one: move it")
        weights: dict[str, Tensor] | None = None
        if done.is_file():
            stored, meta = read_weights(done)
            weights = stored if meta.get("origin") == kept else None
        if weights is None:
            trainer = Trainer(trial, functions, self.device)
            weights = train(trainer, skills, checkpoint, origin, bar=self.bar).weights
            write_weights(done, weights, {"origin": kept})
            checkpoint.unlink(missing_ok=True)
        model = trial.untrained(functions.fields)
        assert isinstance(model, KarhunenLoeveModel)
        model.fit_constants(functions)
        set_weights(model, weights)
        return model.eval()

"""`fit`: from a user's runs to a model, its size chosen by scores on runs that it has not seen.

1. The runs are split: some calibrate bands and are used for nothing else, some validate.
2. Linear models of rising size, with each transform in question, are scored on the validation runs
   at random sensors (CRPS). The largest that is as good as the best is taken.
3. A perceptron is trained on top of it, and kept only if its score is better by more than chance.
4. What the operator leaves over of the validation runs becomes part of every band.
5. The law of the inputs is chosen the same way (`uqsonet.laws.choose`).
6. The chosen model is fitted again to training and validation runs together.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uqsonet.emulator.calibration import Calibration
from uqsonet.emulator.emulator import Emulator
from uqsonet.errors import ConfigError, DataError
from uqsonet.files import array_digest
from uqsonet.fitting.baselines import Cokriging, SensorFree, unexplained_root
from uqsonet.fitting.card import limits
from uqsonet.fitting.held_out import (
    SCORED_RUNS,
    EncodedRuns,
    HeldOutRuns,
    HeldOutValidator,
    SensorPlan,
    sensor_plan,
)
from uqsonet.fitting.validate import score_rows
from uqsonet.gauss.modes import empirical_modes
from uqsonet.laws.choose import equip, refit, require_law
from uqsonet.networks.training.loop import RunOptions, train
from uqsonet.networks.training.settings import MethodConfig, TrainingConfig
from uqsonet.networks.training.trainer import TrialStack
from uqsonet.networks.training.validation import Validator, load_trial
from uqsonet.operator.base import OperatorModel
from uqsonet.operator.config import KarhunenLoeveNetwork
from uqsonet.operator.devices import require_device
from uqsonet.operator.file import read_weights, write_weights
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.runs.description import may_log
from uqsonet.runs.functions import Functions
from uqsonet.runs.runs import Runs, Split, split_runs

LOG = logging.getLogger("uqsonet")


INPUT_MODES = (2, 4, 8, 16, 32, 64, 128, 256)
"""Numbers of input modes that are tried."""

MOST_OUTPUT_MODES = 192

INPUT_VARIANCE = 1 - 1e-9
"""Share of the inputs' variance that modes keep at most."""

KEPT_VARIANCE = 0.99999
"""Share of the outputs' variance that their modes keep, if runs allow it: 0.3 % of the outputs
themselves are left out."""

TOLERANCE = 0.005
"""A larger linear model is taken if its score is at most this much worse, relatively."""


OPERATIONS = 2e10
"""Floating-point operations that a core is taken to do in a second of training. Fixed, so that the
same call gives the same model on a slow machine."""

MOST_ITERATIONS = 6000


@dataclass(frozen=True)
class _Candidate:
    """A model of the first stage, with what it leaves over of the validation runs."""

    model: KarhunenLoeveModel
    residuals: Tensor
    """Functions (V, M): held-out outputs less the operator's answer to the whole input."""
    input_remainder: float


def _assessed(model: KarhunenLoeveModel, held: Functions) -> _Candidate:
    """Let a model take what it leaves over of held-out runs into its band."""
    bases = model.bases
    field = held.kappa.double() - bases.input_mean
    a = field @ bases.to_coefficients
    left = field - a @ bases.input_factor.double().T
    with torch.no_grad():
        c = model.branch(a.float()).double()
    modes = bases.output_modes.double() * bases.output_scale.double()
    residuals = held.u.double() - bases.output_mean - c @ modes.T
    remainder = float(left.square().mean().sqrt())
    _into_band(model, residuals, remainder)
    return _Candidate(model, residuals, remainder)


def _into_band(model: KarhunenLoeveModel, residuals: Tensor, input_remainder: float) -> Tensor:
    """Set the model's residual law from residual functions; return what its modes leave out.

    Returns
    -------
    Tensor, shape (M,)
        Root mean square of each point's residual outside the span of the output modes.
    """
    modes, scale = model.bases.output_modes.double(), model.bases.output_scale.double()
    c = residuals @ modes
    left = (residuals - c @ modes.T).square().mean(0)
    model.fit_residuals((c / scale).float(), input_remainder, float(left.mean().sqrt()))
    return left.sqrt()


def _truncated(model: KarhunenLoeveModel, count: int) -> KarhunenLoeveModel:
    """Return a linear model with the first `count` input modes of another."""
    config = model.config.model_copy(update={"input_modes": count})
    smaller = KarhunenLoeveModel(model.fields, config, model.noise_std)
    ours, theirs = dict(smaller.bases.named_buffers()), dict(model.bases.named_buffers())
    for name, buffer in ours.items():
        buffer.copy_(
            theirs[name][..., :count] if buffer.shape != theirs[name].shape else theirs[name]
        )
    return smaller.eval()


def _linear(functions: Functions, input_modes: int, output_modes: int) -> KarhunenLoeveModel:
    network = KarhunenLoeveNetwork(
        input_modes=input_modes, output_modes=output_modes, branch=[], held_out_residuals=True
    )
    model = KarhunenLoeveModel(functions.fields, network, 0.0)
    with torch.no_grad():
        model.bases.fit(functions)
        model.bases.forget()
    return model.eval()


def _output_modes(functions: Functions) -> int:
    """Return how many output modes keep `KEPT_VARIANCE`; at most a third of the runs."""
    size, points = functions.u_rows.shape
    most = max(2, min(MOST_OUTPUT_MODES, size // 3, points))
    modes = empirical_modes(functions.u_rows, min(most, size - 1), "output modes")
    total = modes.std.square().sum() + points * modes.remainder**2
    kept = modes.std.square().cumsum(0) / total
    return min(most, int((kept < KEPT_VARIANCE).sum()) + 1)


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
    """Learn the operator of some runs, with bands that hold what they promise.

    Parameters
    ----------
    runs : Runs
        At least 20.
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
        Of the split, the layouts and the training.
    device : str
        ``cpu`` or ``cuda``.
    state : path, optional
        Folder of checkpoints: the same call with the same folder continues where it was stopped.
    bar : bool
        Draw a progress bar on a terminal.
    law : str
        Law of the inputs: `gaussian`, `mixture`, `thresholded`, `bounded`, `analogue`, or `auto`,
        which takes the simplest that scores on the validation runs no worse than the best.

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
    if not isinstance(runs, Runs):
        raise DataError(f"runs must be uqsonet.Runs, found {type(runs).__name__}")
    runs.require_enough()
    for name, value in (("minutes", minutes), ("noise_std", noise_std)):
        number = isinstance(value, int | float | np.number)
        if not (number and math.isfinite(value) and value >= 0):
            raise ConfigError(f"{name} must be finite and not negative, found {value!r}")
    require_law(law)
    require_device(device)
    split = split_runs(len(runs), seed)
    chosen, tried = _choose_linear(runs, split, sensors, noise_std, seed)
    data, plan, held_out, candidate = chosen
    every = data.functions(np.concatenate([split.training, split.validation]))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()) if state is None else state)
        run = _Trainings(seed, folder, RunOptions(device, bar=bar))
        best = _Choice(candidate, held_out.scores(candidate.model), None)
        best = _choose_perceptron(data, split, held_out, best, minutes, run, tried)
        if best.method is None:
            config = best.candidate.model.config
            final = _linear(every, config.input_modes, config.output_modes)
        else:
            final = run.trained(every, best.method, _Unwatched(), "final")
    LOG.info("chosen: %s", "linear" if best.method is None else "perceptron")
    laws = _choose_law(data, split, plan, best, law, seed)
    refit(final, best.candidate.model.law, every, seed)
    return _finished(runs, data, split, plan, best, final, every, tried, seed, noise_std, laws)


def _choose_law(
    data: EncodedRuns, split: Split, plan: SensorPlan, best: _Choice, law: str, seed: int
) -> list[dict[str, Any]]:
    """Give the chosen model a law of its input; return what was tried."""
    points, sets = data.fields.input.grid.size, min(len(split.validation), SCORED_RUNS)
    return equip(
        best.candidate.model,
        law,
        data.functions(split.training),
        data.functions(split.validation[:SCORED_RUNS]),
        noise_std=plan.levels(data),
        layouts={m: plan.layouts(m, sets, points, seed, "validation") for m in plan.counts},
        seed=seed,
    )


def _choose_perceptron(
    data: EncodedRuns,
    split: Split,
    held_out: HeldOutRuns,
    best: _Choice,
    minutes: float,
    run: _Trainings,
    tried: list[dict[str, Any]],
) -> _Choice:
    """Return the linear model, or a perceptron on top of it whose score is better."""
    methods = _trainings(best.candidate.model.config, len(split.training), minutes)
    if not methods:
        return best
    functions, held = data.functions(split.training), data.functions(split.validation)
    base = SensorFree(functions, 0.0), _cokriging(best.candidate.model, functions)
    validator = HeldOutValidator(held_out, *base)
    for number, method in enumerate(methods):
        candidate = _assessed(run.trained(functions, method, validator, f"choice-{number}"), held)
        scores = held_out.scores(candidate.model)
        tried.append(_row("perceptron", method, scores))
        gain = best.scores.mean(0) - scores.mean(0)
        if float(gain.mean()) > float(gain.std() / math.sqrt(len(gain))):
            best = _Choice(candidate, scores, method)
    return best


@dataclass(frozen=True)
class _Choice:
    candidate: _Candidate
    scores: Tensor
    method: MethodConfig | None


def _row(kind: str, method: MethodConfig | None, scores: Tensor, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"branch": kind, **more}
    if method is not None:
        network = method.network
        assert isinstance(network, KarhunenLoeveNetwork)
        found |= {"input_modes": network.input_modes, "output_modes": network.output_modes}
        found["iterations"] = method.training.iterations
    return found | {"crps": round(float(scores.mean()), 6)}


def _choose_linear(
    runs: Runs, split: Split, sensors: object, noise_std: float, seed: int
) -> tuple[tuple[EncodedRuns, SensorPlan, HeldOutRuns, _Candidate], list[dict[str, Any]]]:
    """Return the linear model of the transforms and sizes that score best, and what was tried."""
    options = []
    for name, field in runs.inputs.items():
        given = [field.transform] if field.transform else ["log", "identity"]
        possible = field.transform or may_log(field)
        options.append([(name, t) for t in (given if possible else ["identity"])])
    tried: list[dict[str, Any]] = []
    best: tuple[float, tuple[EncodedRuns, SensorPlan, HeldOutRuns, _Candidate]] | None = None
    for combination in itertools.product(*options):
        transforms = dict(combination)
        data = EncodedRuns.of(runs, transforms)
        plan = sensor_plan(data, sensors, noise_std)
        held_out = HeldOutRuns(data, split.validation, plan, seed)
        functions, held = data.functions(split.training), data.functions(split.validation)
        most = min(functions.size - 1, data.kappa.shape[1], INPUT_MODES[-1])
        full = _linear(functions, most, _output_modes(functions))
        variance = full.bases.input_factor.double().square().sum(0).cumsum(0)
        total = variance[-1] + len(full.bases.input_mean) * full.bases.input_remainder**2
        # Beyond these, coefficients are the rounding of stored values.
        most = min(most, int((variance < INPUT_VARIANCE * total).sum()) + 1)
        sizes = [r for r in INPUT_MODES if r < most] + [most]
        found = []
        for count in sizes:
            candidate = _assessed(_truncated(full, count), held)
            score = held_out.scores(candidate.model)
            found.append((float(score.mean()), candidate))
            row = _row("linear", None, score, **transforms, input_modes=count)
            tried.append(row | {"output_modes": full.config.output_modes})
            LOG.info("linear, %d input modes: CRPS %.4g", count, score.mean())
        least = min(score for score, _ in found)
        score, candidate = [f for f in found if f[0] <= (1 + TOLERANCE) * least][-1]
        if best is None or score < best[0]:
            best = score, (data, plan, held_out, candidate)
    assert best is not None
    return best[1], tried


def _trainings(config: KarhunenLoeveNetwork, runs: int, minutes: float) -> list[MethodConfig]:
    """Return the trainings of perceptrons that fit into the time: a short one and a long one."""
    network = config.model_copy(update={"branch": [256, 256, 256]})
    sizes = [config.input_modes, *network.branch, config.output_modes]
    weights = sum(a * b for a, b in itertools.pairwise(sizes)) + sizes[0] * sizes[-1]
    batch = max(8, min(500, runs // 2))
    # Forward and back are three products; the long one is trained twice, the second time on all.
    affordable = int(60 * minutes * OPERATIONS / (6 * batch * weights))
    long = min(MOST_ITERATIONS, int(affordable / 2.2))
    lengths = [n for n in (long // 10, long) if n >= 20]

    def method(iterations: int) -> MethodConfig:
        training = TrainingConfig(
            iterations=iterations,
            batch_size=batch,
            learning_rate=2e-3,
            schedule="cosine",
            weight_decay=1e-2,
            validate_every=max(1, iterations // 3),
        )
        return MethodConfig(network=network, training=training)

    return [method(n) for n in lengths]


class _Unwatched:
    """No skill is measured: the last fit sees the validation runs, too (`Validator`)."""

    def columns(self, model: OperatorModel) -> dict[str, float]:
        return {}


@dataclass(frozen=True)
class _Trainings:
    """Where trainings leave their checkpoints and results, to be taken up again."""

    seed: int
    folder: Path
    options: RunOptions

    def trained(
        self, functions: Functions, method: MethodConfig, validator: Validator, stage: str
    ) -> KarhunenLoeveModel:
        """Return a trained model; a finished or half-finished training is taken up."""
        stack = TrialStack("uqsonet", method, 0.0, [0], self.seed)
        digests = [array_digest(t.numpy()) for t in (functions.kappa, functions.u)]
        origin = {"runs": digests, "stage": stage}
        kept = {**origin, "config": method.model_dump(mode="json"), "seed": self.seed}
        done, checkpoint = self.folder / f"{stage}.safetensors", self.folder / f"{stage}.state"
        tensors: dict[str, Tensor] | None = None
        if done.is_file():
            found, meta = read_weights(done)
            tensors = found if meta.get("origin") == kept else None
        if tensors is None:
            trained = train(stack, functions, None, validator, checkpoint, self.options, origin)
            tensors = {
                name.removeprefix("parameter/"): tensor
                for name, tensor in trained.tensors.items()
                if name.startswith("parameter/")
            }
            write_weights(done, tensors, {"origin": kept})
            checkpoint.unlink(missing_ok=True)
        model = stack.untrained(functions.fields)
        assert isinstance(model, KarhunenLoeveModel)
        with torch.no_grad():
            model.fit_constants(functions)
            model.bases.forget()
        load_trial(model, tensors, 0)
        return model.eval()


def _cokriging(model: KarhunenLoeveModel, functions: Functions) -> Cokriging:
    remainder = unexplained_root(model.bases, functions)
    model.bases.forget()
    return Cokriging.on(model.bases, remainder)


def _finished(
    runs: Runs,
    data: EncodedRuns,
    split: Split,
    plan: SensorPlan,
    best: _Choice,
    final: KarhunenLoeveModel,
    every: Functions,
    tried: Sequence[Mapping[str, Any]],
    seed: int,
    noise_std: float,
    laws: Sequence[Mapping[str, Any]],
) -> Emulator:
    """Return the final model with its band, baselines, calibration runs and card."""
    candidate = best.candidate
    remainder = _into_band(final, candidate.residuals, candidate.input_remainder)
    calibration = Calibration.of(data.kappa[split.calibration], data.u[split.calibration], seed)
    network = final.config
    recipe = {
        "branch": "linear" if best.method is None else "linear and perceptron",
        "input_modes": network.input_modes,
        "output_modes": network.output_modes,
        "law": network.law,
        "laws": [dict(row) for row in laws],
        "iterations": 0 if best.method is None else best.method.training.iterations,
        "transforms": {f.name: f.transform.name for f in data.inputs},
        "tried": [dict(row) for row in tried],
        "sensors": plan.sensors(data),
        "seed": seed,
    }
    sizes = {part: len(getattr(split, part)) for part in ("training", "validation", "calibration")}
    card: dict[str, Any] = {
        "title": runs.name,
        "data": {"runs": len(runs), **sizes},
        "recipe": recipe,
    }
    cokriging = _cokriging(final, every)
    emulator = Emulator(
        final, data.inputs, data.outputs, noise_std=noise_std, card=card,
        remainder=remainder, cokriging=cokriging, calibration=calibration,
    )  # fmt: skip
    scored, sensors = runs[split.calibration[:SCORED_RUNS]], plan.sensors(data)
    card["scores"] = score_rows(
        emulator, scored, sensors, noise_std=noise_std, seed=seed, pairs=every
    )
    card["limits"] = limits(emulator, runs, card)
    return emulator

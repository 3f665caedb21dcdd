"""Linear models of rising size, scored on held-out runs: the first choice of `fit`."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uqsonet.fields.field import Field, Transform, part_columns
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.fields.stacked import join, point_weights
from uqsonet.fitting.comparison import preferable
from uqsonet.fitting.held_out import LAYOUTS, HeldOut
from uqsonet.fitting.plan import Places, SensorPlan
from uqsonet.fitting.stand_ins import with_hidden_values
from uqsonet.gauss.blocks import RowBlocks, column_moments
from uqsonet.gauss.principal_components import spectrum
from uqsonet.gauss.seeds import numpy_generator
from uqsonet.operator.closed_form import fit_bases, held_out_std, scale_modes, widen_band
from uqsonet.operator.config import KarhunenLoeveNetwork
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.runs.field_runs import FieldRuns
from uqsonet.runs.functions import Functions
from uqsonet.runs.runs import (
    Runs,
    Split,
    may_log,
    named_fields,
    output_transforms,
    proposed_transform,
    rows_of,
)

LOG = logging.getLogger("uqsonet")

SENSOR_COUNTS = (3, 10, 30)  # numbers of sensors that sizes are chosen for by default
SCORED_RUNS = 100  # runs that a candidate, and in the end the model, is scored on, at most
SCORED_POINTS = 400  # output points that scores are averaged over, at most
ANSWER_POINTS = 200  # the same for laws and answers, which are sampled
SIZED_RUNS = 500  # training runs behind the std of an output's own values, at most
SCORED_TOGETHER = 32  # number of held-out runs that are conditioned together
TRIED_INPUT_MODES = (2, 4, 8, 16, 32, 64, 128, 256)  # numbers of input modes to try
INPUT_VARIANCE = 1 - 1e-9  # share of the inputs' variance beyond which modes are rounding

MAX_OUTPUT_MODES = 192
OUTPUT_VARIANCE = 0.99999  # share of the outputs' variance to keep: 0.3 % of outputs is left out
TOLERATED_LOSS = 0.005  # a larger linear model is preferred if it scores worse by this at most


@dataclass(frozen=True)
class EncodedRuns:
    """Runs as a model sees them, their parts, and the sensors that models are scored with."""

    inputs: list[Field]
    outputs: list[Field]
    fields: OperatorFields  # all inputs as one field, and all outputs
    kappa: RowBlocks  # (N, n), encoded; read when it is used where it is large
    u: RowBlocks  # (N, M), the same of outputs
    splits: Sequence[Split]  # one, or of few runs several
    plan: SensorPlan
    noise_std: Mapping[str, float]  # of sensors by field, in the transformed fields
    seed: int

    @classmethod
    def of(
        cls, runs: Runs, transforms: Mapping[str, str | Transform], splits: Sequence[Split],
        sensors: object, noise_std: Mapping[str, float], seed: int,
        like: EncodedRuns | None = None,
    ) -> EncodedRuns:  # fmt: skip
        """Return runs with these transforms; `like` has the same outputs."""
        outputs = like.outputs if like else named_fields(runs.outputs, transforms)
        sides = named_fields(runs.inputs, transforms), outputs
        input, output = (
            Field(",".join(f.name for f in side), join([f.domain for f in side])) for side in sides
        )
        kappa = rows_of(runs.inputs, sides[0])
        if like is None:
            u = rows_of(runs.outputs, outputs)
            u = with_hidden_values(u, kappa, outputs, splits[0].training, seed)
        else:
            u = like.u
        named = [*sides[0], *sides[1]]
        if sensors is None:
            sensors = sorted({min(m, kappa.shape[1]) for m in SENSOR_COUNTS})
        plan = SensorPlan.of(sensors, named, len(sides[0]), [f.domain.points() for f in named])
        fields = OperatorFields(runs.name, input, output)
        return cls(*sides, fields, kappa, u, splits, plan, noise_std, seed)

    def part(self, *names: str) -> Functions:
        """Return the runs of these parts, ``training`` for example, as pairs to fit or to score."""
        return self.functions(np.concatenate([getattr(self.split, name) for name in names]))

    @property
    def split(self) -> Split:
        """The only split, or the first one."""
        return self.splits[0]

    def folds(self) -> list[EncodedRuns]:
        """Return the same runs for each split."""
        return [replace(self, splits=[split]) for split in self.splits]

    def functions(self, index: np.ndarray) -> Functions:
        """Return some of the runs as pairs."""
        return Functions(self.fields, "training", self.kappa.take(index), self.u.take(index))

    def scored(self) -> Functions:
        """Return the validation runs that candidates are scored on."""
        return self.functions(self.split.validation[:SCORED_RUNS])

    @property
    def of_outputs(self) -> bool:
        """Whether the sensors that are expected read outputs, or some of them."""
        return self.plan.reads_from(self.kappa.shape[1])

    def plan_of_inputs(self) -> SensorPlan:
        """Return the sensors that are expected, or others where these read outputs."""
        points = self.kappa.shape[1]
        counts = tuple(sorted({min(m, points) for m in SENSOR_COUNTS}))
        return SensorPlan((Places(0, points, counts),)) if self.of_outputs else self.plan

    def noise_levels(self) -> Tensor:
        """Return the noise at each point of encoded inputs and outputs, shape (n + M,)."""
        levels = [
            torch.full(
                (f.domain.size,), self.noise_std.get(f.name, 0.0) / f.scale, dtype=torch.float64
            )
            for f in self.inputs + self.outputs
        ]
        return torch.cat(levels)

    def noise_of_inputs(self) -> Tensor:
        """Return the noise at each point of the encoded input, shape (n,)."""
        return self.noise_levels()[: self.kappa.shape[1]]

    def held_out(self, plan: SensorPlan) -> HeldOut:
        """Return the scored runs as sensors read them."""
        size = min(len(self.split.validation), SCORED_RUNS)
        noise = numpy_generator(self.seed, "fit", "validation noise")
        columns = numpy_generator(self.seed, "fit", "scored points")
        return HeldOut.read(
            self.scored(), plan.layouts(size, self.seed, "fit", "layouts", "validation"),
            self.noise_levels(), lambda _: noise, columns, SCORED_POINTS, SCORED_TOGETHER,
            self._transformed(),
        )  # fmt: skip

    def as_read(
        self, side: str, rows: np.ndarray, plan: SensorPlan, part: int, parts: int
    ) -> HeldOut:
        """Return a part of the runs as sensors read them; `side` says what they are of.

        All parts together have about `LAYOUTS` layouts.
        """
        path = "fit", "answers", side, part
        layouts, groups = plan.shared(len(rows), math.ceil(LAYOUTS / parts), self.seed, *path)
        return HeldOut.read(
            self.functions(rows), layouts, self.noise_levels(),
            lambda m: numpy_generator(self.seed, *path, "noise", m),
            numpy_generator(self.seed, "fit", "answers", "points"), ANSWER_POINTS, SCORED_TOGETHER,
            groups=groups,
        )  # fmt: skip

    def _transformed(self) -> list[tuple[Field, Tensor, float]]:
        """Return outputs under a transform, their columns, and the std of their own values."""
        found, some = [], self.u.take(self.split.training[:SIZED_RUNS])
        for number, one in enumerate(self.outputs):
            columns = part_columns(self.outputs, number)
            if not one.transform.linear:
                values = one.decode(some.columns(columns).double())
                size = column_moments(RowBlocks.of(values))[1]
                here = torch.arange(columns.start, columns.stop)
                found.append((one, here, float(size.square().mean().sqrt())))
        return found


@dataclass(frozen=True)
class Candidate:
    """A model, with a band as wide as the validation runs ask for, and how it scores on them."""

    model: KarhunenLoeveModel
    scores: Tensor  # (counts, B), CRPS of each scored run at each number of sensors
    lengths: Sequence[float] = ()  # of kernels that were tried; none for least squares
    models: Sequence[KarhunenLoeveModel] = ()  # of all splits of the runs; `model` is the first

    @property
    def score(self) -> float:
        """CRPS, averaged over runs and numbers of sensors."""
        return float(self.scores.mean())

    @classmethod
    def of(
        cls, models: Sequence[KarhunenLoeveModel], held: Sequence[tuple[Functions, HeldOut]],
        lengths: Sequence[float] = (),
    ) -> Candidate:  # fmt: skip
        """Widen models by what they leave unexplained of the held-out runs of all splits; score."""
        left = [(pairs, one) for one, (pairs, _) in zip(models, held, strict=True)]
        scores = []
        for one, (_, held_out) in zip(models, held, strict=True):
            widen_band(one, left)
            scores.append(held_out.scores(one))
        return cls(models[0], torch.cat(scores, 1), lengths, models)


def linear_model(functions: Functions, input_modes: int, output_modes: int) -> KarhunenLoeveModel:
    """Return the least-squares operator between so many modes of inputs and outputs."""
    network = KarhunenLoeveNetwork(
        input_modes=input_modes, output_modes=output_modes, branch=[], held_out_residuals=True
    )
    model = KarhunenLoeveModel(functions.fields, network, 0.0)
    fit_bases(model.bases, functions)
    return model.eval()


def truncated(model: KarhunenLoeveModel, count: int) -> KarhunenLoeveModel:
    """Return a linear model with the first `count` input modes of another, whose bases it uses."""
    config = model.config.model_copy(update={"input_modes": count})
    smaller = KarhunenLoeveModel(model.fields, config, model.noise_std)
    larger = dict(model.bases.named_buffers())
    for name, buffer in smaller.bases.named_buffers():
        whole = larger[name]
        part = whole if buffer.shape == whole.shape else whole[..., :count]
        setattr(smaller.bases, name, part if part.ndim else part.clone())
    return smaller.eval()


def _output_modes(functions: Functions) -> int:
    """Return how many output modes keep `OUTPUT_VARIANCE`."""
    size, points = functions.u_rows.shape
    most = min(max(2, min(MAX_OUTPUT_MODES, size - 1)), points)
    weights = point_weights(functions.fields.training_grid()[0])
    variance, total, _ = spectrum(functions.u_rows, weights)
    kept = variance[:most].cumsum(0) / total
    return min(most, int((kept < OUTPUT_VARIANCE).sum()) + 1)


def _sizes(model: KarhunenLoeveModel) -> list[int]:
    """Return the numbers of input modes to try, up to those that are more than rounding."""
    bases = model.bases
    variance = bases.input_factor.double().square().sum(0).cumsum(0)
    total = variance[-1] + len(bases.input_mean) * bases.input_remainder**2
    most = min(len(variance), int((variance < INPUT_VARIANCE * total).sum()) + 1)
    return [size for size in TRIED_INPUT_MODES if size < most] + [most]


def _best_of_sizes(data: EncodedRuns, tried: list[dict[str, Any]]) -> tuple[Candidate, Candidate]:
    """Return the largest linear model that is as good as the best, and the largest of all.

    All scores are noted in `tried`.
    """
    folds = data.folds()
    held = [(one.part("validation"), one.held_out(data.plan)) for one in folds]
    training = [one.part("training") for one in folds]
    most = min(min(one.size for one in training) - 1, data.kappa.shape[1], TRIED_INPUT_MODES[-1])
    outputs = min(_output_modes(one) for one in training)
    full = [linear_model(one, most, outputs) for one in training]
    std = held_out_std([(pairs, one) for one, (pairs, _) in zip(full, held, strict=True)])
    for one in full:
        scale_modes(one.bases, std)
    if len(folds) > 1:
        LOG.info("few runs: scores are of %d splits", len(folds))
    names = {one.name: one.transform.name for one in data.inputs + data.outputs}
    candidates, scores = [], []
    for count in _sizes(full[0]):
        candidates.append(Candidate.of([truncated(one, count) for one in full], held))
        scores.append(candidates[-1].score)
        modes = {"input_modes": count, "output_modes": outputs}
        tried.append({"branch": "linear", **names, **modes, "crps": round(scores[-1], 6)})
        LOG.info("linear, %d input modes: CRPS %.4g", count, scores[-1])
    limit = (1 + TOLERATED_LOSS) * min(scores)
    return [one for one in candidates if one.score <= limit][-1], candidates[-1]


def _transforms(field: FieldRuns) -> list[str]:
    """Return the transforms of an input to try; the first is the one that its values propose."""
    if field.transform:
        return [field.transform]
    likely = proposed_transform(field)
    other = "identity" if likely == "log" else "log"
    return [likely, other] if may_log(field) else [likely]


def choose_linear(
    runs: Runs, splits: Sequence[Split], sensors: object, noise_std: Mapping[str, float], seed: int
) -> tuple[EncodedRuns, Candidate, Candidate, list[dict[str, Any]]]:
    """Return runs with the transforms whose linear models score best, and all scores.

    Transforms come in an order, and a later one is taken if it is better by more than is tolerated
    (`uqsonet.fitting.comparison`): under a logarithm answers have no closed form.

    Of these models the second is the one to take and the third the largest.
    """
    tried: list[dict[str, Any]] = []
    best: tuple[EncodedRuns, Candidate, Candidate] | None = None

    def tried_with(transforms: Mapping[str, str | Transform], like: EncodedRuns | None) -> None:
        """Keep the best so far alone, as encoded runs are large."""
        nonlocal best
        data = EncodedRuns.of(runs, transforms, splits, sensors, noise_std, seed, like)
        found = _best_of_sizes(data, tried)
        if best is None or preferable(*(one.scores.mean(0)[None] for one in (found[0], best[1]))):
            best = data, *found

    options = [_transforms(field) for field in runs.inputs.values()]
    for chosen in itertools.product(*options):
        tried_with(dict(zip(runs.inputs, chosen, strict=True)), best and best[0])
    for name, field in runs.outputs.items():
        for other in output_transforms(field)[1:]:
            assert best is not None
            known = {one.name: one.transform for one in best[0].inputs + best[0].outputs}
            tried_with(known | {name: other}, None)
    assert best is not None
    return *best, tried

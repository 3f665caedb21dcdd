"""Runs as a model sees them, how they are split, and what models score on those held out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uqsonet.emulator.emulator import Operator
from uqsonet.fields.field import Field, Observations
from uqsonet.fields.named_field import NamedField
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.fields.stacked import join
from uqsonet.fitting.validate import counts_or_places
from uqsonet.gauss.metrics import gaussian_crps
from uqsonet.gauss.posterior import spread
from uqsonet.gauss.seeds import numpy_generator
from uqsonet.networks.training.validation import skill_columns
from uqsonet.operator.base import OperatorModel
from uqsonet.runs.functions import Functions
from uqsonet.runs.runs import Runs, named_fields, rows_of

COUNTS = (3, 10, 30)
"""Numbers of sensors that sizes are chosen for, where a user states none."""


SCORED_POINTS = 400
"""Output points that scores are averaged over."""


SCORED_RUNS = 100
"""Runs that a size, and in the end the model, is scored on."""


PART = 32
"""Sets that are scored at a time."""


@dataclass(frozen=True)
class EncodedRuns:
    """Runs as a model sees them: encoded rows, and the fields that they are rows of."""

    inputs: list[NamedField]
    outputs: list[NamedField]
    fields: OperatorFields
    kappa: Tensor
    u: Tensor

    @classmethod
    def of(cls, runs: Runs, transforms: Mapping[str, str]) -> EncodedRuns:
        """Return runs with these transforms of the inputs, by name."""
        inputs = named_fields(runs.inputs, transforms)
        outputs = named_fields(runs.outputs)
        given, found = (
            Field(",".join(f.name for f in named), join([f.domain for f in named]))
            for named in (inputs, outputs)
        )
        fields = OperatorFields(runs.name, given, found)
        kappa, u = rows_of(runs.inputs, inputs), rows_of(runs.outputs, outputs)
        return cls(inputs, outputs, fields, kappa, u)

    def functions(self, index: np.ndarray) -> Functions:
        """Return some of the runs as pairs to fit or to score."""
        return Functions(self.fields, "training", self.kappa[index], self.u[index])


@dataclass(frozen=True)
class SensorPlan:
    """Which sensors a fit is scored with.

    Attributes
    ----------
    counts : tuple of int
        Numbers of sensors at random points, or (m,) of fixed ones.
    fixed : Tensor of int, shape (m,), or None
        Points of the input where all sensors stand.
    noise_std : float
        In the transformed field.
    """

    counts: tuple[int, ...]
    fixed: Tensor | None
    noise_std: float

    def sensors(self, data: EncodedRuns) -> object:
        """Return the counts or the places, as a user states them."""
        if self.fixed is None:
            return list(self.counts)
        return data.inputs[0].domain.points()[self.fixed].tolist()

    def levels(self, data: EncodedRuns) -> Tensor:
        """Return the noise at each point of the (encoded) input, shape (n,)."""
        parts = [
            torch.full((f.domain.size,), self.noise_std / f.scale, dtype=torch.float64)
            for f in data.inputs
        ]
        return torch.cat(parts)

    def layouts(self, count: int, sets: int, points: int, seed: int, purpose: str) -> Tensor:
        """Return points (sets, count) of the input at which sensors stand."""
        if self.fixed is not None:
            return self.fixed.expand(sets, -1)
        generator = numpy_generator(seed, "fit", "layouts", purpose, count)
        drawn = [generator.choice(points, count, replace=False) for _ in range(sets)]
        return torch.from_numpy(np.stack(drawn))


class HeldOutRuns:
    """Held-out runs with sensors on them, and what models score there."""

    def __init__(self, data: EncodedRuns, index: np.ndarray, plan: SensorPlan, seed: int) -> None:
        index = index[:SCORED_RUNS]
        kappa, self._u = data.kappa[index].double(), data.u[index].double()
        points = data.fields.input.grid.points()
        noise = plan.levels(data)
        generator = numpy_generator(seed, "fit", "validation noise")
        self._sets: dict[int, tuple[Observations, Tensor]] = {}
        for count in plan.counts:
            places = plan.layouts(count, len(index), len(points), seed, "validation")
            level = noise[places]
            drawn = torch.from_numpy(generator.standard_normal(places.shape))
            values = kappa.gather(1, places) + level * drawn
            mask = torch.ones_like(places, dtype=torch.bool)
            self._sets[count] = Observations(points[places], values, mask), level
        size = self._u.shape[1]
        step = numpy_generator(seed, "fit", "scored points").permutation(size)[:SCORED_POINTS]
        self._columns = torch.from_numpy(np.sort(step))
        self._queries = data.fields.output.grid.points()[self._columns]
        self._truth = self._u[:, self._columns]

    def moments(self, model: Operator, count: int, size: int = 512) -> tuple[Tensor, Tensor]:
        """Return mean and std (B, k) of each set's answer at the scored points.

        `size` latent samples are behind them where there is no closed form.
        """
        o, noise = self._sets[count]
        basis: tuple[Tensor, Tensor] | None = None
        means, stds = [], []
        for first in range(0, len(o.values), PART):
            part = slice(first, first + PART)
            answer = model.condition(o.locations[part], o.values[part], o.mask[part], noise[part])
            mean, covariance = answer.coefficient_moments(size)
            basis = basis or answer.basis(self._queries)
            means.append(basis[0] + mean @ basis[1].T)
            stds.append(spread(basis[1], covariance))
        return torch.cat(means), torch.cat(stds)

    def scores(self, model: Operator, remainder: Tensor | None = None) -> Tensor:
        """Return the CRPS (counts, B) of Gaussian bands, averaged over the scored points."""
        rows = []
        for count in self._sets:
            mean, std = self.moments(model, count)
            if remainder is not None:
                std = (std.square() + remainder[self._columns].square()).sqrt()
            rows.append(gaussian_crps(mean, std, self._truth).mean(1))
        return torch.stack(rows)

    def errors(self, model: Operator) -> dict[int, float]:
        """Return the root mean square error of the mean by sensor count."""
        found = {}
        for count in self._sets:
            mean, _ = self.moments(model, count, 128)
            found[count] = float((mean - self._truth).square().mean().sqrt())
        return found


class HeldOutValidator:
    """Skill over no sensors, and over cokriging, on held-out runs (`Validator`)."""

    def __init__(self, held_out: HeldOutRuns, sensor_free: Operator, cokriging: Operator) -> None:
        self._held_out = held_out
        self._free = held_out.errors(sensor_free)
        self._cokriging = held_out.errors(cokriging)

    def columns(self, model: OperatorModel) -> dict[str, float]:
        """Return ``skill_mean_<m>`` and ``over_cokriging_<m>``."""
        error = self._held_out.errors(model)  # type: ignore[arg-type]
        against = skill_columns("over_cokriging", error, self._cokriging)
        return skill_columns("skill_mean", error, self._free) | against


def sensor_plan(data: EncodedRuns, sensors: object, noise_std: float) -> SensorPlan:
    """Return the plan for what a user said about sensors (`fit`)."""
    points = data.fields.input.grid.size
    if sensors is None:
        sensors = [min(m, points) for m in COUNTS]
    found = counts_or_places(sensors, data.inputs, points)
    if isinstance(found, list):
        return SensorPlan(tuple(found), None, noise_std)
    nearest = torch.cdist(found, data.inputs[0].domain.points()).argmin(1).unique()
    return SensorPlan((len(nearest),), nearest, noise_std)

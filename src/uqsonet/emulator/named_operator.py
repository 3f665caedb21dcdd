"""An operator model between fields with names, units and scales."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from uqsonet.errors import ObservationError
from uqsonet.fields.field import Field, part_columns, part_locations
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.gauss.posterior import Posterior, SeparatePosterior
from uqsonet.sensors.sensors import Sensors

if TYPE_CHECKING:  # needed only for sensors of outputs
    from uqsonet.laws.bases import KarhunenLoeveBases
    from uqsonet.operator.joint import JointPosterior


class Operator(Protocol):
    """A trained operator model, or a baseline."""

    fields: OperatorFields

    def condition_on(self, sensors: Sensors) -> Posterior:
        """Return the law of the output given sensors that have been checked."""
        ...


@dataclass(frozen=True)
class Calibration:
    """Runs that nothing was fitted to, as a model sees them."""

    inputs: Tensor  # (n, points), float32
    outputs: Tensor  # (n, k), float32, at some points
    columns: Tensor  # (k,), numbers of these points

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True)
class NamedOperator:
    """An operator that takes sensors as users state them and returns laws of coefficients.

    It is all of a model that an answer needs, and answers hold it. Fields are numbered as sensors
    number them: inputs first, then outputs.
    """

    operator: Operator
    """OperatorModel or baseline; it works in the coordinates that it was trained in."""
    inputs: list[Field]
    outputs: list[Field]
    encoded: bool = True
    """The operator works on fields that `Field.encode` has transformed and scaled. False for the
    paper's operators, which transform by themselves."""
    noise_std: float | None = 0.0
    """Noise of sensors of inputs that state none; None leaves it to the operator."""
    remainder: Tensor | None = None
    """Std (n,) of what the operator's output modes leave out, at the output's points."""
    calibration: Calibration | None = None
    given_inputs: Operator | None = None
    """What answers sensors of inputs, where that is not the operator."""
    given_outputs: Operator | None = None
    """The same where some of the sensors are of outputs."""

    @property
    def fields(self) -> OperatorFields:
        """Input and output as the operator has them."""
        return self.operator.fields

    @property
    def named_fields(self) -> list[Field]:
        """The input fields, then the output fields."""
        return self.inputs + self.outputs

    @property
    def method(self) -> str:
        """Name of the operator's method, for messages."""
        return getattr(self.operator, "method", type(self.operator).__name__)

    @property
    def bases(self) -> KarhunenLoeveBases | None:
        """Bases of both sides, where the operator has them."""
        return getattr(self.operator, "bases", None)

    def default_noise(self, number: int) -> float:
        """Return the noise of sensors of a field that state none: those of outputs are exact."""
        if number >= len(self.inputs):
            return 0.0
        own = self.noise_std
        return float(getattr(self.operator, "noise_std", 0.0) if own is None else own)

    def locations(self, number: int, x: Tensor) -> Tensor:
        """Return points (M, d) of a field as the operator has them."""
        if number < len(self.inputs):
            return part_locations(number, x, self.fields.input.grid)
        return part_locations(number - len(self.inputs), x, self.fields.output.grid)

    def remainder_at(self, number: int, x: Tensor) -> Tensor | None:
        """Return the std (M,) of what the modes leave out of a field at points (M, d)."""
        one = self.named_fields[number]
        if number < len(self.inputs):
            assert self.bases is not None
            return float(self.bases.input_remainder) * one.scale * torch.ones_like(x[:, 0])
        if self.remainder is None:
            return None
        left = self.remainder[part_columns(self.outputs, number - len(self.inputs))].double()
        return one.domain.interpolate(left[:, None], x)[:, 0].abs() * one.scale

    def reads_outputs(self, sets: Sensors) -> bool:
        """Whether some of the sensors are of output fields."""
        return bool((sets.mask & (sets.field >= len(self.inputs))).any())

    def law(self, sets: Sensors) -> Posterior:
        """Return the law of the output given sensors of inputs."""
        by_set, encoded = self.answering(sets), self.encode(sets)
        if len(set(map(id, by_set))) == 1:
            return by_set[0].condition_on(encoded)
        alone = [one.condition_on(encoded.alone(b)) for b, one in enumerate(by_set)]
        return SeparatePosterior(sets.single, alone)

    def answering(self, sets: Sensors) -> list[Operator]:
        """Return what answers each set; without sensors it is the operator."""
        given = self.given_inputs or self.operator, self.given_outputs or self.operator
        read = (sets.mask & (sets.field >= len(self.inputs))).any(1).tolist()
        some = sets.mask.any(1).tolist()
        return [given[k] if any else self.operator for k, any in zip(read, some, strict=True)]

    def joint_law(self, sets: Sensors) -> JointPosterior:
        """Return the law of both sides given sensors of either.

        It raises `ObservationError` if the operator knows no law of its input.
        """
        if not hasattr(self.operator, "condition_both"):
            raise ObservationError(
                f"{self.method} has no law of its input, so it takes no sensors of its output and "
                "answers nothing about its input; the Karhunen-Loeve model does"
            )
        by_set: list[Any] = self.answering(sets)
        seen, read = self.encode(sets), self.encode(sets, outputs=True)
        if len(set(map(id, by_set))) == 1:
            return by_set[0].condition_both(seen, read)
        from uqsonet.operator.joint import together

        alone = [one.condition_both(seen.alone(b), read.alone(b)) for b, one in enumerate(by_set)]
        return together(alone, sets.single)

    def encode(self, sets: Sensors, outputs: bool = False) -> Sensors:
        """Return the sensors of one side as the operator takes them."""
        fields, first = (self.outputs, len(self.inputs)) if outputs else (self.inputs, 0)
        number = sets.field - first
        used = sets.mask & (number >= 0) & (number < len(fields))
        if outputs or self.reads_outputs(sets):
            keep = used.any(0)  # the rest are sensors of the other side in every set
            sets, number, used = sets.each(lambda t: t[:, keep]), number[:, keep], used[:, keep]
        values, noise = torch.ones_like(sets.values), sets.noise_std
        if self.encoded:
            scale = torch.tensor([f.scale for f in fields], dtype=torch.float64)
            noise = noise.nan_to_num(nan=self.default_noise(first))
            noise = noise / scale[number.clamp(0, len(fields) - 1)]
        for k, one in enumerate(fields):
            here = (number == k) & used
            values[here] = one.encode(sets.values[here]) if self.encoded else sets.values[here]
        domain = self.fields.output.domain if outputs else self.fields.input.domain
        x = part_locations(number, sets.locations, domain)
        x = x * used.view(*used.shape, *[1] * (x.ndim - 2))
        return replace(sets, locations=x, values=values, mask=used, noise_std=noise, field=number)

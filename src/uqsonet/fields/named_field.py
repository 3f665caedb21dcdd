"""Fields by name: what a user calls them, their units, and how a model takes them as one.

A model knows one input and one output. Several fields become one on the domains side by side
(`uqsonet.fields.stacked.JointDomain`), each transformed and divided by its standard deviation, so
that none of them outweighs the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from uqsonet.errors import DataError
from uqsonet.fields.field import Transform
from uqsonet.fields.grid import Domain
from uqsonet.fields.stacked import JointDomain, domain_as_dict, domain_from_dict


@dataclass(frozen=True)
class NamedField:
    """One field as its users know it.

    Attributes
    ----------
    name, units : str
    domain : Grid or PointCloud
    transform : Transform
        Between the field's values and those that its law is stated in.
    scale : float
        Standard deviation of the transformed field over runs and points; a model sees the
        transformed field divided by it.
    lowest, highest : float
        Range of the values that training saw.
    """

    name: str
    domain: Domain
    transform: Transform = field(default_factory=Transform)
    scale: float = 1.0
    units: str = ""
    lowest: float = float("-inf")
    highest: float = float("inf")

    def encode(self, values: Tensor) -> Tensor:
        """Map values of the field to what a model sees."""
        return self.transform.forward(values) / self.scale

    def decode(self, encoded: Tensor) -> Tensor:
        """Map what a model sees to values of the field."""
        return self.transform.inverse(encoded * self.scale)

    @property
    def label(self) -> str:
        """Name and units, for axes and columns."""
        return f"{self.name} [{self.units}]" if self.units else self.name

    def as_dict(self) -> dict[str, Any]:
        """Return the field as it is stored in a header."""
        plain = {k: getattr(self, k) for k in ("name", "units", "scale", "lowest", "highest")}
        grid = domain_as_dict(self.domain)
        return {**plain, "transform": self.transform.name, "grid": grid}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> NamedField:
        """Return the field that a header holds.

        Raises
        ------
        DataError
            If it is incomplete.
        """
        try:
            numbers = [float(stored[k]) for k in ("scale", "lowest", "highest")]
            domain, transform = domain_from_dict(stored["grid"]), Transform(stored["transform"])
            name, units = str(stored["name"]), str(stored["units"])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"a named field cannot be read ({error!r})") from None
        scale, lowest, highest = numbers
        if not (0 < scale < float("inf")) or not lowest <= highest:
            raise DataError(f"field {name!r}: scale {scale:g}, values {lowest:g} to {highest:g}")
        return cls(name, domain, transform, scale, units, lowest, highest)


def part_locations(number: int, x: Tensor, joint: Domain) -> Tensor:
    """Return locations (..., d) of field `number` as locations of the fields taken as one."""
    return joint.locations(number, x) if isinstance(joint, JointDomain) else x


def part_columns(fields: Sequence[NamedField], number: int) -> slice:
    """Return the columns of field `number` in rows of all fields side by side."""
    first = sum(field.domain.size for field in fields[:number])
    return slice(first, first + fields[number].domain.size)

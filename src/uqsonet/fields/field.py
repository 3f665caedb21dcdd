"""A field: its name and units, its domain, and the transform that its law is stated in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from uqsonet.errors import DataError
from uqsonet.fields.layout import Layout
from uqsonet.fields.stacked import Domain, JointDomain, domain_as_dict, domain_from_dict

AXES = ("x", "y", "z")  # names of coordinates that have none of their own
TRANSFORMS = ("identity", "log", "asinh")  # names of transforms


@dataclass(frozen=True)
class Transform:
    """A pointwise map from the values of a field to values that a Gaussian law may describe.

    Attributes
    ----------
    name : {"identity", "log", "asinh"}
        Observation noise is additive in the transformed field. With ``log`` it is therefore
        multiplicative in the field itself: ``k exp(eps)``, as in section 4.1. ``asinh`` is for
        heavy tails of either sign: linear near zero, a logarithm far from it.
    unit : float
        What ``asinh`` divides by.
    lower, upper : float
        Ends that the field does not leave: the transform takes what is beyond them back there.
    """

    name: str = "identity"
    unit: float = 1.0
    lower: float = float("-inf")
    upper: float = float("inf")

    def __post_init__(self) -> None:
        if self.name not in TRANSFORMS:
            raise ValueError(
                f"transform {self.name!r} is unknown; there are identity, log and asinh"
            )
        if not (0 < self.unit < float("inf") and self.lower < self.upper):
            raise ValueError(f"{self} has no positive unit, or no range")

    @property
    def linear(self) -> bool:
        """Whether moments of the field are those of the transformed one."""
        return self.name == "identity" and self.lower == -self.upper == float("-inf")

    @property
    def positive(self) -> bool:
        """Whether the field must be positive."""
        return self.name == "log"

    def forward(self, values: Tensor) -> Tensor:
        """Map values of the field to the transformed field."""
        if self.name == "asinh":
            return (values / self.unit).asinh()
        return values.log() if self.name == "log" else values

    def inverse(self, transformed: Tensor) -> Tensor:
        """Map the transformed field to values of the field."""
        if self.linear:
            return transformed
        if self.name == "asinh":
            transformed = transformed.sinh() * self.unit
        values = transformed.exp() if self.name == "log" else transformed
        return values.clamp(self.lower, self.upper)

    def as_dict(self) -> dict[str, Any]:
        """Return what a header holds besides the name, where it is not as usual."""
        usual, numbers = vars(Transform()), {k: v for k, v in vars(self).items() if k != "name"}
        return {k: v for k, v in numbers.items() if v != usual[k]}


def beside(tensor: Tensor, numbers: Sequence[float]) -> Tensor:
    """Return numbers as a tensor of the type, and on the device, of another.

    They are filled in, not copied from the host: a CUDA graph can record that.
    """
    return torch.stack([tensor.new_full((), number) for number in numbers])


def centred(domain: Domain, locations: Tensor) -> Tensor:
    """Map locations (..., d) of a domain's box to [-1, 1]^d."""
    lower, upper = (beside(locations, end) for end in (domain.lower, domain.upper))
    return 2 * (locations - lower) / (upper - lower) - 1


@dataclass(frozen=True)
class Field:
    """One field: what users call it, where it lives, and how a model sees it.

    A model knows one input and one output. Several fields become one on the domains side by side
    (`uqsonet.fields.stacked.JointDomain`), each transformed and divided by its standard deviation,
    so that none of them outweighs the others.

    Attributes
    ----------
    name : str
    domain : Grid, PointCloud or JointDomain
    transform : Transform
        Between the field's values and those that its law is stated in.
    scale : float
        Standard deviation of the transformed field over runs and points; a model sees the
        transformed field divided by it.
    units : str
    lowest, highest : float
        Range of the values that training saw.
    layout : Layout or None
        How the field stands in its file: names, order, missing points.
    """

    name: str
    domain: Domain
    transform: Transform = Transform()
    scale: float = 1.0
    units: str = ""
    lowest: float = float("-inf")
    highest: float = float("inf")
    layout: Layout | None = field(default=None, compare=False, repr=False)

    @property
    def axes(self) -> tuple[str, ...]:
        """Name of each coordinate: that of the file, else x, y, z."""
        return AXES[: self.domain.dim] if self.layout is None else self.layout.axes

    @property
    def axis_labels(self) -> tuple[str, ...]:
        """Name and units of each coordinate, for axes of pictures."""
        coordinates = () if self.layout is None else self.layout.coordinates
        known = {one.name: one.attributes.get("units", "") for one in coordinates}
        return tuple(f"{a} [{known[a]}]" if known.get(a) else a for a in self.axes)

    def wrapped(self, places: Tensor) -> Tensor:
        """Return places (..., d) with longitudes moved by whole turns into the domain."""
        if self.layout is None or places.shape[-1] != self.domain.dim:
            return places
        turned = places.clone()
        for k in self.layout.longitudes:
            off = turned[..., k] - (self.domain.lower[k] + self.domain.upper[k]) / 2
            turned[..., k] -= torch.where(off.abs() > 180, 360 * (off / 360).round(), 0)
        return turned

    @property
    def symbol(self) -> str:
        """The name, as fields of an operator call it."""
        return self.name

    @property
    def grid(self) -> Domain:
        """The domain, as fields of an operator call it."""
        return self.domain

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
        layout = {} if self.layout is None else {"layout": self.layout.as_dict()}
        more = self.transform.as_dict()
        more = {"transform_numbers": more} if more else {}
        return {**plain, "transform": self.transform.name, "grid": grid, **more, **layout}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Field:
        """Return the field that a header holds.

        Raises
        ------
        DataError
            If it is incomplete.
        """
        try:
            numbers = [float(stored[k]) for k in ("scale", "lowest", "highest")]
            domain = domain_from_dict(stored["grid"])
            more = {k: float(v) for k, v in stored.get("transform_numbers", {}).items()}
            transform = Transform(stored["transform"], **more)
            name, units = str(stored["name"]), str(stored["units"])
            layout = stored.get("layout") and Layout.from_dict(stored["layout"], domain.size)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"a named field cannot be read ({error!r})") from None
        scale, lowest, highest = numbers
        if not (0 < scale < float("inf")) or not lowest <= highest:
            raise DataError(f"field {name!r}: scale {scale:g}, values {lowest:g} to {highest:g}")
        return cls(name, domain, transform, scale, units, lowest, highest, layout)

    def read(
        self,
        functions: Tensor,
        index: Tensor,
        noise: Tensor | None = None,
        points: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Read functions at sensors that stand on grid points.

        Parameters
        ----------
        functions : Tensor, shape (B, n)
        index : Tensor of int, shape (B, m)
            Flat indices of grid points.
        noise : Tensor, shape (B, m), optional
            Added in the transformed field.
        points : Tensor, shape (n, d), optional
            The grid's points where a caller has them at hand.

        Returns
        -------
        locations : Tensor, shape (B, m, d)
        values : Tensor, shape (B, m)
        """
        values = self.noisy(functions.gather(-1, index), noise)
        points = self.domain.points().to(functions) if points is None else points
        return points[index], values

    def noisy(self, values: Tensor, noise: Tensor | None) -> Tensor:
        """Return values of the field with noise, of their shape, added in the transformed field."""
        if noise is None:
            return values
        values = values.to(torch.promote_types(values.dtype, noise.dtype))
        return self.transform.inverse(self.transform.forward(values) + noise)


def part_locations(number: int | Tensor, x: Tensor, joint: Domain) -> Tensor:
    """Return locations (..., d) in fields of these numbers as locations of the fields as one."""
    return joint.locations(number, x) if isinstance(joint, JointDomain) else x[..., : joint.dim]


def part_columns(fields: Sequence[Field], number: int) -> slice:
    """Return the columns of field `number` in rows of all fields side by side."""
    first = sum(field.domain.size for field in fields[:number])
    return slice(first, first + fields[number].domain.size)

"""What a model knows of an operator: its input, its output, and which points training saw.

Problems make it, and it is stored with the weights. A model needs nothing else, so it can be used
where no problem of that name exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from uqsonet.errors import DataError
from uqsonet.fields.field import Field, Transform
from uqsonet.fields.stacked import Domain, domain_as_dict, domain_from_dict


@dataclass(frozen=True)
class OperatorFields:
    """What a model knows of an operator.

    Attributes
    ----------
    name : str
        Where the fields come from: a problem, or a user's own data.
    input, output : Field
    output_stride : int
        Training saw every `output_stride`-th point of the output's grid along each axis.
    zero_boundary : bool
        The output vanishes on the boundary of its box.
    random_operator : bool
        The output depends on something that no sensor of the input sees (sections 4.3, 4.4).
    """

    name: str
    input: Field
    output: Field
    output_stride: int = 1
    zero_boundary: bool = False
    random_operator: bool = False

    def training_grid(self) -> tuple[Domain, Tensor]:
        """Return the grid of outputs seen in training and its flat indices in the full grid."""
        return self.output.grid.subgrid(self.output_stride)

    def boundary_factor(self, queries: Tensor) -> Tensor:
        """Return the factor (...,) that is zero on the boundary if u is, at queries (..., d).

        The lowest polynomial that vanishes there and nowhere else (section 4, hard constraint).
        """
        if not self.zero_boundary:
            return torch.ones_like(queries[..., 0])
        lower = queries.new_tensor(self.output.grid.lower)
        upper = queries.new_tensor(self.output.grid.upper)
        return ((queries - lower) * (upper - queries)).prod(-1)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as they are stored in the header of a file."""
        names = ("name", "output_stride", "zero_boundary", "random_operator")
        found = {name: getattr(self, name) for name in names}
        for side, field in (("input", self.input), ("output", self.output)):
            grid, transform = domain_as_dict(field.grid), field.transform.name
            found[side] = {"symbol": field.symbol, "grid": grid, "transform": transform}
        return found

    @classmethod
    def from_dict(cls, stored: object) -> OperatorFields:
        """Return the fields that a header holds.

        Raises
        ------
        DataError
            If they are incomplete, or describe a grid that no file can be about.
        """
        try:
            assert isinstance(stored, Mapping), f"found {type(stored).__name__}"
            rest = {k: stored[k] for k in ("output_stride", "zero_boundary", "random_operator")}
            sides = {}
            for side in ("input", "output"):
                one = stored[side]
                grid, transform = domain_from_dict(one["grid"]), Transform(one["transform"])
                sides[side] = Field(str(one["symbol"]), grid, transform)
            found = cls(str(stored["name"]), **sides, **rest)
            found.training_grid()
        except (AssertionError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"fields cannot be read ({error!r})") from None
        return found

"""Where sensors may stand, and how many."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from uqsonet.operator.config import Section

Distance = Annotated[float, Field(gt=0)]


class SensorsConfig(Section):
    """Where sensors may stand and how many."""

    counts: list[Annotated[int, Field(ge=1, le=1000)]] = Field(
        min_length=1, description="Admissible sensor counts, the set M of the paper."
    )
    pool: int = Field(
        default=20_000, ge=1, le=10_000_000, description="Pregenerated layouts per sensor count."
    )
    layout: Literal["uniform", "regular_space"] = Field(
        default="uniform",
        description="`uniform`: distinct grid points, each equally likely; `regular_space`: "
        "regular-space clustering of permuted grid points keeps sensors apart (section 4.2).",
    )
    margin: float = Field(
        default=0.0,
        ge=0,
        description="Sensors stand on grid points at least this far from the boundary of the box, "
        "in units of the domain.",
    )
    distances: dict[int, Distance] = Field(
        default={},
        description="Sensor count -> least distance d_min between sensors (regular_space); counts "
        "without an entry are uniform.",
    )
    backend: Literal["deeptime", "pyemma"] = Field(
        default="deeptime",
        description="Library that clusters. Both give the same layouts; pyemma is the one that the "
        "paper names, slower, and has to be installed (`make pyemma`).",
    )

    @field_validator("counts")
    @classmethod
    def _ascending(cls, counts: list[int]) -> list[int]:
        if sorted(set(counts)) != counts:
            raise ValueError("sensor counts must be distinct and ascending")
        return counts

    @model_validator(mode="after")
    def _distances_fit(self) -> SensorsConfig:
        if self.layout != "regular_space" and self.distances:
            raise ValueError("distances have a meaning only with layout: regular_space")
        if self.layout == "regular_space" and not self.distances:
            raise ValueError("layout: regular_space needs distances, sensor count -> d_min")
        extra = sorted(set(self.distances) - set(self.counts))
        if extra:
            raise ValueError(f"distances for {extra}, which are not among counts {self.counts}")
        if 1 in self.distances:
            raise ValueError("distances for 1: a single sensor has no other to be apart from")
        return self

    def only(self, count: int) -> SensorsConfig:
        """Return the same (uniform) layouts for one of the counts."""
        return self.model_copy(update={"counts": [count]})

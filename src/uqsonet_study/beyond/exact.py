"""The law that a problem draws its inputs from, in place of a fitted one.

With the operator of a trained model it is what remains if the law were right. No weight file can
hold it: it is put into the model where an evaluation loads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import ConfigError
from uqsonet.gauss.given import Given, Separate, Whole
from uqsonet.laws.base import InputLaw, Linear
from uqsonet.laws.bases import KarhunenLoeveBases
from uqsonet.operator.weight_files import read_weights
from uqsonet.sensors.sensors import Sensors
from uqsonet_study.priors.law import Law
from uqsonet_study.problems import get_problem

EXACT = "exact"  # name of this law in a recipe


def is_exact(weights: Sequence[Path]) -> bool:
    """Return whether weights are those of an operator that answers with the exact law."""
    return read_weights(weights[0])[1].get("law", {}).get("asked") == EXACT


class ExactLaw(InputLaw):
    """The exact law of a problem's input (this module's text)."""

    name = EXACT
    separate, reads_functionals = True, False

    def __init__(self, problem: str) -> None:
        self._problem = get_problem(problem)

    def tensors(self) -> dict[str, Tensor]:
        """Return nothing: the law is the problem's own."""
        return {}

    def condition(
        self, bases: KarhunenLoeveBases, sensors: Sensors, also: Linear | None = None
    ) -> Given | None:
        """Return the exact posterior of each set; all its sensors have the same noise."""
        if also is not None:
            return None
        laws = []
        for s, used in enumerate(sensors.mask):
            noise = sensors.noise()[s, used]
            level = float(noise[0]) if len(noise) else 0.0
            values = bases.fields.input.transform.forward(sensors.values[s, used].double())
            law = self._problem.prior.posterior(sensors.locations[s, used], values, level)
            if law is None:
                raise ConfigError(f"problem {self._problem.name}: nobody knows its posterior")
            laws.append(ExactGiven(bases, law))
        return Separate(laws)


class ExactGiven(Given):
    """Coefficients of fields that the exact posterior of one set draws."""

    def __init__(self, bases: KarhunenLoeveBases, law: Law) -> None:
        self._bases, self._law = bases, law

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Return coefficients (1, size, r) of drawn fields."""
        (fields,) = self._drawn(size, generator)
        return self._bases.coefficients_of(fields)[None]

    @property
    def functions(self) -> Whole:
        """Drawn fields."""
        return self._drawn

    def _drawn(self, size: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Yield fields (size, n), float32."""
        seed = int(torch.randint(2**62, (), generator=generator))
        yield self._law.draw(np.random.default_rng(seed), size).float()

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
from uqsonet.gauss.seeds import restarted
from uqsonet.laws.base import InputLaw, InputPosterior
from uqsonet.laws.bases import KarhunenLoeveBases
from uqsonet.operator.file import read_weights
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
    separate = True

    def __init__(self, problem: str) -> None:
        self._problem = get_problem(problem)

    def tensors(self) -> dict[str, Tensor]:
        """Return nothing: the law is the problem's own."""
        return {}

    def condition(self, bases: KarhunenLoeveBases, sensors: Sensors) -> ExactPosterior:
        """Return the exact posterior of each set; all its sensors have the same noise."""
        laws = []
        for s, used in enumerate(sensors.mask):
            noise = sensors.noise()[s, used]
            level = float(noise[0]) if len(noise) else 0.0
            values = bases.fields.input.transform.forward(sensors.values[s, used].double())
            law = self._problem.prior.posterior(sensors.locations[s, used], values, level)
            if law is None:
                raise ConfigError(f"problem {self._problem.name}: nobody knows its posterior")
            laws.append(law)
        return ExactPosterior(bases, laws)


class ExactPosterior(InputPosterior):
    """Coefficients of fields that the exact posteriors draw."""

    def __init__(self, bases: KarhunenLoeveBases, laws: list[Law]) -> None:
        self._bases, self._laws = bases, laws

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Return coefficients (B, size, r) of drawn fields."""
        every = self.fields(self._bases, size, generator)
        return torch.stack([self._bases.coefficients_of(fields) for fields in every])

    def fields(
        self, bases: KarhunenLoeveBases, size: int, generator: torch.Generator
    ) -> Iterator[Tensor]:
        """Yield fields (size, n) of each set, float32."""
        for law in restarted(generator, self._laws):
            seed = int(torch.randint(2**62, (), generator=generator))
            yield law.draw(np.random.default_rng(seed), size).float()

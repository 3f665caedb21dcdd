"""What answers each number of sensors: a model, or what it must not be worse than.

Held-out runs say what is best for some numbers of sensors (`uqsonet.fitting.choose_answer`). Others
are answered by what is best for the nearest of these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from uqsonet.errors import DataError
from uqsonet.gauss.posterior import Posterior, SeparatePosterior
from uqsonet.operator.baselines import Cokriging, Unread
from uqsonet.operator.joint import together
from uqsonet.operator.regression import KernelRegression

if TYPE_CHECKING:
    from torch import Tensor

    from uqsonet.fields.operator_fields import OperatorFields
    from uqsonet.operator.joint import JointPosterior
    from uqsonet.sensors.sensors import Sensors

SIDES = ("inputs", "outputs")
"""What sensors read: inputs alone, or outputs, too."""

Choice = Mapping[str, Mapping[int, str]]
"""For each of `SIDES` and each number of sensors that was tried the name of what answers."""


def candidates(model: Any, unexplained: Tensor, pairs: Sequence[Tensor | None]) -> dict[str, Any]:
    """Return what may answer in the bases of a model, by name, the model first.

    Parameters
    ----------
    model : KarhunenLoeveModel
    unexplained : Tensor, shape (p, p)
        Root of the covariance that its best linear operator leaves (`unexplained_root`).
    pairs : sequence of Tensor, shapes (N, n) and (N, M), or None
        Training pairs; where one is None there is no regression.
    """
    named: dict[str, Any] = {"uqsonet": model}
    inputs, outputs = pairs
    if inputs is not None and outputs is not None:
        named["kernel_regression"] = KernelRegression(model.bases, inputs, outputs)
    named["cokriging"] = Cokriging.on(model.bases, unexplained)
    named["mean"] = Unread.on(model.bases, unexplained)
    return named


@dataclass(frozen=True)
class Floor:
    """An operator that answers by one of several, as the number of sensors asks for.

    Attributes
    ----------
    operators : dict of str to operator
        The model (``uqsonet``) and those of its `candidates` that answer some number of sensors.
    choice : dict
        See `Choice`.
    """

    operators: dict[str, Any]
    choice: Choice

    @classmethod
    def of(
        cls, model: Any, unexplained: Tensor, pairs: Sequence[Tensor | None], choice: Choice
    ) -> Floor:
        """Return the model and what answers in its place (parameters as of `candidates`).

        Raises
        ------
        DataError
            If there is no such answer.
        """
        named = candidates(model, unexplained, pairs)
        taken = {name for of_side in choice.values() for name in of_side.values()}
        if wrong := taken - named.keys():
            raise DataError(f"no answer by {', '.join(sorted(wrong))}")
        if not all(count > 0 for of_side in choice.values() for count in of_side):
            raise DataError("answers are for one sensor or more")
        kept = {k: one for k, one in named.items() if k in taken or k == "uqsonet"}
        return cls(kept, choice)

    @property
    def fields(self) -> OperatorFields:
        """Fields of the model."""
        return self.operators["uqsonet"].fields

    def answers(self, side: str, count: int) -> Any:
        """Return the operator that answers so many sensors of a side."""
        known = self.choice.get(side)
        if not count or not known:
            return self.operators["uqsonet"]
        nearest = min(known, key=lambda tried: (abs(math.log(tried / count)), tried))
        return self.operators[known[nearest]]

    def condition_on(self, sensors: Sensors) -> Posterior:
        """Return the law of the output given checked sensors of the input."""
        by_set = [self.answers("inputs", int(count)) for count in sensors.counts]
        if all(one is by_set[0] for one in by_set):
            return by_set[0].condition_on(sensors)
        alone = [one.condition_on(sensors.alone(b)) for b, one in enumerate(by_set)]
        return SeparatePosterior(sensors.single, alone)

    def condition_both(self, seen: Sensors, read: Sensors) -> JointPosterior:
        """Return the law of both sides given checked sensors of both."""
        counts = zip(seen.counts.tolist(), read.counts.tolist(), strict=True)
        by_set = [self.answers(SIDES[reads > 0], sees + reads) for sees, reads in counts]
        if all(one is by_set[0] for one in by_set):
            return by_set[0].condition_both(seen, read)
        alone = [one.condition_both(seen.alone(b), read.alone(b)) for b, one in enumerate(by_set)]
        return together(alone, seen.single)

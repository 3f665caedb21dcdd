"""The deep ensemble of the appendix: independent trainings of a deterministic method as one law.

Members differ in initialisation and in the order of data; their spread is what the ensemble takes
for uncertainty. Each draw is one member's function, so mean and standard deviation are those
over the members (Lakshminarayanan et al. 2017, without a learned variance).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from uqsonet.errors import ObservationError
from uqsonet.gauss.given import Given
from uqsonet.gauss.posterior import Basis, Posterior
from uqsonet.operator.base import Conditioned, OperatorModel
from uqsonet.operator.weight_files import load, read_weights
from uqsonet.sensors.sensors import Sensors


class DeepEnsemble(Conditioned):
    """Several trainings of a deterministic method, asked as one.

    Parameters
    ----------
    members : sequence of OperatorModel
        At least two, of one operator.

    Raises
    ------
    ObservationError
        If there are fewer than two members, or they belong to several operators.
    """

    method = "deep_ensemble"

    def __init__(self, members: Sequence[OperatorModel]) -> None:
        if len(members) < 2 or any(member.fields != members[0].fields for member in members):
            raise ObservationError("an ensemble needs at least two members, all of one operator")
        self.members, self.fields = list(members), members[0].fields

    def answer(self, sensors: Sensors) -> Posterior:
        """Return the law of u given checked sensors: each member's answer with equal weight.

        The basis holds all members' offsets and bases side by side, and the coefficients of a
        member are zero outside its own part.
        """
        answers = [member.condition_on(sensors).output for member in self.members]
        if any(member.probabilistic for member in self.members):
            raise ObservationError("members of an ensemble must be deterministic")
        basis = partial(_side_by_side, [one.basis for one in answers])
        parts = [torch.nn.functional.pad(one.law.mean, (1, 0), value=1.0) for one in answers]
        sets = zip(*(part.split(1) for part in parts), strict=True)
        rows = torch.stack([torch.block_diag(*members) for members in sets])
        return Posterior(self.fields.output.grid, basis, sensors.single, Members(rows))


def load_trials(paths: Iterable[Path]) -> Iterator[tuple[int, OperatorModel]]:
    """Yield (trial, model) for every trial of some weight files."""
    for path in paths:
        _, meta = read_weights(path)
        for trial in meta["trials"]:
            yield trial, load(path, trial)


def load_ensemble(paths: Sequence[Path]) -> DeepEnsemble:
    """Return the ensemble of all trials in some weight files."""
    return DeepEnsemble([model for _, model in load_trials(paths)])


class Members(Given):
    """Equal weights on rows (B, members, p) of coefficients."""

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows

    def estimate(self, size: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Return the exact moments over the members; the arguments have no influence."""
        mean = self._rows.mean(1)
        centred = self._rows - mean[:, None]
        return mean, centred.transpose(1, 2) @ centred / self._rows.shape[1]

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Return coefficients (B, size, p) of members drawn with equal chances."""
        chosen = torch.randint(self._rows.shape[1], (size,), generator=generator)
        return self._rows[:, chosen]


def _side_by_side(bases: Sequence[Basis], queries: Tensor) -> tuple[Tensor, Tensor]:
    """Return offset zero (M,) and the members' offsets and bases side by side, at queries."""
    columns = []
    for one in bases:
        offset, functions = one(queries)
        columns += [offset[:, None], functions]
    joined = torch.cat(columns, dim=1)
    return torch.zeros(len(joined), dtype=joined.dtype), joined

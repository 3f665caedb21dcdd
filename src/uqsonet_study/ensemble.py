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
from uqsonet.fields.stacked import Domain
from uqsonet.gauss.posterior import MOMENT_SAMPLES, Basis, PointPosterior, Posterior
from uqsonet.operator.base import OperatorModel
from uqsonet.operator.file import load, read_weights
from uqsonet.sensors.sensors import Sensors, checked_sensors


class DeepEnsemble:
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

    def __init__(self, members: Sequence[OperatorModel]) -> None:
        if len(members) < 2 or any(member.fields != members[0].fields for member in members):
            raise ObservationError("an ensemble needs at least two members, all of one operator")
        self.members, self.fields = list(members), members[0].fields

    def condition(
        self, locations: object, values: object, mask: object = None, noise_std: object = None
    ) -> Posterior:
        """Return the law of u given sensors: each member's answer with equal weight.

        Parameters and errors are those of `OperatorModel.condition`.
        """
        field = self.members[0].fields.input
        return self.condition_on(checked_sensors(field, locations, values, mask, noise_std))

    def condition_on(self, sensors: Sensors) -> Posterior:
        """Return the law of u given checked sensors."""
        answers = [member.condition_on(sensors) for member in self.members]
        return EnsemblePosterior(self.fields.output.grid, answers)


def load_trials(paths: Iterable[Path]) -> Iterator[tuple[int, OperatorModel]]:
    """Yield (trial, model) for every trial of some weight files."""
    for path in paths:
        _, meta = read_weights(path)
        for trial in meta["trials"]:
            yield trial, load(path, trial)


def load_ensemble(paths: Sequence[Path]) -> DeepEnsemble:
    """Return the ensemble of all trials in some weight files."""
    return DeepEnsemble([model for _, model in load_trials(paths)])


class EnsemblePosterior(Posterior):
    """Equal weights on the answers of the members.

    The basis holds all members' offsets and bases side by side, and the coefficients of a member
    are zero outside its own part.
    """

    def __init__(self, grid: Domain, answers: Sequence[Posterior]) -> None:
        points = [answer for answer in answers if isinstance(answer, PointPosterior)]
        if len(points) < len(answers):
            raise ObservationError("members of an ensemble must be deterministic")
        bases = [p.basis for p in points]
        super().__init__(grid, partial(_side_by_side, bases), points[0].single)
        parts = [torch.nn.functional.pad(p.coefficients, (1, 0), value=1.0) for p in points]
        sets = zip(*(part.split(1) for part in parts), strict=True)
        self._rows = torch.stack([torch.block_diag(*members) for members in sets])

    def coefficient_moments(
        self, size: int = MOMENT_SAMPLES, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the exact moments over the members; the arguments have no influence."""
        mean = self._rows.mean(1)
        centred = self._rows - mean[:, None]
        return mean, centred.transpose(1, 2) @ centred / self._rows.shape[1]

    def coefficient_samples(self, size: int, generator: torch.Generator) -> Tensor:
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

"""Fields of another time than the runs': a level and a scale that the readings find.

Runs of one century are asked about the next, those of one machine about another. Then fields are
off by what no run has. The Gaussian law of the runs gets a constant level of each input, whose
prior variance is one of `LEVELS` times the field's, and a scale of what remains, which is one of
`SCALES`: a mixture of Gaussian laws (`uqsonet.laws.components`). The evidence of the readings says
which of them it is. Most weight is on no drift, so that little is lost where there is none.

A constant is no sum of modes. What they leave of it becomes one more mode of each side. The answer
of the operator to that mode is not in the runs: fields that are answered from sensors of
themselves have the same level, others do not move with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from uqsonet.fields.field import Field, part_columns
from uqsonet.laws.bases import KarhunenLoeveBases
from uqsonet.laws.components import Components
from uqsonet.laws.mixture import MixtureLaw
from uqsonet.operator.model import KarhunenLoeveModel

LEVELS = {0.0: 0.6, 0.5: 0.1, 2.0: 0.1, 8.0: 0.1, 32.0: 0.1}
"""Variance of the level, over that of the field, and its weight before any reading."""

SCALES = {1.0: 0.7, 4.0: 0.1, 9.0: 0.1, 2.0: 0.1}
"""Variance of fields less the level, over that of the runs, and its weight before any reading."""

SEEN = 1e-6  # share of a level that modes leave out and that is no rounding


@torch.no_grad()
def with_levels(
    model: KarhunenLoeveModel, inputs: Sequence[Field], outputs: Sequence[Field]
) -> KarhunenLoeveModel:
    """Return a linear or kernel model with a level of each field as a sum of modes."""
    old = model.bases
    factor, modes = old.input_factor.double(), old.output_modes.double()
    constants = _constants(inputs, len(factor))
    more = _beyond(constants, factor, old.from_fields(), old.input_weights)
    also = _constants(outputs, len(modes))
    also = _beyond(also, modes, old.output_projection().double(), old.output_weights)

    sizes = {"input_modes": factor.shape[1] + more.shape[1]}
    sizes |= {"output_modes": modes.shape[1] + also.shape[1]}
    found = KarhunenLoeveModel(model.fields, model.config.model_copy(update=sizes), model.noise_std)
    known = model.state_dict()
    for name, buffer in found.state_dict().items():
        buffer.zero_()[tuple(map(slice, known[name].shape))] = known[name]
    bases = found.bases
    # As large as the last mode: it is the law that says how large a level may be.
    more = more * factor[:, -1].norm()
    bases.input_factor[:, factor.shape[1] :] = more
    bases.output_modes[:, modes.shape[1] :] = also
    if [one.name for one in inputs] == [one.name for one in outputs]:
        answers = bases.output_projection().double().T @ more / bases.output_scale.double()
        bases.linear_weight[:, factor.shape[1] :] = answers
    return found.eval()


def _constants(fields: Sequence[Field], points: int) -> Tensor:
    """Return a level of each field, (points, fields), float64."""
    found = torch.zeros(points, len(fields), dtype=torch.float64)
    for number in range(len(fields)):
        found[part_columns(fields, number), number] = 1.0
    return found


def _beyond(constants: Tensor, basis: Tensor, onto: Tensor, weights: Tensor | None) -> Tensor:
    """Return an orthonormal basis of what `basis` leaves of constants; weights are of points."""
    left = constants - basis @ (onto.T @ constants)
    root = torch.ones(len(left), 1, dtype=torch.float64)
    root = root if weights is None else weights.sqrt()[:, None]
    kept = (left * root).norm(dim=0) > SEEN * (constants * root).norm(dim=0)
    return torch.linalg.qr((left * root)[:, kept]).Q / root


def law_of_levels(bases: KarhunenLoeveBases, inputs: Sequence[Field]) -> MixtureLaw:
    """Return the Gaussian law of the runs with levels of the inputs and scales."""
    factor = bases.input_factor.double()
    constants = _constants(inputs, len(factor))
    along = constants.T @ bases.from_fields()  # (fields, r), coefficients of a level
    size = constants.T @ factor.square().sum(1) / constants.sum(0)  # variance of each field
    level = (along * size[:, None]).T @ along
    eye = torch.eye(len(level), dtype=torch.float64)
    roots = torch.stack([torch.linalg.cholesky(eye + one * level) for one in LEVELS])
    weights = (torch.tensor(list(one.values())).double() for one in (LEVELS, SCALES))
    one = Components(
        torch.outer(*weights).log(), torch.tensor(list(SCALES)).double().sqrt(),
        torch.zeros(1, len(level), dtype=torch.float64), roots.float(),
        bases.input_remainder.double().reshape(1).clone(),
    )  # fmt: skip
    return MixtureLaw([one], {}, factor.norm(dim=0))

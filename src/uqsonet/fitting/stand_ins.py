"""What a linear operator is fitted to where an output stands at an end of its range.

Rain is a latent value where that is positive, and zero
elsewhere (Tobin, Econometrica 26, 1958). An operator that is fitted to the zeros spreads about
them, to both sides. So values at an end are replaced by draws from beyond it, given the inputs,
under linear regression with the scatter of each point: regression and draws follow one another (Wei
& Tanner, J. Am. Stat. Assoc. 85, 1990). All points of a run share one random number, so that what
is drawn is as smooth as the field.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from uqsonet.fields.field import Field, part_columns
from uqsonet.gauss.blocks import RowBlocks
from uqsonet.gauss.principal_components import empirical_modes
from uqsonet.gauss.seeds import torch_generator
from uqsonet.laws.truncated import truncated_normal

REGRESSIONS = 10  # each followed by draws
MODES = 64  # maximum number of input modes that outputs are regressed on
DEEP = 3.0  # values beyond an end are at most so many standard deviations of the output beyond it


def with_hidden_values(
    u: RowBlocks, kappa: RowBlocks, outputs: Sequence[Field], training: np.ndarray, seed: int
) -> RowBlocks:
    """Return encoded outputs (N, M) whose values at an end of their range lie beyond it.

    The inputs `kappa` (N, n) are encoded, too; regression uses the runs of these numbers alone.
    """
    ends = [(one.transform.lower, one.transform.upper) for one in outputs]
    if all(low == -high == -math.inf for low, high in ends):
        return u
    count = min(MODES, len(training) // 4, kappa.shape[1])
    modes = empirical_modes(kappa.take(training), count, "modes")
    a = torch.cat([modes.coefficients(block) for block in kappa.blocks()])
    a = a / modes.std.clamp_min(1e-6 * float(modes.std[0]))
    uniform = torch.rand(
        len(u), 1, dtype=torch.float64, generator=torch_generator(seed, "fit", "hidden")
    )
    found = u.whole().clone()
    for number, (one, between) in enumerate(zip(outputs, ends, strict=True)):
        low, high = (float(one.encode(torch.tensor(end, dtype=torch.float64))) for end in between)
        columns = part_columns(outputs, number)
        v = found[:, columns].double()
        below, above = v <= low + 1e-6, v >= high - 1e-6
        for _ in range(REGRESSIONS):
            centre = v[training].mean(0)
            slopes = a[training].T @ (v[training] - centre) / len(training)
            mean = centre + a @ slopes
            std = (v - mean)[training].square().mean(0).sqrt().clamp_min(1e-6)
            start = torch.where(above, (high - mean) / std, -math.inf)
            end = torch.where(below, (low - mean) / std, math.inf)
            drawn = mean + std * truncated_normal(start, end, uniform)[0]
            drawn = drawn.clamp(low - DEEP, high + DEEP)
            v = torch.where(below | above, drawn, v)
        found[:, columns] = v.to(found.dtype)
    return RowBlocks.of(found)

"""What a linear operator is fitted to where values are no numbers for it: classes, ends of a range.

**Classes.** Their names are no numbers. Each class gets the score with which a ridge regression
explains the outputs best: alternating least squares, once over the operator and once over the
scores (optimal scaling; Young 1981, Psychometrika 46, 357). Of layers of rock this finds something
like 1 / k unasked. A permutation of the names permutes the scores.

**Outputs at an end of their range.** Rain is a latent value where that is positive, and zero
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
from torch import Tensor

from uqsonet.fields.field import Field, Transform, part_columns
from uqsonet.gauss.blocks import RowBlocks
from uqsonet.gauss.modes import empirical_modes
from uqsonet.gauss.seeds import torch_generator
from uqsonet.laws.truncated import truncated_normal

INPUT_POINTS = 400  # maximum number of points of the input that scores are estimated at
INPUT_RIDGE = 1e-3  # ridge on inner products of the inputs, as a share of their mean square
ALTERNATIONS = 30  # of scores and operator
REGRESSIONS = 10  # each followed by draws
DIGITS = 1e-6  # scores are rounded to this: sums in another order leave no trace
MODES = 64  # maximum number of input modes that outputs are regressed on
DEEP = 3.0  # values beyond an end are at most so many standard deviations of the output beyond it


def class_transform(fields: Tensor, outputs: Tensor, classes: Tensor) -> Transform:
    """Return the transform from classes to scores, whose mean is zero and variance one.

    The fields (N, n), to which outputs (N, M) belong, take the values `classes` (K,), ascending.
    """
    size = len(fields)
    some = fields[:, :: max(1, fields.shape[1] // INPUT_POINTS)].double()
    seen = torch.stack([(some == value).double() for value in classes.to(some)])
    share = seen.mean((1, 2))
    seen = seen - seen.mean(1, keepdim=True)
    y = outputs.double()
    y = y - y.mean(0)
    values, vectors = torch.linalg.eigh(y @ y.T)  # leading components of the outputs
    y = vectors[:, -INPUT_POINTS // 10 :] * values[-INPUT_POINTS // 10 :].clamp_min(0).sqrt()
    across = seen.transpose(1, 2) @ y / size  # (K, n, p)
    scores = torch.linalg.eigh(torch.einsum("knp,lnp->kl", across, across))[1][:, -1]
    eye = torch.eye(size, dtype=y.dtype)
    for _ in range(ALTERNATIONS):
        x = torch.tensordot(scores, seen, 1)
        inner = x @ x.T
        ridge = INPUT_RIDGE * inner.diagonal().mean() + 1e-300
        weights = x.T @ torch.linalg.solve(inner + ridge * eye, y)
        explained = (seen @ weights).flatten(1)
        # Shares of all classes add up to one: one direction of the scores has no effect.
        known = torch.linalg.pinv(explained @ explained.T, rtol=1e-9, hermitian=True)
        scores = known @ (explained @ y.flatten())
        scores = scores - share @ scores
        scores = scores / (share @ scores.square()).sqrt().clamp_min(1e-300)
    # The sign is that of the third moment.
    scores = scores * (1.0 if float(share @ scores**3) >= 0 else -1.0)
    scores = (scores / DIGITS).round() * DIGITS
    return Transform("classes", values=tuple(classes.tolist()), scores=tuple(scores.tolist()))


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

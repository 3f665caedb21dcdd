"""Scores of classes that do not depend on their names (optimal scaling).

A linear operator needs numbers where inputs are classes, and their names are none. Each class gets
the score with which a ridge regression explains the outputs best: alternating least squares, once
over the operator and once over the scores (Young 1981, Psychometrika 46, 357). Of layers of rock
this finds something like 1 / k unasked. A permutation of the names permutes the scores.
"""

from __future__ import annotations

import torch
from torch import Tensor

from uqsonet.fields.field import Transform

POINTS = 400
"""Maximum number of points of the input that scores are estimated at."""

RIDGE = 1e-3
"""Ridge on the inner products of the inputs of runs, as a share of their mean square."""

STEPS = 30
"""Number of alternations."""

DIGITS = 1e-6
"""Scores are rounded to this: sums in another order leave no trace."""


def class_transform(fields: Tensor, outputs: Tensor, classes: Tensor) -> Transform:
    """Return the transform from classes to scores, whose mean is zero and variance one.

    Parameters
    ----------
    fields : Tensor, shape (N, n)
    outputs : Tensor, shape (N, M)
    classes : Tensor, shape (K,)
        Values that the fields take, ascending.
    """
    size = len(fields)
    some = fields[:, :: max(1, fields.shape[1] // POINTS)].double()
    seen = torch.stack([(some == value).double() for value in classes.to(some)])
    share = seen.mean((1, 2))
    seen = seen - seen.mean(1, keepdim=True)
    y = outputs.double()
    y = y - y.mean(0)
    values, vectors = torch.linalg.eigh(y @ y.T)  # leading components of the outputs
    y = vectors[:, -POINTS // 10 :] * values[-POINTS // 10 :].clamp_min(0).sqrt()
    across = seen.transpose(1, 2) @ y / size  # (K, n, p)
    scores = torch.linalg.eigh(torch.einsum("knp,lnp->kl", across, across))[1][:, -1]
    eye = torch.eye(size, dtype=y.dtype)
    for _ in range(STEPS):
        x = torch.tensordot(scores, seen, 1)
        inner = x @ x.T
        ridge = RIDGE * inner.diagonal().mean() + 1e-300
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

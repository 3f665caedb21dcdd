"""An orthonormal basis of the training outputs: smooth functions need few of their M values.

Solutions of smooth equations fill a space of few dimensions. With an orthonormal basis V (M, r) of
it, ``u = V c``, a product with u costs r instead of M operations (2,601 points in 4.2, some
hundreds of dimensions), and norms are those of c.
"""

from __future__ import annotations

import torch
from torch import Tensor

from uqsonet.gauss.blocks import RowBlocks

TOLERANCE = torch.finfo(torch.float32).eps
"""Root mean square of what a basis leaves out, relative to that of the outputs: no more than
float32 leaves out of each stored value."""

WORTHWHILE = 0.8
"""Share of the points above which a basis is not used: products with it would cost as much."""

ROWS = 512
"""Functions that extend the basis at a time."""


def output_basis(outputs: RowBlocks) -> Tensor | None:
    """Return an orthonormal basis (M, r) of the outputs (N, M), float64, or None if r is near M.

    One pass. What the basis so far leaves out of a block of functions is decomposed, and
    directions are added, the largest first, until the rest of that block is within `TOLERANCE`. So
    the bound holds for each block and for the data as a whole.
    """
    points = outputs.shape[1]
    basis = torch.zeros(points, 0, dtype=torch.float64)
    for block in outputs.blocks(ROWS):
        rows = block.double()
        allowed = (TOLERANCE * rows.norm()).square()
        rest = rows
        for _ in range(2):  # twice: the second time removes the rounding of the first
            rest = rest - (rest @ basis) @ basis.T
        if rest.square().sum() <= allowed:
            continue
        _, values, directions = torch.linalg.svd(rest, full_matrices=False)
        # left[k]: what remains of the block if k directions are taken
        left = values.square().flip(0).cumsum(0).flip(0)
        taken = int((left > allowed).sum())
        basis = torch.linalg.qr(torch.cat([basis, directions[:taken].T], dim=1)).Q
        if basis.shape[1] > WORTHWHILE * points:
            return None
    return basis

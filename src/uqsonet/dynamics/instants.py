"""One instant as a model sees it: modes of the fields over time, and of what a run keeps."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from uqsonet.dynamics.steps import Fields
from uqsonet.dynamics.trajectories import Trajectories
from uqsonet.emulator.emulator import Emulator
from uqsonet.fields.field import Field
from uqsonet.fields.grid import Grid
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.fields.stacked import join, point_weights
from uqsonet.gauss.blocks import RowBlocks, projected
from uqsonet.gauss.principal_components import Modes, empirical_modes, spectrum
from uqsonet.operator.closed_form import LEFT_OVER, scaled_root
from uqsonet.operator.config import KarhunenLoeveNetwork
from uqsonet.operator.kernel_branch import spaced
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.runs.runs import Runs, named_fields, rows_of

MAX_MODES = 160  # of the fields over time, and of what stays the same
MAX_SNAPSHOTS = 2000  # that show what modes leave out, at most
VARIANCE = 0.99999  # share of the variance to keep: 0.3 % of a field is left out


def emulator_of(runs: Trajectories) -> tuple[Emulator, int]:
    """Return the law of one instant, and how many of its modes change over time.

    These come first; then those of what stays the same in a run, so that a step keeps them. Inputs
    and outputs are all fields.
    """
    fields = named_fields(runs.snapshots.inputs, {})
    changing, kept = fields[: runs.over_time], fields[runs.over_time :]
    found = [_modes(runs.snapshots, changing)]
    if kept:
        found.append(_modes(runs.snapshots[np.diff(runs.run, prepend=-1) != 0], kept))
    r, n = sum(len(one.std) for one in found), sum(len(one.mean) for one in found)
    joined = Field(",".join(one.name for one in fields), join([one.domain for one in fields]))
    network = KarhunenLoeveNetwork(
        input_modes=r, output_modes=r, branch=[], held_out_residuals=True
    )
    model = KarhunenLoeveModel(OperatorFields(runs.name, joined, joined), network, 0.0).eval()
    bases, row, column = model.bases, 0, 0
    left = torch.zeros(n, dtype=torch.float64)
    for one in found:
        here = slice(row, row + len(one.mean)), slice(column, column + len(one.std))
        bases.input_mean[here[0]] = one.mean
        bases.input_factor[here] = (one.vectors * one.std).float()
        left[here[0]] = one.remainder**2
        row, column = here[0].stop, here[1].stop
    bases.input_remainder.fill_(float(left.mean().sqrt()))
    bases.output_mean.copy_(bases.input_mean)
    bases.output_modes.copy_(bases.input_factor)
    bases.linear_weight.copy_(torch.eye(r))
    emulator = Emulator(model, fields, fields)
    return emulator, len(found[0].std)


def with_remainder(emulator: Emulator, held: Trajectories) -> Emulator:
    """Return the emulator whose answers have what modes leave out of other snapshots."""
    rows, bases = encoded(emulator, held), emulator.bases
    assert bases is not None
    some = rows[spaced(len(rows), MAX_SNAPSHOTS)].double()
    a = coefficients(emulator, RowBlocks.of(some))
    left = (some - bases.input_mean - a @ bases.input_factor.double().T).T
    square = left.square().mean(1)
    bases.input_remainder.fill_(float(square.mean().sqrt()))
    root = scaled_root(left[:, spaced(left.shape[1], LEFT_OVER)], square)
    return Emulator(
        emulator.operator, emulator.inputs, emulator.outputs, remainder=(root, root.clone())
    )


def _modes(runs: Runs, fields: list[Field]) -> Modes:
    """Return the modes of fields side by side that keep `VARIANCE`."""
    rows, weights = (
        rows_of(runs.inputs, fields),
        point_weights(join([one.domain for one in fields])),
    )
    variance, total, _ = spectrum(rows, weights)
    kept = variance.cumsum(0) / total
    count = min(int((kept < VARIANCE).sum()) + 1, MAX_MODES, len(kept))
    return empirical_modes(rows, count, "modes", weights)


def encoded(emulator: Emulator, runs: Trajectories) -> Tensor:
    """Return snapshots (S, n) as the model sees them, all fields side by side."""
    return rows_of(runs.snapshots.inputs, emulator.inputs).whole()


def coefficients(emulator: Emulator, rows: RowBlocks) -> Tensor:
    """Return standardised coefficients (S, r), float64, of encoded snapshots."""
    bases = emulator.bases
    assert bases is not None
    return projected(rows, bases.input_mean, bases.from_fields())


def on_periodic_grid(emulator: Emulator) -> Fields | None:
    """Return the fields on a periodic grid that they share; None where there is no such grid.

    Single numbers have the same value in all cells.
    """
    domains = [one.domain for one in emulator.inputs]
    grid, bases = domains[0], emulator.bases
    assert bases is not None
    if not isinstance(grid, Grid) or grid.periodic not in (True, (True,) * grid.dim):
        return None
    if any(one != grid and one.size > 1 for one in domains):
        return None
    sizes = [one.size for one in domains]
    factors = [one.expand(grid.size, -1) for one in bases.input_factor.double().split(sizes)]
    means = [one.expand(grid.size) for one in bases.input_mean.split(sizes)]
    return Fields(torch.stack(means, 1), torch.stack(factors, 1), grid)

"""Runs that are not what they seem: crashed ones, copies, snapshots of a few trajectories."""

from __future__ import annotations

import logging
import warnings

import numpy as np
import torch

from uqsonet.errors import DataWarning
from uqsonet.gauss.blocks import ArrayRows
from uqsonet.runs.field_runs import FieldRuns, roughness
from uqsonet.runs.runs import Runs, Split
from uqsonet.runs.stored import row_blocks

LOG = logging.getLogger("uqsonet")

CRASHED = 100.0  # a run has crashed if it is this many times as far from the median run as usual
MAX_CRASHED = 0.1  # share of runs that may have crashed: more of them are a law of heavy tails
ALIKE = 0.5  # neighbours are alike below this mean squared difference (1: independent runs)
COMPARED_POINTS = 2000  # number of points at which neighbouring runs are compared, at least
SHOWN_RUNS = 10  # maximum number of runs that a warning lists


def sound_split(runs: Runs, seed: int) -> tuple[Runs, Split]:
    """Return the runs without crashed ones, and their split; warn of what may be wrong with them.

    The other runs stand in the parts in which they would stand if none had crashed.
    """
    split = runs.split(seed)
    crashed = np.zeros(len(runs), dtype=bool)
    names = []
    for name, field in {**runs.inputs, **runs.outputs}.items():
        LOG.log(15, "looking for crashed runs in %s", name)
        here = crashed_runs(field)
        crashed |= here
        names += [name] if here.any() else []
    if crashed.any():
        numbers = np.flatnonzero(crashed).tolist()
        listed = ", ".join(map(str, numbers[:SHOWN_RUNS]))
        more = f" and {len(numbers) - SHOWN_RUNS} more" if len(numbers) > SHOWN_RUNS else ""
        warnings.warn(
            f"{runs.name}: left out as outliers, far from all others in {', '.join(names)}: "
            f"{'run' if len(numbers) == 1 else 'runs'} {listed}{more}. Did they crash?",
            DataWarning,
            stacklevel=3,
        )
        kept = np.flatnonzero(~crashed)
        runs = runs[kept]
        parts = (part[~crashed[part]] for part in vars(split).values())
        split = Split(*(np.searchsorted(kept, part) for part in parts))
    if runs.groups is None and _neighbours_alike(runs):
        warnings.warn(
            f"{runs.name}: neighbouring runs are much alike. If they are snapshots of a few "
            "trajectories, say so with Runs(..., groups=labels): bands are then judged on "
            "whole trajectories, and without that they are too narrow for new ones",
            DataWarning,
            stacklevel=3,
        )
    return runs, split


def crashed_runs(field: FieldRuns) -> np.ndarray:
    """Return which runs (N,) are beyond all others, by orders of magnitude.

    The distance of a run is the root mean square of its difference from the pointwise median. A
    run has crashed if this exceeds `CRASHED` times the median distance, and a gap of a factor of
    ten separates it from the runs that have not; or if all its values are one number, which the
    other runs hardly ever take.
    """
    values, every = field.values, slice(None, None, max(1, len(field) // 1000))
    some = values[every]
    size = max(abs(float(some.min())), abs(float(some.max()))) or 1.0
    squares, alone = np.zeros(len(values)), np.ones(len(values), dtype=bool)
    first = values[:, :1].astype(np.float64)
    for _, rows in ArrayRows([(values, torch.Tensor.double)], torch.float64).column_blocks():
        part = rows.numpy()
        alone &= (part == first).all(1)
        with np.errstate(over="ignore"):
            squares += np.square((part - np.median(part[every], axis=0)) / size).sum(1)
    distance = np.sqrt(squares / values.shape[1])
    usual = float(np.median(distance))
    far = distance > CRASHED * usual
    if not far.any() or not usual > 0 or distance[far].min() <= 10 * distance[~far].max():
        far[:] = False
    for number in np.flatnonzero(alone):
        count = sum(int((rows == values[number, 0]).sum()) for rows in row_blocks(values))
        far[number] |= count < 2 * values.shape[1]
    return far if far.mean() <= MAX_CRASHED else np.zeros_like(far)


def _neighbours_alike(runs: Runs) -> bool:
    """Return whether runs that follow each other are alike in every field."""
    steps = []
    for field in {**runs.inputs, **runs.outputs}.values():
        some = slice(None, None, max(1, field.values.shape[1] // COMPARED_POINTS))
        values = field.values[:2000, some].astype(np.float64)
        steps.append(roughness(values - values.mean(0), 0))
    return max(steps) < ALIKE

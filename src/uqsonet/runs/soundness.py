"""Runs that are not what they seem: crashed ones, snapshots of a few trajectories, rounding."""

from __future__ import annotations

import logging
import warnings
from copy import copy
from dataclasses import replace

import numpy as np
import torch

from uqsonet.errors import DataWarning
from uqsonet.gauss.blocks import ArrayRows
from uqsonet.runs.field_runs import FieldRuns, roughness
from uqsonet.runs.runs import MAX_DISTINCT, MIN_AT_END, Runs, Split, first_runs
from uqsonet.runs.stored import row_blocks

LOG = logging.getLogger("uqsonet")

CRASHED = 100.0  # a run has crashed if it is this many times as far from the median run as usual
MAX_CRASHED = 0.1  # share of runs that may have crashed: more of them are a law of heavy tails
ALIKE = 0.5  # neighbours are alike below this mean squared difference (1: independent runs)
COMPARED_POINTS = 2000  # number of points at which neighbouring runs are compared, at least
SHOWN_RUNS = 10  # maximum number of runs that a warning lists

LEVEL_ROUNDING, END_ROUNDING = 1e-6, 1e-12
"""What counts as rounding: relative, in a field that takes few values; and as a share of the
largest value, near zero or an end of the range of any field."""

CLEAR = 1e6  # there are hardly any values up to so many times that from the end


def without_rounding(runs: Runs) -> Runs:
    """Return the runs, values that differ by rounding alone made equal: classes, dry points."""
    found = copy(runs)
    found.inputs = {name: _rounded(name, one) for name, one in runs.inputs.items()}
    found.outputs = {name: _rounded(name, one) for name, one in runs.outputs.items()}
    return found


def _rounded(name: str, field: FieldRuns) -> FieldRuns:
    """Return a field whose values near a level are at the level, where they are not yet."""
    some = np.asarray(first_runs(field.values), dtype=np.float64)
    least = END_ROUNDING * float(np.abs(some).max())
    levels = _levels(some, least)
    if not levels:
        for end in (some.min(), some.max()):
            off = np.abs(some - end)
            at = some[off <= least]
            alone = int((off <= CLEAR * least).sum()) < 1.1 * at.size
            if alone and at.size > MIN_AT_END * some.size and np.ptp(at) > 0:
                levels[_middle(at)] = least
    if not levels:
        return field
    LOG.info("%s: values that differ from %s by rounding alone count as equal", name, [*levels])
    values = np.array(field.values)
    for level, width in levels.items():
        values[np.abs(values - level) <= 2 * width] = level
    return replace(field, values=values)


def _levels(values: np.ndarray, least: float) -> dict[float, float]:
    """Return levels of values that take few but for rounding, each with its width, else nothing."""
    exact = np.unique(values)
    width = np.maximum(LEVEL_ROUNDING * np.abs(exact), least)
    gaps = np.flatnonzero(np.diff(exact) > width[1:]) + 1
    if not 0 < len(gaps) < MAX_DISTINCT or len(exact) == len(gaps) + 1:
        return {}
    groups = [
        (one[0], one[-1], wide.max())
        for one, wide in zip(np.split(exact, gaps), np.split(width, gaps), strict=True)
    ]
    if any(high - low > 2 * wide for low, high, wide in groups):
        return {}
    return {_middle(values[(values >= low) & (values <= high)]): wide for low, high, wide in groups}


def _middle(values: np.ndarray) -> float:
    """Return the median, one of the values."""
    return float(np.sort(values)[values.size // 2])


def sound_split(runs: Runs, seed: int) -> tuple[Runs, list[Split]]:
    """Return the runs without crashed ones, and their splits; warn of what may be wrong with them.

    The other runs stand in the parts in which they would stand if none had crashed.
    """
    splits = runs.splits(seed)
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
            stacklevel=4,
        )
        kept = np.flatnonzero(~crashed)
        runs = runs[kept]
        splits = [one.of(kept) for one in splits]
    warn_if_alike(runs)
    return runs, splits


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


def warn_if_alike(runs: Runs) -> None:
    """Warn if runs that follow each other are alike, and no groups say which belong together."""
    if runs.groups is None and _neighbours_alike(runs):
        warnings.warn(
            f"{runs.name}: neighbouring runs are much alike. If they are snapshots of a few "
            "trajectories, or days of an archive, say so with Runs(..., groups=labels): bands are "
            "then judged on whole groups, and without that they are too narrow for new ones",
            DataWarning,
            stacklevel=5,
        )


def _neighbours_alike(runs: Runs) -> bool:
    """Return whether runs that follow each other are alike in every field, where both were read."""
    steps = []
    for field in {**runs.inputs, **runs.outputs}.values():
        some = slice(None, None, max(1, field.values.shape[1] // COMPARED_POINTS))
        values = field.values[:2000, some].astype(np.float64)
        read = ~np.isnan(values)
        mean = np.where(read, values, 0).sum(0) / read.sum(0).clip(1)
        if (read[1:] & read[:-1]).any():
            steps.append(roughness(values - mean, 0))
    return max(steps, default=1.0) < ALIKE

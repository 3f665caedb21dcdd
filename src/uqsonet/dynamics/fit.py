"""From trajectories to a model of fields over time."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from uqsonet.dynamics.dynamics import Dynamics
from uqsonet.dynamics.filters import LeftOver, Library, Model
from uqsonet.dynamics.instants import (
    coefficients,
    emulator_of,
    encoded,
    on_periodic_grid,
    with_remainder,
)
from uqsonet.dynamics.steps import Pairs, Step, candidates, left_over
from uqsonet.dynamics.trajectories import Trajectories
from uqsonet.errors import DataError, renamed
from uqsonet.fitting.comparison import first_not_worse
from uqsonet.fitting.fit import noise_of
from uqsonet.fitting.held_out import LEVELS
from uqsonet.gauss.blocks import RowBlocks
from uqsonet.gauss.metrics import ascending, coverage, crps
from uqsonet.gauss.seeds import RNG, root_of, torch_generator
from uqsonet.operator.kernel_branch import spaced
from uqsonet.show.terminal import never_silent

LOG = logging.getLogger("uqsonet")

SHARES = (0.7, 0.15, 0.15)  # of the runs: to learn from, to choose with, to calibrate bands
NEAR_PAIRS = 4000  # held-out pairs that show what a step leaves over, at most
AHEAD = 10  # steps that a step is judged on
FORECASTS, MEMBERS, POINTS = 40, 40, 100  # held-out forecasts that steps are compared on
SPREADS = (1.0, 1.25, 1.5, 2.0)  # factors to try on the std of what a step leaves over


@renamed(seed="rng")
def fit_dynamics(
    runs: Trajectories, noise_std: Mapping[str, float] | float = 0.0, rng: RNG = 0,
    bar: bool = True,
) -> Dynamics:  # fmt: skip
    """Learn a step from trajectories, and the law of what it leaves over.

    Parameters
    ----------
    runs : Trajectories
        Of few, or of one long one, pieces are held out.
    noise_std : float, or mapping of field to float, optional
        Noise of sensors that state none; one number is meant for the fields over time. By default
        they are exact.
    rng : int, SeedSequence or Generator
        Of the split and of a network's training.
    bar : bool
        Show on a terminal what is being done.

    Returns
    -------
    Dynamics
        Its `card` says which steps were tried, and how their forecasts scored on runs held out.

    Notes
    -----
    Steps are compared by the CRPS of forecasts up to ten steps ahead, from states of held-out runs,
    and not by the error of one step: errors that hardly show in one step may grow.
    """
    names = list(runs.snapshots.inputs)
    noise = noise_of(names, names[: runs.over_time], noise_std)
    seed = root_of(rng)
    with never_silent("fit", bar):
        training, validation, calibration = runs.cut().split(seed, SHARES)
        if not len(validation) or not len(training):
            raise DataError(f"{runs.name}: {len(runs)} runs are too few to hold some out")
        emulator, changing = emulator_of(training)
        emulator = replace(with_remainder(emulator, validation), noise_std=noise)
        bases = emulator.bases
        assert bases is not None
        std = bases.input_factor.double().square().sum(0).sqrt()
        known, held = (_states(emulator, one) for one in (training, validation))
        pairs, checked = (
            _pairs(s, one, changing) for s, one in ((known, training), (held, validation))
        )
        LOG.info("%d modes, %d of them change; %d pairs", len(std), changing, len(pairs.before))
        forecasts = Forecasts.of(emulator, held, validation, changing, seed)
        rows: list[dict[str, Any]] = []
        found = candidates(pairs, checked, std, seed, on_periodic_grid(emulator))
        plain = ((name, step, 1.0, False) for name, step in found)
        name, step, *_ = _taken(forecasts, plain, checked, rows)
        # What a step leaves over depends on the state, and on what it was the step before.
        laws = ((name, step, spread, near) for near in (False, True) for spread in SPREADS)
        _, _, spread, near = _taken(forecasts, laws, checked, rows)
        card = {"data": runs.name, "runs": len(runs), "tried": rows, "seed": seed}
        card |= {"step": name, "spread": spread, "near": near}
        library = _library(torch.cat([known, held]), training, validation)
        kept = _library(encoded(emulator, calibration), calibration)
        model = Model(step, _left_over(step, checked, spread, near), library)
        return Dynamics(emulator, runs.over_time, runs.clock, model, kept, card)


Candidate = tuple[str, Step, float, bool]  # and spread and nearness of what it leaves over


def _taken(
    forecasts: Forecasts, tried: Iterable[Candidate], held: Pairs, rows: list[dict[str, Any]]
) -> Candidate:
    """Score candidates, in rows for the card; return the first that is not worse."""
    every, scores = [], []
    for name, step, spread, near in tried:
        every.append((name, step, spread, near))
        scores.append(forecasts.scores(step, _left_over(step, held, spread, near)))
        crps, *bands = scores[-1].mean(1).tolist()
        error = step.error(held)
        rows.append({"step": name, "error": error, "spread": spread, "near": near, "crps": crps,
                     "bands": bands})  # fmt: skip
        LOG.info("%s: one step errs by %.3g %%; what it leaves over times %g%s: CRPS ahead %.4g",
                 name, 100 * error, spread, ", of near pairs" * near, crps)  # fmt: skip
    return every[first_not_worse(scores)[0]]


def _left_over(step: Step, held: Pairs, spread: float, near: bool) -> LeftOver:
    """Return what a step leaves over of held-out pairs, times a factor."""
    root, size = spread * left_over(step, held), len(held.before)
    if not near:
        return LeftOver(root, held.before[:0].float(), held.after[:0])
    some = spaced(size, NEAR_PAIRS)
    left = held.after[some] - step(held.before[some])
    return LeftOver(root, step.scaled(held.before[some]), spread * left)


def _states(emulator: Any, runs: Trajectories) -> Tensor:
    return coefficients(emulator, RowBlocks.of(encoded(emulator, runs)))


def _pairs(states: Tensor, runs: Trajectories, changing: int) -> Pairs:
    first, then = runs.pairs()
    return Pairs(states[first], states[then][:, :changing])


def _library(states: Tensor, *parts: Trajectories) -> Library:
    """Return the snapshots of several parts of the runs."""
    runs, first = [], 0
    for one in parts:
        runs.append(torch.from_numpy(one.run) + first)
        first += len(one)
    instants = torch.cat([torch.from_numpy(one.instant) for one in parts])
    return Library(states.float(), torch.cat(runs), instants)


@dataclass(frozen=True)
class Forecasts:
    """Pieces of held-out runs that steps are compared on, at points of the fields."""

    library: Library
    start: Tensor  # (F, r)
    truths: Tensor  # (F, L, k)
    rows: Tensor  # (k, r), the fields at the points
    mean: Tensor  # (k,)
    seed: int

    @classmethod
    def of(
        cls, emulator: Any, states: Tensor, runs: Trajectories, changing: int, seed: int
    ) -> Forecasts:
        """Return pieces as long as runs allow, up to `AHEAD` steps."""
        library, length = _library(states, runs), AHEAD + 1
        while not len(pieces := library.pieces(length, None)):
            length -= 1
        order = torch.randperm(
            len(pieces), generator=torch_generator(seed, "dynamics", "forecasts")
        )
        pieces = pieces[order[:FORECASTS]]
        bases = emulator.bases
        count = sum(one.domain.size for one in emulator.inputs)
        some = spaced(count, POINTS)
        moving = bases.input_factor[some][:, :changing].abs().sum(1) > 0
        rows, mean = bases.input_factor[some][moving].double(), bases.input_mean[some][moving]
        return cls(library, pieces[:, 0], mean + pieces[:, 1:] @ rows.T, rows, mean, seed)

    def scores(self, step: Step, left: LeftOver) -> Tensor:
        """Return CRPS and shares inside bands of `LEVELS` (3, F), over leads and points."""
        model = Model(step, left, self.library)
        generator = torch_generator(self.seed, "dynamics", "members")
        members = self.start[:, None].expand(-1, MEMBERS, -1)
        found = []
        for lead in range(self.truths.shape[1]):
            members = model.advanced(members, generator)
            fields = self.mean + members @ self.rows.T
            for one, truth in zip(fields, self.truths[:, lead], strict=True):
                ordered = ascending(one)
                found.append([crps(ordered, truth), *coverage(ordered, truth, LEVELS)])
        shape = self.truths.shape[1], len(self.start), 1 + len(LEVELS)
        return torch.tensor(found, dtype=torch.float64).view(shape).mean(0).T

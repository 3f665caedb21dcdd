"""From trajectories to a model of fields over time."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from uqsonet.dynamics.dynamics import Calibration, Dynamics
from uqsonet.dynamics.filters import Library, Model
from uqsonet.dynamics.instants import (
    coefficients,
    emulator_of,
    encoded,
    on_periodic_grid,
    with_remainder,
)
from uqsonet.dynamics.steps import Pairs, Step, candidates
from uqsonet.dynamics.trajectories import Trajectories
from uqsonet.errors import DataError
from uqsonet.fitting.comparison import first_not_worse
from uqsonet.fitting.held_out import LEVELS
from uqsonet.gauss.blocks import RowBlocks
from uqsonet.gauss.gaussian import covariance_root
from uqsonet.gauss.metrics import ascending, coverage, crps
from uqsonet.gauss.seeds import torch_generator
from uqsonet.show.terminal import never_silent

LOG = logging.getLogger("uqsonet")

SHARES = (0.7, 0.15, 0.15)  # of the runs: to learn from, to choose with, to calibrate bands
AHEAD = 10  # steps that a step is judged on
FORECASTS, MEMBERS, POINTS = 40, 40, 100  # held-out forecasts that steps are compared on
SPREADS = (1.0, 1.5, 2.0, 4.0)  # factors to try on the std of what a step leaves over


def fit_dynamics(
    runs: Trajectories, noise_std: Mapping[str, float] | None = None, seed: int = 0,
    bar: bool = True,
) -> Dynamics:  # fmt: skip
    """Learn a step from trajectories, and the law of what it leaves over.

    Parameters
    ----------
    runs : Trajectories
        Of few, or of one long one, pieces are held out.
    noise_std : mapping of field to float, optional
        Noise of sensors that state none; by default they are exact.
    seed : int
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
    with never_silent("fit", bar):
        training, validation, calibration = runs.cut().split(seed, SHARES)
        if not len(validation) or not len(training):
            raise DataError(f"{runs.name}: {len(runs)} runs are too few to hold some out")
        emulator, changing = emulator_of(training)
        emulator = with_remainder(emulator, validation)
        emulator = emulator_with_noise(emulator, noise_std)
        std = emulator.bases.input_factor.double().square().sum(0).sqrt()
        known, held = (_states(emulator, one) for one in (training, validation))
        pairs, checked = (
            _pairs(s, one, changing) for s, one in ((known, training), (held, validation))
        )
        LOG.info("%d modes, %d of them change; %d pairs", len(std), changing, len(pairs.before))
        forecasts = Forecasts.of(emulator, held, validation, changing, seed)
        factor, grid = on_periodic_grid(emulator, changing)
        steps, roots, scores, rows = [], [], [], []
        for name, step in candidates(pairs, std, seed, factor, grid):
            left = checked.after - step(checked.before)
            error = _size(left * std[:changing]) / _size(checked.after * std[:changing])
            steps.append(step)
            roots.append(covariance_root(left.T @ left / len(left)))
            scores.append(forecasts.scores(step, roots[-1]))
            rows.append(_row(name, 1.0, scores[-1]) | {"error": error})
            LOG.info("%s: one step errs by %.3g %%, CRPS ahead %.4g", name, 100 * error,
                     rows[-1]["crps"])  # fmt: skip
        number, _ = first_not_worse(scores)
        step, root, name = steps[number], roots[number], rows[number]["step"]
        # What a step leaves over is not independent from one step to the next.
        wider = [forecasts.scores(step, spread * root) for spread in SPREADS[1:]]
        rows += [_row(name, *one) for one in zip(SPREADS[1:], wider, strict=True)]
        spread = SPREADS[first_not_worse([scores[number], *wider])[0]]
        LOG.info("chosen: %s, what it leaves over times %g", name, spread)
        root = spread * root
        known = torch.cat([known, held])
        library = _library(known, training, validation)
        card = {
            "data": runs.name,
            "runs": len(runs),
            "tried": rows,
            "step": name,
            "spread": spread,
            "seed": seed,
        }
        kept = Calibration.of(encoded(emulator, calibration), calibration)
        return Dynamics(emulator, runs.clock, Model(step, root, library), kept, card)


def _size(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


def _row(name: str, spread: float, scores: Tensor) -> dict[str, Any]:
    """Return how forecasts with a step scored, for the card."""
    crps, held_50, held_90 = scores.mean(1).tolist()
    return {"step": name, "spread": spread, "crps": crps, "bands": [held_50, held_90]}


def emulator_with_noise(emulator: Any, noise_std: Mapping[str, float] | None) -> Any:
    """Return the emulator whose sensors have this noise where they state none."""
    from dataclasses import replace

    names = [one.name for one in emulator.inputs]
    if unknown := set(noise_std or {}) - set(names):
        raise DataError(f"noise_std: {unknown.pop()!r} is none of the fields {', '.join(names)}")
    return replace(emulator, noise_std=dict(noise_std or {}))


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


class Forecasts:
    """Pieces of held-out runs that steps are compared on, at points of the fields."""

    def __init__(
        self, start: Tensor, truths: Tensor, rows: Tensor, mean: Tensor, seed: int
    ) -> None:
        self.start, self.truths = start, truths  # (F, r), (F, L, k) at points
        self._rows, self._mean, self._seed = rows, mean, seed

    @classmethod
    def of(
        cls, emulator: Any, states: Tensor, runs: Trajectories, changing: int, seed: int
    ) -> Forecasts:
        """Return pieces as long as runs allow, up to `AHEAD` steps."""
        library = _library(states, runs)
        ahead = AHEAD
        while not len(library.pieces(ahead + 1, None)):
            ahead -= 1
        pieces = library.pieces(ahead + 1, None)
        order = torch.randperm(
            len(pieces), generator=torch_generator(seed, "dynamics", "forecasts")
        )
        pieces = pieces[order[:FORECASTS]]
        bases = emulator.bases
        count = sum(one.domain.size for one in emulator.inputs)
        some = torch.arange(min(count, POINTS)) * count // min(count, POINTS)
        moving = bases.input_factor[some][:, :changing].abs().sum(1) > 0
        rows, mean = bases.input_factor[some][moving].double(), bases.input_mean[some][moving]
        return cls(pieces[:, 0], mean + pieces[:, 1:] @ rows.T, rows, mean, seed)

    def scores(self, step: Step, root: Tensor) -> Tensor:
        """Return CRPS and shares inside bands of `LEVELS` (3, F), over leads and points."""
        model = Model(step, root, Library(*[torch.zeros(0)] * 3))
        generator = torch_generator(self._seed, "dynamics", "members")
        members = self.start[:, None].expand(-1, MEMBERS, -1)
        found = []
        for lead in range(self.truths.shape[1]):
            members = model.advanced(members, generator)
            fields = self._mean + members.nan_to_num(1e6, 1e6, -1e6).clamp(-1e6, 1e6) @ self._rows.T
            for one, truth in zip(fields, self.truths[:, lead], strict=True):
                ordered = ascending(one)
                found.append([crps(ordered, truth), *coverage(ordered, truth, LEVELS)])
        shape = self.truths.shape[1], len(self.start), 1 + len(LEVELS)
        return torch.tensor(found, dtype=torch.float64).view(shape).mean(0).T

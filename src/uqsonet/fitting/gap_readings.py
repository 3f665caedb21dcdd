"""Runs with gaps as sensors read them: some readings of a run are sensors, others are truths."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from uqsonet.emulator.reanalysis import sensors_of_rows
from uqsonet.errors import DataError
from uqsonet.fitting.card import Model
from uqsonet.fitting.held_out import Read, some_points
from uqsonet.fitting.plan import SensorPlan
from uqsonet.gauss.seeds import numpy_generator
from uqsonet.runs.field_runs import FieldRuns
from uqsonet.runs.gaps import gaps_of, unit_points

MOST_READ = 2 / 3  # share of what was read of a run that is sensors, at most


def hidden_readings(
    rows: Tensor, sides: Sequence[Tensor], points: Sequence[Tensor], plan: SensorPlan, count: int,
    blocked: bool, generator: np.random.Generator,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return what sensors read of runs with gaps (N, P), and the outputs' readings besides.

    Both are NaN elsewhere. A run with few readings is read by fewer sensors.

    Parameters
    ----------
    rows : Tensor, shape (N, P)
        The different fields of both sides, one after another.
    sides : Tensor, shape (n,), and Tensor, shape (M,)
        The columns of inputs and of outputs, in the plan's order of points.
    points : sequence of Tensor (n_k, d)
        Of each of these fields, in their boxes (`uqsonet.runs.gaps.unit_points`).
    plan : SensorPlan
    count : int
        Which of its numbers of sensors.
    blocked : bool
        Gaps are blocks: so are the readings that are hidden.
    generator : Generator
    """
    every = torch.cat([*sides]).numpy()
    seen, truth = torch.full_like(rows, torch.nan), torch.full_like(rows, torch.nan)
    first = torch.tensor([0, *(len(one) for one in points)]).cumsum(0)
    answered = np.zeros(rows.shape[1], dtype=bool)
    answered[sides[1]] = True
    for row, values in enumerate(rows):
        there = ~values.isnan().numpy()
        hidden = there & answered
        if not hidden.any():
            continue
        if blocked:
            centre = int(generator.choice(np.flatnonzero(hidden)))
            part = int((first <= centre).nonzero()[-1])
            here = slice(int(first[part]), int(first[part + 1]))
            away = (points[part] - points[part][centre - here.start]).norm(dim=1)
            near = away <= away[torch.from_numpy(there[here])].median()
            hidden = np.zeros_like(there)
            hidden[here] = there[here] & near.numpy()
            there = there & ~hidden
        for places in plan.parts:
            at = every[places.points().numpy()]
            at = at[there[at]]
            most = min(places.counts[count], math.ceil(MOST_READ * len(at)))
            read = torch.from_numpy(generator.permutation(at)[:most])
            seen[row, read] = values[read]
        known = torch.from_numpy(hidden) & seen[row].isnan()
        truth[row, known] = values[known]
    return seen, truth


def read_gaps(
    emulator: Model, runs: Sequence[FieldRuns], places: Sequence[tuple[Tensor, Tensor]],
    plan: SensorPlan, noise: Tensor, seed: int, most: int,
) -> Read:  # fmt: skip
    """Return held-out runs with gaps: some readings of a run are sensors, others truths.

    Parameters
    ----------
    emulator : Emulator
    runs : sequence of FieldRuns
        Of all fields, inputs first. The same field on both sides counts once: what sensors read of
        it is no truth.
    places : sequence of Tensor (n, d) and Tensor (n,)
        Points of each field in the model's domain, and their numbers.
    plan : SensorPlan
    noise : Tensor, shape (K,)
        Of each field's readings. None is added.
    seed : int
    most : int
        Points of an output that are scored, at most.

    Raises
    ------
    DataError
        If sensors leave no reading of an output over.
    """
    names, inputs = [one.name for one in emulator.named_fields], len(emulator.inputs)
    fields = [*{name: names.index(name) for name in names}.values()]
    points = [places[k][0] for k in fields]
    starts = np.cumsum([0, *map(len, points)]).tolist()
    first = {names[k]: start for k, start in zip(fields, starts, strict=False)}
    columns = [first[name] + torch.arange(len(x))
               for name, (x, _) in zip(names, places, strict=True)]  # fmt: skip
    sides = torch.cat(columns[:inputs]), torch.cat(columns[inputs:])
    read = [torch.from_numpy(runs[k].values[:, places[k][1].numpy()]).double() for k in fields]
    rows, boxes = torch.cat(read, 1), [unit_points(x) for x in points]
    blocked = any(gaps_of(runs[k]).kind == "blocks" for k in fields)
    found = Read({}, {})
    for number, count in enumerate(plan.counts):
        generator = numpy_generator(seed, "scores", "gaps", count)
        seen, truth = hidden_readings(rows, sides, boxes, plan, number, blocked, generator)
        sets = sensors_of_rows(seen, points, fields, noise[fields])
        found.sensors[count] = [(torch.arange(len(rows)), sets)]
        found.truths[count] = []
        for one, x, here in zip(emulator.outputs, places[inputs:], columns[inputs:], strict=True):
            hidden = truth[:, here]
            there = (~hidden.isnan()).any(0).nonzero()[:, 0]
            if not len(there):
                raise DataError(f"{one.name}: no run has a reading that {count} sensors leave over")
            some = there[some_points(len(there), most, generator)]
            found.truths[count].append((x[0][some], hidden[:, some]))
    return found

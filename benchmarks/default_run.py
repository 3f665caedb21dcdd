"""What the default run takes on one core, stage by stage and for each kind of training."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.rows import Row
from benchmarks.timing import hardware
from benchmarks.workloads import configuration
from uqsonet_study.estimate import Meter, estimate
from uqsonet_study.pipeline import Plan


def rows(quick: bool) -> list[Row]:
    """Return the step times of all trainings, and the core-minutes of the stages with their sum.

    Measured as `uqsonet estimate` does: a few units of each job, times their number.
    """
    config = configuration("tuned")
    plan, meter = Plan(config), Meter(config)
    steps: dict[tuple[str, int], float] = {}
    trainings: Counter[tuple[str, int]] = Counter()
    counted: set[str] = set()
    for case in config.cases_of(config.selected)[: 1 if quick else None]:
        for method in case.methods:
            base = plan.base(case.name, method)
            iterations = config.method_of(case.name, base).training.iterations
            kind = f"{case.problem}, {base}", iterations
            files = set(plan.trained(case.name, method, "safetensors")) - counted
            counted |= files
            if files:
                stacks = plan.stacks(case.name, base)
                trainings[kind] += sum(len(stack) for stack in stacks)
                steps[kind] = meter.step(case.name, base)
    found = [
        Row(
            f"default run, training, {name}: {trainings[name, iterations]} of {iterations} steps",
            hardware(1),
            step,
            "s/iteration",
        )
        for (name, iterations), step in steps.items()
    ]
    if quick:
        return found
    with tempfile.TemporaryDirectory() as folder:  # nothing is there, so all is left to do
        costs = estimate(config, Path(folder))
    for cost in costs:
        name = f"default run, {cost.stage}: {cost.total} jobs"
        found.append(Row(name, hardware(1), cost.seconds / 60, "core-min"))
    total = sum(cost.seconds for cost in costs) / 60
    return [*found, Row("default run, sum of the stages", hardware(1), total, "core-min")]

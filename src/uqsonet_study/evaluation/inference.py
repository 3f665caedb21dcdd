"""Seconds of one answer, a posterior of 1,000 functions on the full grid (tab:training-cost)."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch

from uqsonet.files import provenance, write_text
from uqsonet.gauss.seeds import torch_generator
from uqsonet.networks.devices import processor
from uqsonet.operator.weight_files import load

SAMPLES = 1000  # latent samples of one posterior
REPEATS = 9  # timings; the first ones pay for start-up and are left out of the median
WARM_UP = 3


def inference_seconds(weights: Path, sensors: int) -> float:
    """Return the median time from sensors to an answer on the full grid, in seconds.

    The answer of a probabilistic method is mean and standard deviation over 1,000 sampled
    functions; that of a deterministic one its prediction.

    Parameters
    ----------
    weights : Path
        The first trial is asked.
    sensors : int
        Number of sensors, spread over the grid.
    """
    model = load(weights)
    points = model.fields.input.grid.points()
    places = points[torch.linspace(0, len(points) - 1, sensors + 2).long()[1:-1]]
    values = torch.ones(sensors, dtype=torch.float64)
    generator = torch_generator(0, "inference")
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        posterior = model.condition(places, values)
        if model.probabilistic:
            torch.std_mean(posterior.sample(SAMPLES, generator=generator), dim=0)
        else:
            posterior.mean()
        times.append(time.perf_counter() - start)
    return median(times[WARM_UP:])


def time_inference(weights: Mapping[str, Path], sensors: int, out: Path) -> None:
    """Time every method of a case and write method -> seconds as JSON, with the hardware."""
    found: dict[str, Any] = {
        "seconds": {m: round(inference_seconds(path, sensors), 6) for m, path in weights.items()},
        "samples": SAMPLES,
        "sensors": sensors,
        "threads": torch.get_num_threads(),
        "processor": processor(),
        **provenance(),
    }
    write_text(out, json.dumps(found, indent=2) + "\n")

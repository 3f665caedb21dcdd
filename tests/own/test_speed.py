"""What a user waits for: sensors in, a thousand functions out, after loading, on one core.

The limits are what the project promises of a quiet core. Counted is the time of the processor, the
least of several tries, so that other work on the machine hardly adds to it; `BUSY` allows for the
memory and caches that it shares. Measured: 0.04 s of 0.05 s, and 0.20 s of 0.3 s.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import torch

import uqsonet

PUBLISHED = Path(__file__).parents[2] / "published/train"
BUSY = 1.5
CASES = {"diffusion1d": 0.05, "poisson2d": 0.3}
"""Seconds for 1,000 functions."""


@pytest.mark.filterwarnings("ignore::uqsonet.ObservationWarning")
@pytest.mark.parametrize("name", CASES)
def test_a_thousand_functions_after_loading(name: str) -> None:
    (path,) = PUBLISHED.glob(f"{name}/uqsonet-*/trial_0.safetensors")
    model, limit = uqsonet.load(path), CASES[name]
    domain = model.inputs[0].domain
    at = domain.points().numpy()[:: domain.size // 9][1:8]
    values = np.linspace(0.9, 1.1, len(at))

    def seconds() -> float:
        start = time.process_time()
        samples = model.condition(at, values).sample(1000)
        assert samples.shape == (1000, model.outputs[0].domain.size)
        return time.process_time() - start

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        least = min(seconds() for _ in range(7))
    finally:
        torch.set_num_threads(threads)
    assert least < BUSY * limit

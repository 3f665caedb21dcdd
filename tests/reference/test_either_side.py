"""The joint law of input and output in 4.1, given sensors of both, beside Markov chains.

`either_side.json` has three sets with moments at every twentieth point. They were made at commit
5fe98d01, whose chains solve the equation at every step. With ``GridSensors`` of k and of u, and one
generator ``numpy_generator(2026, "either side")`` for all sets, the call was

    uqsonet_study.reference.chains.chain_posterior(
        get_problem("diffusion1d"), k, u, draws=4000, generator=generator
    )

R-hat was 1.0025 at most. The moments' own error is 1 to 2 % of a standard deviation.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import uqsonet
from uqsonet.gauss.metrics import relative_error

STORED = json.loads(Path(__file__).with_name("either_side.json").read_text(encoding="utf-8"))
POINTS = torch.linspace(-1, 1, 401, dtype=torch.float64)[::20, None]


@pytest.fixture(scope="module")
def operator() -> Any:
    """The operator of 4.1 that comes with the package."""
    return uqsonet.load("diffusion1d").operator


def read(sensors: list[list[float]], noise_std: float) -> tuple[Tensor, Tensor, None, float]:
    """Return places (m, 1), values (m,) and noise of stored sensors."""
    places, values = (torch.tensor(part, dtype=torch.float64) for part in sensors)
    return places[:, None], values, None, noise_std


@pytest.mark.parametrize("number", range(3))
def test_the_joint_law_is_that_of_chains_with_the_solver(operator: Any, number: int) -> None:
    stored = STORED["sets"][number]
    seen, seen_u = read(stored["k"], 0.0), read(stored["u"], STORED["noise_std"])
    found, alone = operator.condition_jointly(seen, seen_u), operator.condition(*seen)
    for field, law in (("log_k", found.input), ("u", found.output)):
        for name, most in (("mean", 0.03), ("std", 0.04)):
            wanted = torch.tensor(stored[f"{field}_{name}"], dtype=torch.float64)
            assert float(relative_error(getattr(law, name)(POINTS), wanted)) < most
    # Sensors of u matter: without them the law is another.
    for name in ("mean", "std"):
        wanted = torch.tensor(stored[f"u_{name}"], dtype=torch.float64)
        assert float(relative_error(getattr(alone, name)(POINTS), wanted)) > 0.15

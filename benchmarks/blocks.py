"""Aristoff and Bangerth's membrane: a learned answer, and one corrected by the solver.

``python -m benchmarks.blocks reference FILE`` writes samples by the real solver (tempered moves
that follow its slope); ``python -m benchmarks.blocks FILE`` prints the answers beside it.
"""

from __future__ import annotations

import math
import sys
import time

import numpy as np
import torch
from torch import Tensor

import uqsonet
from benchmarks.membrane import (
    BLOCKS,
    NOISE,
    PRIOR_STD,
    READINGS,
    Membrane,
    measured,
    places,
)
from uqsonet.operator.particles import Samples, Source, tempered

PAIRS, PARTICLES, LEAPS = 4000, 256, 4


class Prior(Source):
    """Standard normals of the 64 logarithms, weighted by the likelihood and moved by its slope."""

    max_moves = 12

    def __init__(self) -> None:
        self._solver, self.solves = Membrane(), 0

    def _weighted(self, z: Tensor) -> tuple[Samples, Tensor]:
        found = [self._solver.likelihood(row) for row in PRIOR_STD * z.clamp(-8, 8).numpy()]
        weight = torch.tensor([one for one, _ in found], dtype=torch.float64)
        weight[(z.abs() > 8).any(1)] = -torch.inf
        slope = PRIOR_STD * torch.from_numpy(np.stack([one for _, one in found]))
        self.solves += 2 * len(z)
        return Samples(z, weight[:, None], torch.cat([z, slope], 1)), slope

    def start(self, size: int, generator: torch.Generator) -> Samples:
        z = torch.randn(size, BLOCKS**2, generator=generator, dtype=torch.float64)
        return self._weighted(z)[0]

    def moved(self, z: Tensor, step: float, generator: torch.Generator) -> Samples:
        raise NotImplementedError

    def proposal(
        self, now: Samples, powers: Tensor, step: float, generator: torch.Generator
    ) -> tuple[Samples, Tensor]:
        angle = math.asin(step) / LEAPS
        cos, sin = math.cos(angle), math.sin(angle)
        kick = float(powers[0]) * math.tan(angle / 2)
        x, slope = now.z.split(BLOCKS**2, 1)
        v = torch.randn(x.shape, generator=generator, dtype=torch.float64)
        before, found = (x.square() + v.square()).sum(1), now
        for _ in range(LEAPS):
            v = v + kick * slope
            x, v = cos * x + sin * v, cos * v - sin * x
            found, slope = self._weighted(x)
            v = v + kick * slope
        after = (x.square() + v.square()).sum(1)
        return found, (found.weight - now.weight) @ powers - (after - before) / 2


def write_reference(path: str) -> None:
    """Write samples of the logarithms by the real solver."""
    source, start = Prior(), time.process_time()
    found, _ = tempered(source, PARTICLES, torch.Generator().manual_seed(0))
    logs = PRIOR_STD * found.a.numpy()
    np.savez(path, logs=logs, effective=found.effective_size, solves=source.solves)
    print(f"{source.solves} solves, {found.effective_size:.0f} effective of {PARTICLES}, "
          f"{time.process_time() - start:.0f} s")  # fmt: skip


def pairs(size: int = PAIRS) -> tuple[np.ndarray, np.ndarray]:
    """Return coefficients (size, 8, 8) and readings (size, 13, 13)."""
    logs = PRIOR_STD * np.random.default_rng(1).standard_normal((size, BLOCKS**2))
    readings = Membrane()(np.exp(logs))
    return np.exp(logs).reshape(-1, BLOCKS, BLOCKS), readings.reshape(-1, READINGS, READINGS)


def gaussian(predicted: np.ndarray, readings: np.ndarray) -> np.ndarray:
    """Return the log-likelihood: noise is additive in u, whatever its transform."""
    return -((predicted - readings) ** 2).sum(1) / 2 / NOISE**2


def main(path: str) -> None:
    """Print errors of the logarithms' mean and std beside the reference, and seconds."""
    logs = np.load(path)["logs"]
    a, u = pairs()
    start = time.process_time()
    model = uqsonet.fit(uqsonet.Runs({"a": a}, {"u": u}), 1, bar=False)
    print(model, f"\nfitted in {time.process_time() - start:.0f} s")
    grid = model.outputs[0].domain.points().numpy()
    order = np.argsort(grid[:, 1] * 100 + grid[:, 0])
    y = np.empty(len(grid))
    y[order] = measured()
    assert len(places()) == len(grid)
    membrane = Membrane()
    start = time.process_time()
    answer = model.condition(
        u=(grid, y, float(y.std()) / 10),
        likelihood=lambda p, r: -((p - r) ** 2).sum(1) / 2 / NOISE**2,
    )
    scored("learned", answer, logs, start)
    for solves in (200, 1000):
        start = time.process_time()
        found = answer.corrected(membrane, solves)
        scored(f"corrected, {found.solves}", found, logs, start)


def scored(name: str, answer: uqsonet.FieldPosterior, logs: np.ndarray, start: float) -> None:
    """Print how far mean and std of the logarithms are from the reference's, in its std."""
    drawn = np.log(answer["a"].sample(4000))
    mean = np.sqrt((((drawn.mean(0) - logs.mean(0)) / logs.std(0)) ** 2).mean())
    std = np.sqrt(((drawn.std(0) / logs.std(0) - 1) ** 2).mean())
    print(f"{name}: mean {mean:.2f}, std {std:.2f} of the std; effective "
          f"{answer.effective_size:.0f}; {time.process_time() - start:.1f} s")  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1] == "reference":
        write_reference(sys.argv[2])
    else:
        main(sys.argv[1])

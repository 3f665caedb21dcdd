"""Aristoff and Bangerth's membrane: a learned answer, and one corrected by the solver.

``python -m benchmarks.blocks reference FILE`` writes samples by the real solver (Hamiltonian
chains); ``python -m benchmarks.blocks FILE`` prints the answers beside it.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator

import numpy as np
import torch

import uqsonet
from benchmarks.membrane import (
    BLOCKS,
    NOISE,
    PRIOR_MEAN,
    PRIOR_STD,
    READINGS,
    Membrane,
    measured,
)
from uqsonet_study.reference.chains import effective_size, r_hat

PAIRS = 4000
CHAINS, WARM, DRAWS, LEAPS = 4, 300, 4000, 8
"""Of the reference: chains, their warm-up, draws of each after it, and leapfrog steps of a draw."""


def chain(
    z: np.ndarray, root: np.ndarray, step: float, size: int, leaps: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Yield states (64,) of a Hamiltonian chain of the standard normals behind the logarithms.

    Momenta are normal in the coordinates of `root` (64, 64), in which steps are taken; the step
    is adapted in the first fifth, until four of five are accepted (Neal, 2011).
    """
    membrane = Membrane()

    def at(z: np.ndarray) -> tuple[float, np.ndarray]:
        found, slope = membrane.likelihood(PRIOR_MEAN + PRIOR_STD * z)
        return float(found - z @ z / 2), root.T @ (PRIOR_STD * slope - z)

    density, slope = at(z)
    for number in range(size):
        momentum = rng.standard_normal(len(z))
        before = density - momentum @ momentum / 2
        new, along, high = z, slope, density
        for _ in range(leaps):
            momentum = momentum + step / 2 * along
            new = new + step * root @ momentum
            high, along = at(new) if np.abs(new).max() < 8 else (-np.inf, along)
            momentum = momentum + step / 2 * along
        odds = high - momentum @ momentum / 2 - before
        if np.log(rng.random()) < odds:
            z, density, slope = new, high, along
        if number < size // 5:
            step *= math.exp(0.1 * (math.exp(min(float(odds), 0.0)) - 0.8))
        yield z


def write_reference(path: str) -> None:
    """Write samples of the logarithms by the real solver, and how far the chains have mixed."""
    start, chains, size = time.process_time(), [], BLOCKS**2
    for number in range(CHAINS):
        rng = np.random.default_rng(number)
        first = np.stack([*chain(rng.standard_normal(size), np.eye(size), 0.04, WARM, 30, rng)])
        chains.append((rng, first[WARM // 3 :]))
    root = np.linalg.cholesky(np.cov(np.concatenate([one for _, one in chains]).T))
    draws = [[*chain(one[-1], root, 0.3, DRAWS, LEAPS, rng)][DRAWS // 5 :] for rng, one in chains]
    found = torch.from_numpy(np.array(draws))
    seconds = time.process_time() - start
    np.savez(path, logs=PRIOR_MEAN + PRIOR_STD * found.flatten(0, 1).numpy())
    print(f"R-hat {float(r_hat(found).max()):.3f} at most, effective sizes from "
          f"{float(effective_size(found).min()):.0f}, {seconds:.0f} s")  # fmt: skip


def pairs(size: int = PAIRS) -> tuple[np.ndarray, np.ndarray]:
    """Return coefficients (size, 8, 8) and readings (size, 13, 13)."""
    logs = PRIOR_MEAN + PRIOR_STD * np.random.default_rng(1).standard_normal((size, BLOCKS**2))
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
    membrane = Membrane()
    start = time.process_time()
    answer = model.condition(u=(grid, y, float(y.std()) / 10), likelihood=gaussian)
    scored("learned", answer, logs, start)
    for solves in (200, 1000, 4000):
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

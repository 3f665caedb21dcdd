"""Posteriors of the five problems of the shipped models: writes tests/models/references.json.

    python -m tests.models.references

takes about ten minutes. Laws, conditioning and all that has a closed form are written out here in
NumPy; nothing of the models is used. What is sampled: inputs given their sensors (diffusion1d,
elliptic_sde1d, navier_stokes) or unobserved coefficients (elliptic_sde2d), with the solvers of the
package for the two problems that have no closed form.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy import pi

from uqsonet_study.problems import get_problem

FILE = Path(__file__).with_name("references.json")
COUNTS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 5)
"""Sensors of each set. Odd sets are read without noise, the last with noise of each sensor."""
LEAST_DISTANCE = 0.08

Moments = tuple[np.ndarray, np.ndarray]
"""Means and standard deviations (8,) of u at the queries."""


@dataclass
class Law:
    """A Gaussian field: mean, variance and length of exp(-|x - x'|^2 / length^2)."""

    mean: Callable[[np.ndarray], np.ndarray]
    std: float
    length: float
    envelope: Callable[[np.ndarray], np.ndarray] = field(default=lambda x: np.ones(len(x)))

    def covariance(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        distance = ((a[:, None] - b) ** 2).sum(-1)
        found = self.std**2 * np.exp(-distance / self.length**2)
        return self.envelope(a)[:, None] * found * self.envelope(b)


@dataclass
class Sensors:
    """Places (m, d), transformed readings (m,) and their noise (m,)."""

    x: np.ndarray
    y: np.ndarray
    noise: np.ndarray

    def given(self, law: Law, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return gain (n, m) and mean (n,) of the field at points given the sensors."""
        seen = law.covariance(self.x, self.x) + np.diag(self.noise**2)
        gain = np.linalg.solve(seen, law.covariance(self.x, points)).T
        return gain, law.mean(points) + gain @ (self.y - law.mean(self.x))


def sensors(law: Law, axes: list[np.ndarray], noise: float, rng: np.random.Generator):
    """Yield sets on points of a grid that read draws of the law."""
    for number, count in enumerate(COUNTS):
        x = np.empty((0, len(axes)))
        while len(x) < count:
            new = np.array([rng.choice(axis[10:-10]) for axis in axes])
            if np.linalg.norm(x - new, axis=1).min(initial=1) > LEAST_DISTANCE:
                x = np.concatenate([x, new[None]])
        level = np.full(count, noise * (number % 2 == 0))
        if number == len(COUNTS) - 1:
            level = noise * np.arange(count) / 2
        covariance = law.covariance(x, x) + np.diag(level**2)
        normals = rng.standard_normal(count)
        yield Sensors(x, law.mean(x) + np.linalg.cholesky(covariance) @ normals, level)


def moments(mean: np.ndarray, second: np.ndarray) -> Moments:
    return mean, np.sqrt(second - mean**2)


def root(covariance: np.ndarray) -> np.ndarray:
    """Return a factor (n, r) of a covariance, r as small as rounding allows."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > 1e-12 * values[-1]
    return vectors[:, kept] * np.sqrt(values[kept])


# ``-(1/10) (k u')' = f`` on [-1, 1]: Green's function of resistances R(x), the integral of 10 / k

LINE = np.linspace(-1, 1, 401)
INNER = np.arange(40, 400, 45)[:8]


def green1d(k: np.ndarray) -> np.ndarray:
    """Return weights (N, 8, 401) of the source, by the trapezoidal rule on the grid."""
    steps = 10 * (1 / k[:, 1:] + 1 / k[:, :-1]) / 2 * 0.005
    resistance = np.pad(steps.cumsum(1), ((0, 0), (1, 0)))[:, None]
    at = resistance[..., INNER].transpose(0, 2, 1)
    whole = resistance[..., -1:]
    return 0.005 * np.minimum(at, resistance) * (1 - np.maximum(at, resistance) / whole)


def on_line(law: Law, source: Law, given: Sensors, rng: np.random.Generator) -> Moments:
    """Sample k given its sensors; given k, u is Gaussian in the source."""
    points, total, batches = LINE[:, None], np.zeros((2, 8)), 200
    gain, mean = given.given(law, points)
    spread = root(law.covariance(points, points) - gain @ law.covariance(given.x, points))
    factor = root(source.covariance(points, points)) if source.std else np.zeros((401, 1))
    for _ in range(batches):
        normals = rng.standard_normal((200, spread.shape[1]))
        weights = green1d(np.exp(mean + np.concatenate([normals, -normals]) @ spread.T))
        u = weights @ source.mean(points)
        total += u.mean(0), (u**2 + ((weights @ factor) ** 2).sum(-1)).mean(0)
    return moments(*(total / batches))


# The unit square


AXIS = np.linspace(0, 1, 101)
SQUARE = np.stack(np.meshgrid(AXIS, AXIS, indexing="ij"), -1).reshape(-1, 2)
ORBIT = [(28, 41), (59, 28), (72, 59), (41, 72), (41, 28), (28, 59), (59, 72), (72, 41)]
"""Queries: the images of one point under the symmetries of the square."""
F = Law(lambda x: 4 * np.sin(2 * pi * x).sum(-1), 1.0, 0.02**0.5)
ALONG = np.exp(-((AXIS[:, None] - AXIS) ** 2) / F.length**2)
"""Covariance of the source along one axis: that of the field is a product of two."""


def conditioned(given: list[Sensors]) -> list[tuple[np.ndarray, ...]]:
    """Return mean (n,) of the source, gain and covariance with the sensors (n, m) of each set."""
    return [(*one.given(F, SQUARE)[::-1], F.covariance(SQUARE, one.x)) for one in given]


def of_weights(weights: np.ndarray, laws: list[tuple[np.ndarray, ...]]) -> Iterator[Moments]:
    """Yield means and variances (...) of weights (..., 101, 101) on the source, for each set."""
    prior = (weights * (ALONG @ weights @ ALONG)).sum((-1, -2))
    flat = weights.reshape(*weights.shape[:-2], -1)
    for mean, gain, covariance in laws:
        yield flat @ mean, prior - ((flat @ covariance) * (flat @ gain)).sum(-1)


def poisson2d(given: list[Sensors]) -> list[Moments]:
    """``-(1/10) Lap u = f``: Green's function is a series of sines."""
    number = np.arange(1, 101)
    modes = np.sin(pi * np.outer(number, AXIS))
    values = 4 / (0.1 * pi**2 * (number[:, None] ** 2 + number**2)) * 0.01**2
    green = [modes.T @ (values * np.outer(modes[:, i], modes[:, j])) @ modes for i, j in ORBIT]
    found = of_weights(np.stack(green), conditioned(given))
    return [(mean, np.sqrt(variance)) for mean, variance in found]


def elliptic_sde2d(given: list[Sensors], rng: np.random.Generator) -> list[Moments]:
    """``-div(k grad u) = f``: all images of each sampled k count, as their law is the same."""
    problem, laws, size = get_problem("elliptic_sde2d"), conditioned(given), 2400
    total, factor = np.zeros((len(given), 2, 8)), root(ALONG)
    sources = np.zeros((8, 101, 101))
    sources[np.arange(8), *np.transpose(ORBIT)] = 1.0
    field = factor
    for number in range(size):
        if number % 2 == 0:
            field = factor @ rng.standard_normal((factor.shape[1],) * 2) @ factor.T
        k = np.exp(field if number % 2 else -field)
        green = problem.solve_affine(*(torch.from_numpy(a).flatten(-2) for a in (k[None], sources)))
        green, images = green.numpy().reshape(8, 101, 101), []
        for turns in range(4):
            for swapped in (False, True):
                moved, at = (np.rot90(a, turns, (1, 2)) for a in (green, sources))
                if swapped:
                    moved, at = moved.swapaxes(1, 2), at.swapaxes(1, 2)
                # Row i of `moved` answers a source where row i of `at` is one.
                images.append(moved[np.tensordot(sources, at, ((1, 2), (1, 2))).argmax(1)])
        for s, (mean, variance) in enumerate(of_weights(np.stack(images), laws)):
            total[s] += mean.mean(0), (mean**2 + variance).mean(0)
    return [moments(*one) for one in total / size]


def navier_stokes(law: Law, given: Sensors, rng: np.random.Generator) -> Moments:
    """Draws of the prior, moved by what they lack at the sensors (Matheron's rule)."""
    problem, total, batches = get_problem("navier_stokes"), np.zeros((2, 8)), 40
    problem.tolerance = 1e-4
    points = SQUARE.reshape(101, 101, 2)[:-1, :-1].reshape(-1, 2)
    factor, (gain, _) = root(ALONG[:-1, :-1]), given.given(law, points)
    row = np.array([100, 1])
    index, places = np.rint(given.x * 100).astype(int) @ row, np.array(ORBIT) @ row
    for _ in range(batches):
        normals = rng.standard_normal((50, factor.shape[1], factor.shape[1]))
        fields = law.envelope(points) * (factor @ normals @ factor.T).reshape(50, -1)
        fields = np.concatenate([fields, -fields])
        read = given.y - given.noise * rng.standard_normal((100, len(index)))
        fields = fields + (read - fields[:, index]) @ gain.T
        u = problem.solve(torch.from_numpy(fields).float()).double().numpy()[:, places]
        total += u.mean(0), (u**2).mean(0)
    return moments(*(total / batches))


LAWS = {
    "diffusion1d": Law(lambda x: np.sin(2 * pi * x[:, 0]), 0.5, 0.1),
    "elliptic_sde1d": Law(lambda x: np.sin(pi * x[:, 0] + 1), 0.3, 0.05),
    "elliptic_sde2d": F,
    "navier_stokes": Law(
        lambda x: np.zeros(len(x)), 1.0, F.length, lambda x: (x * (1 - x)).prod(-1) ** (1 / 3)
    ),
    "poisson2d": F,
}
SOURCES = {
    "diffusion1d": Law(lambda x: 2 * np.sin(2 * pi * x[:, 0]), 0.0, 1.0),
    "elliptic_sde1d": Law(lambda x: np.sin(2 * pi * x[:, 0]) + 0.1, 0.1, 0.1),
}


def rounded(values: np.ndarray) -> object:
    return np.vectorize(lambda v: float(f"{v:.5g}"), otypes=[float])(values).tolist()


def make(name: str) -> dict[str, Any]:
    """Return queries (8, d), and for each set its sensors and the moments of u."""
    rng, law, line = np.random.default_rng(2026), LAWS[name], name in SOURCES
    axes = [LINE] if line else [AXIS, AXIS]
    given = list(sensors(law, axes, 0.2 if name == "navier_stokes" else 0.5, rng))
    if name == "poisson2d":
        found = poisson2d(given)
    elif name == "elliptic_sde2d":
        found = elliptic_sde2d(given, rng)
    elif name == "navier_stokes":
        found = [navier_stokes(law, one, rng) for one in given]
    else:
        found = [on_line(law, SOURCES[name], one, rng) for one in given]
    return {
        "queries": rounded(LINE[INNER, None] if line else np.array(ORBIT) / 100),
        "sets": [
            {
                "x": rounded(one.x),
                "y": rounded(np.exp(one.y) if line else one.y),
                "noise": rounded(one.noise),
                "mean": rounded(mean),
                "std": rounded(std),
            }
            for one, (mean, std) in zip(given, found, strict=True)
        ],
    }


def main() -> None:
    blocks = []
    for name in LAWS:
        made = make(name)
        sets = ",\n".join(json.dumps(one) for one in made["sets"])
        blocks.append(f'"{name}": {{"queries": {json.dumps(made["queries"])}, "sets": [\n{sets}]}}')
    FILE.write_text("{" + ",\n".join(blocks) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main()

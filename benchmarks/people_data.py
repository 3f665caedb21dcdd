"""Seven small data sets of the kinds that people bring, each made anew from a seed.

Nothing is downloaded. Each is `size` runs to learn from and others to score on, of the same law.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

Row = tuple[str, str, int | np.ndarray]


@dataclass(frozen=True)
class Data:
    """Runs of one kind.

    Attributes
    ----------
    fields : dict of str to ndarray (N, n)
        All runs: those to learn from come first.
    points : dict of str to ndarray (n, d)
    size : int
        Number of runs to learn from.
    models : list of (input, outputs, rows)
        Fields that a model is fitted to, and what it is asked: (read, answered, places), the fields
        that sensors read and that are answered, and the number of sensors at random points or the
        points (m,) of all sensors.
    """

    fields: dict[str, np.ndarray]
    points: dict[str, np.ndarray]
    size: int
    models: list[tuple[str, list[str], list[Row]]]


def box(*axes: np.ndarray) -> np.ndarray:
    """Return the points (n, d) of a grid."""
    return np.stack([one.ravel() for one in np.meshgrid(*axes, indexing="ij")], 1)


def gaussian_fields(
    points: np.ndarray, length: float | np.ndarray, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Return Gaussian fields (count, n) of a squared exponential kernel, by random waves."""
    waves = rng.standard_normal((400, points.shape[1])) / length
    cosines, sines = np.cos(points @ waves.T), np.sin(points @ waves.T)
    amplitudes = rng.standard_normal((2, count, 400)) / 20
    return amplitudes[0] @ cosines.T + amplitudes[1] @ sines.T


def burgers(tests: int, rng: np.random.Generator) -> Data:
    """Viscous Burgers on a circle, 16 points: u at the start and at time 1; pseudo-spectral."""
    size, n = 1000, 128
    runs, x, k = size + tests, np.arange(n) / n, 2j * np.pi * np.fft.rfftfreq(n, 1 / n)
    waves = 2 * np.pi * np.arange(1, 3)[:, None] * x
    scale = 1 / np.arange(1, 3)[:, None]
    parts = rng.standard_normal((2, runs, 2))
    u0 = parts[0] @ (scale * np.cos(waves)) + parts[1] @ (scale * np.sin(waves))
    decay = np.exp(0.02 * k**2 * 5e-4)
    hat = np.fft.rfft(u0)

    def flux(hat: np.ndarray) -> np.ndarray:
        keep = np.arange(len(k)) < n // 3
        return -0.5 * k * np.fft.rfft(np.fft.irfft(hat * keep, n) ** 2)

    for _ in range(1000):  # Heun's method with an integrating factor, steps of 5e-4
        slope = 5e-4 * flux(hat)
        ahead = decay * (hat + slope)
        hat = decay * (hat + slope / 2) + 5e-4 / 2 * flux(ahead)
    fields = {"u0": u0[:, ::8], "u": np.fft.irfft(hat, n)[:, ::8]}
    points = dict.fromkeys(fields, x[::8, None])
    rows: list[Row] = [("u0", "u", 2), ("u0", "u", 5), ("u", "u0", 2), ("u", "u0", 5)]
    return Data(fields, points, size, [("u0", ["u"], rows)])


def allen_cahn(tests: int, rng: np.random.Generator) -> Data:
    """Allen-Cahn from rough starts: u0 on 128 points to u on 128 x 32; implicit diffusion."""
    size, n, times = 600, 128, 32
    runs, x = size + tests, np.linspace(0, 1, 128)
    u = 0.7 * gaussian_fields(x[:, None], 0.03, runs, rng)
    fields = {"u0": u.copy()}
    second = np.diag(np.full(n, -2.0)) + np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1)
    second[0, 1] = second[-1, -2] = 2.0  # no flux
    step = 5 / (times * 10)
    smooth = np.linalg.inv(np.eye(n) - step * 2e-4 * second * (n - 1) ** 2)
    kept = []
    for _ in range(times):
        for _ in range(10):
            u = (u + step * (u - u**3)) @ smooth.T
        kept.append(u)
    fields["u"] = np.stack(kept, 2).reshape(runs, -1)
    t = np.linspace(0, 1, times)
    points = {"u0": x[:, None], "u": box(x, t)}
    lines = np.round(np.linspace(12, 115, 5)).astype(int)
    read = (lines[:, None] * times + np.arange(times)).ravel()
    rows: list[Row] = [("u0", "u", 10), ("u0", "u", 30), ("u", "u", read), ("u", "u0", read)]
    return Data(fields, points, size, [("u0", ["u"], rows)])


def vortices(tests: int, rng: np.random.Generator) -> Data:
    """A street of vortices that travels: the speed across on 49 x 25, at random phases."""
    size, runs = 500, 500 + tests
    points = box(np.linspace(0, 4, 49), np.linspace(-1, 1, 25))
    phase, strength, wave = rng.random(runs), 1 + 0.1 * rng.standard_normal(runs), rng.random(runs)
    field = np.zeros((runs, len(points)))
    spacing, apart = 1.6 + 0.2 * wave, 0.25 + 0.05 * rng.standard_normal(runs)
    for number in range(-3, 6):
        sign = 1 - 2 * (number % 2)
        at = (number / 2 + phase) * spacing
        x = points[:, 0] - at[:, None]
        y = points[:, 1] - sign * apart[:, None]
        size_of = 0.25 + 0.03 * np.abs(at)[:, None]
        bump = np.exp(-(x**2 + y**2) / (2 * size_of**2))
        field += sign * strength[:, None] * x * bump / size_of
    rows: list[Row] = [("v", "v", m) for m in (3, 8)]
    return Data({"v": field}, {"v": points}, size, [("v", ["v"], rows)])


def climate(tests: int, rng: np.random.Generator) -> Data:
    """Months of a surface temperature and of rain on 72 x 37 points, land filled with the mean."""
    size, runs = 200, 200 + tests
    lon, lat = np.arange(0, 360, 5.0), np.linspace(-90, 90, 37)
    points = box(lon, lat)
    turn = np.deg2rad(points)
    sphere = np.stack(
        [np.cos(turn[:, 1]) * np.cos(turn[:, 0]), np.cos(turn[:, 1]) * np.sin(turn[:, 0]),
         np.sin(turn[:, 1])], 1,
    )  # fmt: skip
    month = 2 * np.pi * np.arange(runs) / 12
    maps = gaussian_fields(sphere, 0.35, 12, rng)
    index = np.zeros((runs, 12))
    for k in range(1, runs):
        index[k] = 0.8 * index[k - 1] + 0.6 * rng.standard_normal(12)
    season = np.cos(month)[:, None] * np.sin(turn[:, 1])
    sst = 28 * np.cos(turn[:, 1]) ** 2 - 3 * season + 0.6 * index @ maps
    sst = sst + 0.4 * gaussian_fields(sphere, 0.1, runs, rng)
    land = gaussian_fields(sphere, 0.5, 1, rng)[0] > 0.6
    belt = 6 * np.exp(-(((points[:, 1] - 8 * np.cos(month)[:, None]) / 12) ** 2))
    warm = np.log1p(np.exp((sst - 27.0) / 1.5))
    distant = index[:, :3] @ gaussian_fields(sphere, 0.3, 3, rng)
    noise = gaussian_fields(sphere, 0.15, runs, rng)
    rain = np.maximum(0.5 + belt + warm + 0.4 * distant + 0.8 * noise, 0.0)
    sst[:, land] = sst[:, ~land].mean()
    fields = {"sst": sst + 1e-3 * rng.standard_normal(sst.shape), "pr": rain}
    rows: list[Row] = [("sst", "pr", m) for m in (20, 60)]
    return Data(fields, dict.fromkeys(fields, points), size, [("sst", ["pr"], rows)])


def permeability(tests: int, rng: np.random.Generator) -> Data:
    """Darcy flow through 24 x 24 cells: 40 permeabilities, the pressure, flux and arrival time."""
    size, n = 40, 24
    runs, centres = size + tests, (np.arange(24) + 0.5) / 24
    points = box(centres, centres)
    k = 10.0 ** (-13.5 + 0.6 * gaussian_fields(points, 0.25, runs, rng))
    fields = {"k": k, "p": np.empty((runs, n * n)), "scalars": np.empty((runs, 2))}
    number = np.arange(n * n).reshape(n, n)
    for run in range(runs):
        conductivity = 1e13 * k[run].reshape(n, n)
        along = 2 / (1 / conductivity[1:] + 1 / conductivity[:-1])
        across = 2 / (1 / conductivity[:, 1:] + 1 / conductivity[:, :-1])
        i = np.concatenate([number[1:].ravel(), number[:, 1:].ravel()])
        j = np.concatenate([number[:-1].ravel(), number[:, :-1].ravel()])
        t = np.concatenate([along.ravel(), across.ravel()])
        matrix = sp.coo_matrix((-t, (i, j)), (n * n, n * n))
        matrix = matrix + matrix.T
        ends = np.zeros((n, n))
        ends[0] += 2 * conductivity[0]
        ends[-1] += 2 * conductivity[-1]
        diagonal = -np.asarray(matrix.sum(1)).ravel() + ends.ravel()
        known = np.zeros((n, n))
        known[0] = 2 * conductivity[0] * 1e7  # ten MPa on the left, none on the right
        p = splu((matrix + sp.diags(diagonal)).tocsc()).solve(known.ravel())
        flux = (2 * conductivity[-1] * p.reshape(n, n)[-1]).mean() / 1e7
        slowness = (1 / (along * -np.diff(p.reshape(n, n), axis=0) / 1e7 * n)).sum(0) / n
        fields["p"][run] = p
        fields["scalars"][run] = 1e-3 * flux, 1e5 * slowness.min()
    where = {"k": points, "p": points, "scalars": np.array([[0.0], [1.0]])}
    models: list[tuple[str, list[str], list[Row]]] = [
        ("k", [one], [("k", one, 8)]) for one in ("p", "scalars")
    ]
    return Data(fields, where, size, models)


@cache
def plate() -> tuple[np.ndarray, np.ndarray]:
    """Return the 2,907 nodes of a quarter of a plate with a hole, and the triangles."""
    ring, out = np.linspace(0, np.pi / 2, 51), np.linspace(0, 1, 57) ** 1.3
    inner = np.stack([0.3 * np.cos(ring), 0.3 * np.sin(ring)], 1)
    outer = np.stack([np.cos(ring), np.sin(ring)], 1)
    outer /= np.abs(outer).max(1, keepdims=True)
    nodes = (inner[None] + out[:, None, None] * (outer - inner)).reshape(-1, 2)
    number = np.arange(57 * 51).reshape(57, 51)
    a, b, c, d = number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]
    pairs = [np.stack(three, -1).reshape(-1, 3) for three in ((a, b, c), (a, c, d))]
    return nodes, np.concatenate(pairs)


def plate_with_a_hole(tests: int, rng: np.random.Generator) -> Data:
    """Displacements of a heated plate with a hole, held on its right edge; linear elements."""
    size, (nodes, triangles) = 300, plate()
    heat = gaussian_fields(nodes, 0.12, size + tests, rng)
    x, y = nodes[triangles, 0], nodes[triangles, 1]
    edges = np.stack([y[:, [1, 2, 0]] - y[:, [2, 0, 1]], x[:, [2, 0, 1]] - x[:, [1, 2, 0]]], 1)
    area = ((x[:, 1] - x[:, 0]) * (y[:, 2] - y[:, 0])
            - (x[:, 2] - x[:, 0]) * (y[:, 1] - y[:, 0])) / 2  # fmt: skip
    gradient = edges / (2 * area[:, None, None])
    strain = np.zeros((len(triangles), 3, 6))
    strain[:, 0, ::2], strain[:, 1, 1::2] = gradient[:, 0], gradient[:, 1]
    strain[:, 2, ::2], strain[:, 2, 1::2] = gradient[:, 1], gradient[:, 0]
    law = np.array([[1, 0.3, 0], [0.3, 1, 0], [0, 0, 0.35]]) / (1 - 0.3**2)
    stress = area[:, None, None] * strain.transpose(0, 2, 1) @ law
    local = stress @ strain
    freedom = (2 * triangles[:, :, None] + np.arange(2)).reshape(-1, 6)
    i = np.broadcast_to(freedom[:, :, None], local.shape).ravel()
    j = np.broadcast_to(freedom[:, None, :], local.shape).ravel()
    stiffness = sp.coo_matrix((local.ravel(), (i, j)), (2 * len(nodes),) * 2).tocsc()
    load = np.zeros((size + tests, 2 * len(nodes)))
    warm = heat[:, triangles].mean(2)  # thermal strain (1, 1, 0) times the temperature
    per_element = stress @ np.array([1.0, 1.0, 0.0])
    for corner in range(6):
        to = sp.coo_matrix(
            (per_element[:, corner], (np.arange(len(triangles)), freedom[:, corner])),
            (len(triangles), 2 * len(nodes)),
        )  # fmt: skip
        load += warm @ to.tocsr()
    free = np.ones(2 * len(nodes), dtype=bool)
    held = np.flatnonzero(nodes[:, 0] > 1 - 1e-9)
    free[2 * held] = free[2 * held + 1] = False
    solve = splu(stiffness[free][:, free].tocsc()).solve
    u = np.zeros_like(load)
    u[:, free] = solve(load[:, free].T).T
    fields = {"heat": heat, "ux": u[:, ::2], "uy": u[:, 1::2]}
    rows: list[Row] = [("heat", one, 8) for one in ("ux", "uy")]
    gauges = np.array([20 * 51 + 5, 20 * 51 + 25, 20 * 51 + 45, 45 * 51 + 15, 45 * 51 + 35])
    read: list[Row] = [("ux", one, gauges) for one in ("uy", "heat")]
    models = [("heat", ["ux", "uy"], one) for one in (rows, read)]
    return Data(fields, dict.fromkeys(fields, nodes), size, models)


def aquifer(tests: int, rng: np.random.Generator) -> Data:
    """Steady flow to a pumped well through 40 x 30 cells, some of them not active; 8 wells read it.

    The conductivity is lognormal; the head is held along the left edge, and it rains.
    """
    size, shape, across = 240, (40, 30), 20.0
    points = box(*(across * (np.arange(n) + 0.5) for n in shape))
    x, y = (points / points.max(0)).T
    active = (x + 0.6 * y < 1.3) & ((x - 0.35) ** 2 + (y - 0.9) ** 2 > 0.02)
    k = np.exp(2.0 + 0.8 * gaussian_fields(points, 120.0, size + tests, rng))  # m a day, x 10 m
    number = np.arange(len(points)).reshape(shape)
    i = np.concatenate([number[1:].ravel(), number[:, 1:].ravel()])
    j = np.concatenate([number[:-1].ravel(), number[:, :-1].ravel()])
    open_faces = active[i] & active[j]
    i, j = i[open_faces], j[open_faces]
    held = active & (points[:, 0] < across)
    source = np.where(active, 0.001 * across**2, 0.0)
    source[number[18, 11]] -= 350.0
    free = np.flatnonzero(active & ~held)
    head = np.full((size + tests, len(points)), 50.0)
    for run, values in enumerate(k):
        between = 10 * 2 / (1 / values[i] + 1 / values[j])
        flow = sp.coo_matrix((-between, (i, j)), (len(points),) * 2)
        flow = flow + flow.T
        flow = (flow - sp.diags(np.asarray(flow.sum(1)).ravel())).tocsc()
        known = source - flow @ np.where(held, 50.0, 0.0)
        head[run, free] = splu(flow[free][:, free]).solve(known[free])
    places = [(6, 5), (6, 22), (14, 10), (15, 18), (22, 5), (22, 16), (30, 4), (30, 12)]
    wells = np.searchsorted(np.flatnonzero(active), [number[place] for place in places])
    fields = {"k": k[:, active], "head": head[:, active]}
    rows: list[Row] = [("head", one, wells) for one in ("head", "k")]
    return Data(fields, dict.fromkeys(fields, points[active]), size, [("k", ["head"], rows)])


KINDS: dict[str, Callable[[int, np.random.Generator], Data]] = {
    "burgers": burgers,
    "allen_cahn": allen_cahn,
    "vortices": vortices,
    "climate": climate,
    "permeability": permeability,
    "plate": plate_with_a_hole,
    "aquifer": aquifer,
}
"""Makers of the data sets: number of runs to score on and generator to data."""

"""Where sensors stand: layouts, pregenerated per sensor count as indices of grid points.

Two laws: distinct grid points drawn uniformly, and regular-space clustering of randomly permuted
grid points (section 4.2), which keeps the sensors of a layout apart.
Regular-space clustering scans points in their order and makes a centre of each that is farther than
d_min from all centres so far. How many centres come is random, so a fresh permutation is scanned
until there are m, and the first m are the layout.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import ConfigError, ObservationError
from uqsonet.fields.grid import Grid
from uqsonet.fields.stacked import domain_as_dict
from uqsonet.files import readable
from uqsonet.gauss.seeds import numpy_generator
from uqsonet_study.problems import get_problem
from uqsonet_study.settings import Layout
from uqsonet_study.storage import ArrayFile, write_arrays

BLOCK = 500
"""Regular-space layouts that share a node of the seed tree. Another value gives other layouts."""

RETRIES = 1000  # permutations scanned in vain for one layout before m sensors count as too many
FIRST = 64
"""Points in the first part of a scan; later parts double. Changes the speed and no layout."""


def uniform_layouts(
    generator: np.random.Generator, points: int, sensors: int, layouts: int
) -> np.ndarray:
    """Draw layouts of distinct grid points, uniformly.

    Parameters
    ----------
    points, sensors, layouts : int
        Grid points to choose from, sensors in a layout, number of layouts.

    Returns
    -------
    array of int32, shape (layouts, sensors)

    Raises
    ------
    ObservationError
        If there are more sensors than grid points.
    """
    if sensors > points:
        raise ObservationError(f"{sensors} sensors cannot stand on {points} distinct grid points")
    chosen = np.empty((layouts, sensors), dtype=np.int32)
    # Floyd's algorithm, over all layouts at once: sensor j takes a draw from the first
    # points - sensors + j + 1 points or, if that is taken, the last of them.
    for j in range(sensors):
        last = points - sensors + j
        draw = generator.integers(0, last + 1, layouts, dtype=np.int32)
        taken = (chosen[:, :j] == draw[:, None]).any(1)
        chosen[:, j] = np.where(taken, last, draw)
    return generator.permuted(chosen, axis=1)


@dataclass(frozen=True)
class Lattice:
    """Grid points in units of the smallest spacing.

    Grid coordinates such as 0.1 + 0.8 are rounded, so which of two points exactly d_min apart
    counts as farther would be chance. In units of the spacing they are whole numbers (on grids
    whose spacings are multiples of each other), and so are squares of distances: exact even in
    the single precision that PyEMMA computes in.
    """

    shape: tuple[int, ...]  # points along each axis
    steps: np.ndarray  # (d,), spacing along each axis
    unit: float  # the smallest spacing, in units of the domain

    @classmethod
    def of(cls, grid: Grid) -> Lattice:
        """Return the lattice of a grid."""
        spacing = np.array(grid.spacing())
        return cls(grid.shape, _whole(spacing / spacing.min()), float(spacing.min()))

    def coordinates(self, index: np.ndarray) -> np.ndarray:
        """Return coordinates (n, d), float64, of flat indices (n,)."""
        return np.stack(np.unravel_index(index, self.shape), axis=-1) * self.steps

    def index(self, coordinates: np.ndarray) -> np.ndarray:
        """Return flat indices (n,), int32, of coordinates (n, d)."""
        places = np.rint(coordinates / self.steps).astype(np.int64)
        return np.asarray(np.ravel_multi_index(tuple(places.T), self.shape), dtype=np.int32)

    def distance(self, distance: float) -> float:
        """Return a distance of the domain in units of the smallest spacing."""
        return float(_whole(np.array(distance / self.unit)))


def _whole(values: np.ndarray) -> np.ndarray:
    """Round what is a whole number but for rounding errors, and leave the rest."""
    nearest = np.rint(values)
    return np.where(np.isclose(values, nearest, rtol=1e-9, atol=0), nearest, values)


def candidates(grid: Grid, margin: float) -> np.ndarray:
    """Return the grid points at which sensors may stand.

    Parameters
    ----------
    margin : float
        Least distance from the boundary of the box; points at that distance are in.

    Returns
    -------
    array of int32, shape (n,)
        Ascending flat indices.

    Raises
    ------
    ConfigError
        If no grid point is left.
    """
    points, lower, upper = grid.points().numpy(), np.array(grid.lower), np.array(grid.upper)
    depth = np.minimum(points - lower, upper - points)
    slack = 1e-9 * (upper - lower)  # 0.1 and 1 - 0.9 differ in the last digit
    found = np.flatnonzero((depth >= margin - slack).all(1)).astype(np.int32)
    if not len(found):
        raise ConfigError(
            f"margin: no grid point of {list(grid.lower)} to {list(grid.upper)} is "
            f"{margin} away from the boundary"
        )
    return found


def _pyemma_centres(points: np.ndarray, distance: float, wanted: int) -> np.ndarray:
    """Return the first centres of a scan by the call that the paper names."""
    try:
        coordinates = importlib.import_module("pyemma.coordinates")
    except ImportError as error:
        raise ConfigError(
            f"backend: pyemma cannot be imported ({error}); install it with `make pyemma`, "
            "or choose deeptime, which gives the same layouts"
        ) from None
    # Every call warns that it is deprecated, and a scan with one centre logs so: it is no failure.
    logging.getLogger("pyemma.coordinates.clustering").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scan = coordinates.cluster_regspace(
            points, dmin=distance, max_centers=len(points), n_jobs=1
        )
    return scan.clustercenters[:wanted].astype(np.float64)


def first_centres(
    points: np.ndarray, distance: float, wanted: int, backend: str = "deeptime"
) -> np.ndarray:
    """Scan points in their order and return the first centres of regular-space clustering.

    A point becomes a centre if it is strictly farther than `distance` from all centres so far:
    a point at exactly that distance does not, in either library.

    Parameters
    ----------
    points : array, shape (n, d)
    wanted : int
        Centres after which the scan may end.
    backend : str
        ``deeptime`` or ``pyemma``.

    Returns
    -------
    array, shape (k, d), k <= wanted
        Fewer if the scan of all points finds no more.
    """
    if backend == "pyemma":
        return _pyemma_centres(points, distance, wanted)
    from deeptime.clustering import RegularSpace  # deferred: slow, and most runs need none

    # Reaching max_centers would only warn, so it is set where it cannot be reached. A scan goes
    # on from the centres it has, so one in parts that ends early finds the same first centres.
    scan = RegularSpace(distance, max_centers=len(points), n_jobs=1)
    start, stop, centres = 0, FIRST, points[:0]
    while start < len(points) and len(centres) < wanted:
        centres = scan.partial_fit(points[start:stop]).fetch_model().cluster_centers
        start, stop = stop, 2 * stop
    return centres[:wanted]


def regular_space_layouts(
    generator: np.random.Generator,
    grid: Grid,
    places: np.ndarray,
    sensors: int,
    distance: float,
    backend: str = "deeptime",
) -> Iterator[np.ndarray]:
    """Yield layouts whose sensors are farther than `distance` from each other, without end.

    Parameters
    ----------
    generator : numpy.random.Generator
        Gives one permutation of the candidates a scan.
    places : array of int, shape (n,)
        Candidates, as flat indices.
    sensors : int
        Sensors in a layout.
    distance : float
        d_min, in units of the domain.
    backend : str
        ``deeptime`` or ``pyemma``.

    Yields
    ------
    array of int32, shape (sensors,)
        Flat indices in the order of the scan.

    Raises
    ------
    ConfigError
        If `RETRIES` permutations in a row give fewer centres.
    """
    lattice = Lattice.of(grid)
    points, apart = lattice.coordinates(places), lattice.distance(distance)
    while True:
        most = 0
        for _ in range(RETRIES):
            centres = first_centres(generator.permutation(points), apart, sensors, backend)
            most = max(most, len(centres))
            if most == sensors:
                yield lattice.index(centres)
                break
        else:
            raise ConfigError(
                f"distances: {RETRIES} scans of {len(places)} grid points found at most "
                f"{most} sensors that are {distance} apart, {sensors} are asked for"
            )


def _layouts(
    grid: Grid, config: Layout, sensors: int, size: int, seed: int, *path: str | int
) -> np.ndarray:
    """Return the layouts of one split and sensor count, shape (size, sensors)."""
    places = candidates(grid, config.margin)
    if not config.distances:
        return places[uniform_layouts(numpy_generator(seed, *path), len(places), sensors, size)]

    def block(generator: np.random.Generator) -> Iterator[np.ndarray]:
        distance = config.distances.get(sensors)
        if distance is None:
            return iter(places[uniform_layouts(generator, len(places), sensors, BLOCK)])
        return regular_space_layouts(generator, grid, places, sensors, distance, config.backend)

    # A block's layouts come one after another from its own stream, so whatever part of a block a
    # pool keeps, a larger pool begins with it.
    return np.stack(
        [
            layout
            for start in range(0, size, BLOCK)
            for layout in islice(
                block(numpy_generator(seed, *path, "block", start // BLOCK)),
                min(BLOCK, size - start),
            )
        ]
    )


def generate_layouts(
    problem: str,
    config: Layout,
    seed: int,
    validation: int,
    test: int,
    path: Path,
) -> None:
    """Pregenerate layouts for training, validation and test and store them.

    Arrays ``<split>/<m>`` hold indices of grid points, shape (layouts, m). Each split and count
    has its own stream, so a new count or a larger pool leaves the others unchanged.
    """
    grid = get_problem(problem).grid
    sizes = {"training": config.pool, "validation": validation, "test": test}
    arrays = {
        f"{split}/{m}": [_layouts(grid, config, m, size, seed, problem, split, "sensors", m)]
        for split, size in sizes.items()
        for m in config.counts
    }
    meta = {"problem": problem, "seed": seed, "config": config.model_dump(mode="json")}
    meta["grid"] = domain_as_dict(grid)
    write_arrays(path, "sensors", meta, arrays)


def require_places(problem: str, config: Layout) -> None:
    """Refuse more sensors than a problem has grid points for them.

    Raises
    ------
    ConfigError
    """
    places = len(candidates(get_problem(problem).grid, config.margin))
    if config.counts[-1] > places:
        raise ConfigError(
            f"layouts: {config.counts[-1]} sensors cannot stand on the {places} grid points of "
            f"{problem} that are {config.margin:g} away from the boundary"
        )


def load_layouts(path: Path, split: str) -> dict[int, Tensor]:
    """Return layouts of one split: sensor count -> indices of points (layouts, m).

    Raises
    ------
    DataError
        If the file is damaged.
    """
    with ArrayFile(path, "sensors") as file, readable(path, "header cannot be read"):
        counts = [int(m) for m in file.meta["config"]["counts"]]
        return {m: torch.from_numpy(file.read(f"{split}/{m}")).long() for m in counts}

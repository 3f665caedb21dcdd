"""Mean and std of a field on 101 x 101 points given sensors: ours, PyKrige and GSTools.

The field is the source of section 4.2. PyKrige (ordinary kriging) and GSTools (simple kriging) are
told its covariance; ours has learned it from training pairs, as 256 modes, and knows u as well.
Ours takes a product of all points and modes however few sensors there are, theirs one of all points
and sensors.

    pip install pykrige gstools    # they are in no environment otherwise
    python -m benchmarks --only kriging
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np

import uqsonet
from benchmarks.rows import Row
from benchmarks.timing import hardware, medians
from uqsonet_study.problems import get_problem

NOISE = 0.1


def _pykrige(x: np.ndarray, y: np.ndarray, axis: np.ndarray) -> None:
    from pykrige.ok import OrdinaryKriging  # pyright: ignore[reportMissingImports]

    # Its "gaussian" has the length 7/4 of that in exp(-(d / a)^2), here a = 0.1 sqrt(2).
    law = {"psill": 1.0, "range": 0.1 * 2**0.5 * 7 / 4, "nugget": NOISE**2}
    found = OrdinaryKriging(*x.T, y, variogram_model="gaussian", variogram_parameters=law)
    found.execute("grid", axis, axis)


def _gstools(x: np.ndarray, y: np.ndarray, axis: np.ndarray) -> None:
    import gstools  # pyright: ignore[reportMissingImports]

    def trend(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return 4 * (np.sin(2 * np.pi * a) + np.sin(2 * np.pi * b))

    law = gstools.Gaussian(dim=2, var=1, len_scale=0.1 * 2**0.5, rescale=1.0)
    found = gstools.krige.Simple(law, x.T, y, mean=0, trend=trend, cond_err=NOISE**2, exact=False)
    found.structured([axis, axis])


PEERS = {"PyKrige": ("pykrige", _pykrige), "GSTools": ("gstools", _gstools)}


def rows(quick: bool) -> list[Row]:
    """Return seconds for one posterior, a peer in each row."""
    problem, model = get_problem("poisson2d"), uqsonet.load("poisson2d")
    generator, axis = np.random.default_rng(0), np.linspace(0, 1, 101)
    kappa, _ = problem.sample(generator, 1)
    found = []
    for sensors in (10,) if quick else (10, 100, 500):
        at = generator.choice(problem.grid.size, sensors, replace=False)
        x, y = problem.grid.points()[at].numpy(), kappa[0, at].numpy()
        y = y + NOISE * generator.standard_normal(sensors)

        def ours(x: np.ndarray = x, y: np.ndarray = y) -> None:
            field = model.condition(x, y, noise_std=NOISE)["f"]
            _ = field.mean(), field.std()

        for peer, (package, theirs) in PEERS.items():
            name = f"kriging, mean and std on 10,201 points, {sensors} sensors, beside {peer}"
            actions: dict[str, Callable[[], object]] = {"ours": ours}
            if there := find_spec(package) is not None:
                actions["theirs"] = lambda theirs=theirs, x=x, y=y: theirs(x, y, axis)
            taken = medians(actions, 1 if quick else 5)
            told = peer if there else f"{package} is not installed"
            found.append(
                Row(name, hardware(1), taken["ours"], "s/posterior", told, taken.get("theirs"))
            )
    return found

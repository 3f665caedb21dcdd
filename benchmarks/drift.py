"""Fields of another time than the runs': `uqsonet.fit` with and without drift, beside regressions.

The files are two climate simulations of iris-sample-data (surface air temperature of 240 years over
North America, A1B warms). Half of the years are runs, the other half are asked about:

    pip download --no-deps iris-sample-data && unzip iris_sample_data-*.whl
    python -m benchmarks.drift iris_sample_data/sample_data/{A1B,E1}_north_america.nc \
        --out published/own_data/drift.csv
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.stats import norm

import uqsonet
from benchmarks.people import BASELINES, LAYOUTS, inside, normal_crps
from benchmarks.people_data import box

COUNTS = 5, 20, 60  # numbers of sensors


def scores(mean: np.ndarray, std: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Return CRPS and the shares in bands of 50 and 90 % of normal laws (B, M)."""
    found = {"crps": float(normal_crps(mean, std, truth).mean())}
    for level in (0.5, 0.9):
        wide = norm.ppf((1 + level) / 2) * std
        found[f"held_{100 * level:.0f}"] = float(inside(mean - wide, mean + wide, truth).mean())
    return found


def rows(path: Path, split: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each number of sensors and method."""
    with xr.open_dataset(path, decode_times=False) as file:
        years = file["air_temperature"].values.astype(float).reshape(file.sizes["time"], -1)
        points = box(file["latitude"].values, file["longitude"].values)
    if split == "random":
        years = np.random.default_rng(0).permutation(years)
    runs, later = np.split(years, 2)
    given = uqsonet.Runs({"t": (runs, points)}, None, name=path.stem)
    models = {
        name: uqsonet.fit(given, sensors=list(COUNTS), drift=drift, bar=False)
        for name, drift in (("uqsonet", False), ("uqsonet, drift", True))
    }
    generator = np.random.default_rng(1)
    for count in COUNTS:
        found: dict[str, list[dict[str, float]]] = {}
        for part in range(LAYOUTS):  # a layout for some of the years each
            at, truth = generator.choice(len(points), count, replace=False), later[part::LAYOUTS]
            for name, answer in BASELINES.items():
                law = answer(runs[:, at], runs, truth[:, at])
                found.setdefault(name, []).append(scores(*law, truth))
            places = np.broadcast_to(points[at], (len(truth), count, 2))
            for name, model in models.items():
                one = model.condition(places, truth[:, at])
                found.setdefault(name, []).append(scores(one.mean(), one.std(), truth))
        for name, every in found.items():
            mean = {key: round(np.mean([one[key] for one in every]), 4) for key in every[0]}
            about = {"data": path.stem, "split": split, "sensors": count}
            yield {**about, "method": name, "runs": len(runs), **mean}


def main() -> None:
    """Fit, score and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found: list[dict[str, Any]] = []
    for path in options.files:
        for split in ("time", "random"):
            found += rows(path, split)
            pd.DataFrame(found).to_csv(options.out, index=False)
    print(pd.DataFrame(found).to_string(index=False))


if __name__ == "__main__":
    main()

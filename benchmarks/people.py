"""`uqsonet.fit` on data sets that people bring, beside plain regressions by other code.

Least squares, a Gaussian process and cokriging are numpy and scipy alone and know the sensors'
places in advance; each is fitted to all the runs that `fit` has. Scores are of other runs.

    python -m benchmarks.people --out published/own_data/people.csv
    python -m benchmarks.people --only burgers --sizes 8 16 32 64 128 256 1024 \
        --out published/own_data/people_sizes.csv --figure docs/benchmarks/runs.png
"""

from __future__ import annotations

import argparse
import itertools
import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import norm

from benchmarks.people_data import KINDS, Data, Row
from benchmarks.real_data import REAL

LAYOUTS = 4
"""Number of random layouts of a row; runs share them."""

TESTS = 60
"""Number of runs to score on."""

POINTS = 400
"""Maximum number of points that scores are averaged over."""

COLUMNS = [
    *("data", "sensors", "method", "runs", "err_mean", "crps", "crps_se"),
    *("plain_50", "plain_90", "conformal_50", "conformal_90"),
]
"""Columns of the file; the printed table has the paired difference from `uqsonet`, too."""

Answer = tuple[np.ndarray, np.ndarray]
"""Mean and standard deviation (B, M) of normal laws."""


def standardised(train: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return readings less their mean over their standard deviation."""
    mean, std = train.mean(0), train.std(0)
    std = np.where(std > 1e-9 * np.abs(train).max(), std, 1.0)
    return (train - mean) / std, (new - mean) / std


def of_kernel(kernel: np.ndarray, ridge: float, targets: np.ndarray) -> tuple[Any, ...]:
    """Return weights, leave-one-out errors and their variance of kernel ridge regression."""
    factor = cho_factor(kernel + ridge * np.eye(len(kernel)))
    inverse = cho_solve(factor, np.eye(len(kernel)))
    weights = inverse @ targets
    return inverse, weights, weights / inverse.diagonal()[:, None]


def kernel_answer(
    kernels: list[Callable[[np.ndarray, np.ndarray], np.ndarray]], ridges: list[float],
    train: np.ndarray, targets: np.ndarray, new: np.ndarray,
) -> Answer:  # fmt: skip
    """Return the answer of the kernel and ridge with the least leave-one-out error."""
    mean, best = targets.mean(0), None
    some = targets - mean
    for kernel in kernels:
        square = kernel(train, train)
        size = square.diagonal().mean()
        for ridge in ridges:
            inverse, weights, left = of_kernel(square, ridge * size, some)
            error = float(np.square(left).mean())
            if best is None or error < best[0]:
                best = error, kernel, ridge * size, inverse, weights, left
    assert best is not None
    _, kernel, ridge, inverse, weights, left = best
    cross = kernel(new, train)
    own = np.array([kernel(row[None], row[None])[0, 0] for row in new])
    variance = own + ridge - ((cross @ inverse) * cross).sum(1)
    scale = np.square(left * np.sqrt(inverse.diagonal())[:, None]).mean(0)
    return mean + cross @ weights, np.sqrt(np.maximum(variance, 0)[:, None] * scale)


def least_squares(train: np.ndarray, targets: np.ndarray, new: np.ndarray) -> Answer:
    """Return ridge regression; ridge by leave-one-out."""
    a, b = standardised(train, new)
    ridges = list(10.0 ** np.arange(-8, 2))
    return kernel_answer([lambda x, y: x @ y.T + 1e-12], ridges, a, targets, b)


def gaussian_process(train: np.ndarray, targets: np.ndarray, new: np.ndarray) -> Answer:
    """Return a Gaussian process on readings; length and noise by leave-one-out."""
    a, b = standardised(train, new)

    def of(length: float) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        scale = 2 * a.shape[1] * length**2

        def kernel(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            square = (x**2).sum(1)[:, None] + (y**2).sum(1) - 2 * x @ y.T
            return np.exp(-np.maximum(square, 0) / scale)

        return kernel

    return kernel_answer(
        [of(length) for length in (0.3, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)],
        list(10.0 ** np.arange(-8, 1)), a, targets, b,
    )  # fmt: skip


def cokriging(train: np.ndarray, targets: np.ndarray, new: np.ndarray) -> Answer:
    """Return the joint normal law of readings and targets, given readings; moments of the runs."""
    a, b = standardised(train, new)
    mean, size = targets.mean(0), len(a)
    values, vectors = np.linalg.eigh(a.T @ a / size)
    seen = values > 1e-8 * values[-1]
    inverse = (vectors[:, seen] / values[seen]) @ vectors[:, seen].T
    gain = inverse @ (a.T @ (targets - mean) / size)
    variance = np.square(targets - mean - a @ gain).mean(0)
    return mean + b @ gain, np.sqrt(np.broadcast_to(variance, (len(b), len(mean))))


def mean_of_runs(train: np.ndarray, targets: np.ndarray, new: np.ndarray) -> Answer:
    """Return mean and spread of the runs, whatever is read."""
    shape = len(new), targets.shape[1]
    return np.broadcast_to(targets.mean(0), shape), np.broadcast_to(targets.std(0, ddof=1), shape)


BASELINES: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], Answer]] = {
    "least_squares": least_squares,
    "gaussian_process": gaussian_process,
    "cokriging": cokriging,
    "mean": mean_of_runs,
}


def normal_crps(mean: np.ndarray, std: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the CRPS of normal laws."""
    std = np.maximum(std, 1e-300)
    z = (truth - mean) / std
    return std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - np.pi**-0.5)


def sample_crps(samples: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the unbiased CRPS (M,) of samples (n, M)."""
    n = len(samples)
    ordered = np.sort(samples, 0)
    apart = (2 * np.arange(n) - (n - 1)) @ ordered / (n * (n - 1))
    return np.abs(samples - truth).mean(0) - apart


def inside(lower: np.ndarray, upper: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the share (B,) of points whose band holds the truth; bands without width left out."""
    free = upper - lower > 1e-9 * np.max(upper - lower)
    return np.nanmean(np.where(free, (truth >= lower) & (truth <= upper), np.nan), 1)


def layouts(places: int | np.ndarray, points: int, seed: list[int]) -> list[np.ndarray]:
    """Return the points of the sensors: `LAYOUTS` random sets, or the ones that are stated."""
    if isinstance(places, np.ndarray):
        return [places]
    rng = np.random.default_rng(seed)
    return [np.sort(rng.choice(points, min(places, points), replace=False)) for _ in range(LAYOUTS)]


def score_rows(
    data: Data, read: str, answered: str, places: int | np.ndarray, model: Any, log: bool,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield a row for each method; `log` takes the logarithm of readings for the baselines."""
    size, y, targets = data.size, data.fields[read], data.fields[answered]
    y = np.log(y) if log else y
    rng = np.random.default_rng(5)
    columns = np.sort(rng.permutation(targets.shape[1])[:POINTS])
    sets = layouts(places, y.shape[1], [7, y.shape[1]])
    asked = np.arange(max(size, len(targets) - TESTS), len(targets))
    parts = np.array_split(asked, len(sets))
    found: dict[str, list[dict[str, np.ndarray]]] = {m: [] for m in ("uqsonet", *BASELINES)}
    for index, runs in zip(sets, parts, strict=True):
        truth = targets[runs]
        for method, answer in BASELINES.items():
            mean, std = answer(y[:size][:, index], targets[:size], y[runs][:, index])
            one = {
                "err_mean": np.linalg.norm(mean - truth, axis=1) / np.linalg.norm(truth, axis=1),
                "crps": normal_crps(mean, std, truth)[:, columns].mean(1),
            }
            for level in (0.5, 0.9):
                wide = norm.ppf((1 + level) / 2) * std
                one[f"plain_{100 * level:.0f}"] = inside(mean - wide, mean + wide, truth)
            found[method].append(one)
        if model is not None:
            where = data.points[read][index]
            found["uqsonet"].append(
                of_model(model, read, answered, where, data.fields[read][runs][:, index], truth,
                         data.points[answered], columns)
            )  # fmt: skip
    for method, many in found.items():
        if not many:
            continue
        rows = {name: np.concatenate([one[name] for one in many]) for name in many[0]}
        row: dict[str, Any] = {"sensors": len(sets[0]), "method": method, "runs": size}
        row["err_mean"] = round(100 * float(rows["err_mean"].mean()), 2)
        row["crps"] = float(f"{rows['crps'].mean():.4g}")
        error = rows["crps"].std(ddof=1) / np.sqrt(len(rows["crps"]))
        row["crps_se"] = float(f"{error:.2g}")
        best = np.concatenate([one["crps"] for one in found["uqsonet"]]) if model else rows["crps"]
        gap = best - rows["crps"]
        row["ours_less"] = float(f"{gap.mean():.3g}")
        row["ours_less_se"] = float(f"{gap.std(ddof=1) / np.sqrt(len(gap)):.2g}")
        for name in ("plain_50", "plain_90", "conformal_50", "conformal_90"):
            row[name] = round(float(np.mean(rows[name])), 3) if name in rows else None
        yield row


def of_model(
    model: Any, read: str, answered: str, where: np.ndarray, values: np.ndarray,
    truth: np.ndarray, points: np.ndarray, columns: np.ndarray,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Return the scores of a fitted model, run by run."""
    places = np.broadcast_to(where, (len(values), *where.shape))
    posterior = model.condition(**{read: (places, values)})[answered]
    mean = posterior.mean(points)
    one: dict[str, Any] = {
        "err_mean": np.linalg.norm(mean - truth, axis=1) / np.linalg.norm(truth, axis=1)
    }
    samples = posterior.sample(1000, points[columns])
    one["crps"] = np.array(
        [sample_crps(s, t).mean() for s, t in zip(samples, truth[:, columns], strict=True)]
    )
    for kind in ("plain", "conformal"):
        for level in (0.5, 0.9):
            try:
                lower, upper = posterior.band(level, points[columns], kind)
            except Exception as error:  # no conformal band of these
                print("   ", error)
                continue
            one[f"{kind}_{100 * level:.0f}"] = inside(lower, upper, truth[:, columns])
    return one


def fitted(data: Data, read: str, outputs: list[str], rows: list[Row]) -> Any:
    """Return `uqsonet.fit` on the runs of a data set, for the numbers of sensors of some rows."""
    import uqsonet

    def side(names: list[str]) -> dict[str, Any]:
        return {name: (data.fields[name][: data.size], data.points[name]) for name in names}

    runs = uqsonet.Runs(side([read]), None if outputs == [read] else side(outputs))
    counts = [places for one, _, places in rows if one == read and isinstance(places, int)]
    placed = {one: data.points[one][places] for one, _, places in rows if one in outputs}
    return uqsonet.fit(runs, sensors=sorted(set(counts)) or placed, bar=False)


def draw(table: Any, path: Path) -> None:
    """Draw CRPS and what plain bands of 90 % hold by number of runs, a column for each row."""
    import matplotlib.pyplot as plt

    groups = list(table.groupby(["data", "sensors"]))
    figure, axes = plt.subplots(2, len(groups), figsize=(3.4 * len(groups), 5), squeeze=False)
    for column, ((what, sensors), part) in enumerate(groups):
        for method, one in part.groupby("method", sort=False):
            style: dict[str, Any] = {"marker": ".", "linewidth": 2.2 if method == "uqsonet" else 1}
            error = {"yerr": one["crps_se"], "capsize": 2} if method == "uqsonet" else {}
            name = method.replace("_", " ")
            axes[0, column].errorbar(one["runs"], one["crps"], label=name, **style, **error)
            axes[1, column].plot(one["runs"], 100 * one["plain_90"], **style)
        axes[0, column].set(xscale="log", yscale="log", title=f"{what}, {sensors} sensors")
        axes[1, column].set(xscale="log", xlabel="runs", ylim=(50, 102))
        axes[1, column].axhline(90, color="0.6", linewidth=0.8, zorder=0)
    axes[0, 0].set_ylabel("CRPS")
    axes[1, 0].set_ylabel("held by bands of 90 % (%)")
    axes[0, 0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main() -> None:
    """Make, fit, score and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", default=list(KINDS), help="Some of the data sets.")
    parser.add_argument("--real", type=Path, help="Folder of real ones: benchmarks/real_data.py.")
    parser.add_argument("--bare", action="store_true", help="Baselines alone.")
    parser.add_argument("--sizes", type=int, nargs="*", help="Numbers of runs to learn from.")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--figure", type=Path, help="CRPS and coverage by number of runs.")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    found: list[dict[str, Any]] = []
    more = max(options.sizes or [0])  # a size beyond the usual one needs more runs
    for name in options.only:
        if options.real:
            whole = REAL[name](options.real, np.random.default_rng(2026))
        else:
            rng = np.random.default_rng([2026, list(KINDS).index(name)])
            whole = KINDS[name](TESTS + more, rng)
        asked = [replace(whole, size=size) for size in options.sizes or [whole.size]]
        for data, (read, outputs, rows) in itertools.product(asked, whole.models):
            model = None
            if not options.bare:
                model = fitted(data, read, outputs, rows)
            for row in rows:
                what = f"{name} {row[0]} -> {row[1]}"
                scores = score_rows(data, *row, model, log=name == "permeability")
                found += [{"data": what, **one} for one in scores]
                table: Any = pd.DataFrame(found)
                print(table.tail(len(BASELINES) + 1).to_string(), flush=True)
                if options.out:
                    options.out.parent.mkdir(parents=True, exist_ok=True)
                    table[COLUMNS].to_csv(options.out, index=False, lineterminator="\n")
    if options.figure:
        draw(pd.DataFrame(found), options.figure)


if __name__ == "__main__":
    main()

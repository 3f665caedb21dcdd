"""Do two versions of the library answer alike? For changes that move code and no number.

Run with each version's own sources, then compare:

    python -m benchmarks.same_answers write old.npz [WEIGHTS ...]     # the version before
    python -m benchmarks.same_answers write new.npz [WEIGHTS ...]     # the version after
    python -m benchmarks.same_answers compare old.npz new.npz         # largest relative difference

Models: the five that are shipped, three that are fitted here (a Gaussian law; another law; two
inputs and two outputs on scattered points), and every file of WEIGHTS, as of an attention model.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import uqsonet
from uqsonet import Emulator, FieldPosterior

TOLERANCE = 1e-6
"""Largest difference, relative to the largest number of an answer."""

SHIPPED = ("diffusion1d", "elliptic_sde1d", "elliptic_sde2d", "navier_stokes", "poisson2d")


def waves(points: np.ndarray, count: int, rng: np.random.Generator, modes: int = 6) -> np.ndarray:
    """Draw smooth random functions (count, n) at points (n, d)."""
    phase = rng.uniform(0, 2 * np.pi, modes)
    where = rng.normal(0, 3, (modes, points.shape[1]))
    basis = np.sin(points @ where.T + phase) / (1 + np.arange(modes))
    return rng.standard_normal((count, modes)) @ basis.T


def fitted_models() -> Iterator[tuple[str, Emulator]]:
    """Yield three models that are fitted to runs of a fixed seed."""
    rng = np.random.default_rng(1)
    x = np.linspace(0, 1, 41)
    k = waves(x[:, None], 400, rng)
    u = np.cumsum(np.sin(k), 1) / 41
    runs = uqsonet.Runs({"k": (k, x)}, {"u": (u, x)})
    yield "gaussian", uqsonet.fit(runs, bar=False)
    two = np.where(rng.random((400, 1)) < 0.5, k + 3, 0.3 * k - 3)  # two kinds of inputs
    runs = uqsonet.Runs({"k": (two, x)}, {"u": (np.cumsum(two, 1) / 41, x)})
    yield "mixture", uqsonet.fit(runs, law="mixture", bar=False)
    points = rng.random((120, 2))
    a, b = waves(points, 300, rng), np.exp(waves(points, 300, rng))
    made = {"a": a, "b": b, "v": a * 0.5 + np.log(b), "w": a**2 + b}
    inputs, outputs = ({n: (made[n], points) for n in names} for names in ("ab", "vw"))
    yield "cloud", uqsonet.fit(uqsonet.Runs(inputs, outputs), bar=False)


def answers_of(posterior: FieldPosterior, where: str) -> dict[str, Any]:
    """Return everything that a posterior says of one field."""
    return {
        f"{where}/mean": posterior.mean(),
        f"{where}/std": posterior.std(),
        f"{where}/quantile": posterior.quantile([0.1, 0.5, 0.9]),
        f"{where}/band": np.stack(posterior.band(0.9)),
        f"{where}/sample": posterior.sample(20, rng=3),
    }


def answers(name: str, model: Emulator) -> dict[str, Any]:
    """Return a model's answers to sensors of inputs, of outputs, and of both, and its placement."""
    rng = np.random.default_rng(2)
    first = model.inputs[0]
    one = model.condition(**{first.name: (np.asarray(first.domain.points())[:1], [1.0])})
    either_side = one[model.outputs[0].name].law.knows_inputs()
    prior = model.condition() if either_side else None

    def sensors(field: Any, count: int) -> tuple[np.ndarray, np.ndarray, float]:
        """Read a function of the model's own law, or where it has none for inputs, a constant."""
        points = np.asarray(field.domain.points())
        at = rng.choice(len(points), count, replace=False)
        values = prior[field.name].sample(1, rng=9)[0, at] if prior else np.ones(count)
        return points[at], values, 0.05

    asked: dict[str, dict[str, Any]] = {"none": {}}
    for count in (1, 5, 12):
        asked[f"{count}"] = {f.name: sensors(f, count) for f in model.inputs}
    if either_side:
        asked["outputs"] = {f.name: sensors(f, 2) for f in model.outputs}
        asked["both"] = asked["outputs"] | asked["5"]
    found: dict[str, Any] = {}
    for kind, given in asked.items():
        posterior = model.condition(**given)
        for field in (*model.outputs, *(model.inputs if either_side else ())):
            found |= answers_of(posterior[field.name], f"{name}/{kind}/{field.name}")
    if either_side and len(model.inputs) == len(model.outputs) == 1:
        placed = model.place(4, noise_std=0.05)
        found |= {f"{name}/place/{key}": getattr(placed, key) for key in ("chosen", "after")}
    return found


def write(path: Path, weights: list[Path]) -> None:
    """Store the answers of every model."""
    found: dict[str, Any] = {}
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore", uqsonet.ObservationWarning)
        for name in (*SHIPPED, *map(str, weights)):
            found |= answers(Path(name).stem, uqsonet.load(name))
        for name, model in fitted_models():
            found |= answers(name, model)
            model.save(Path(folder) / f"{name}.safetensors")
            again = uqsonet.load(Path(folder) / f"{name}.safetensors")
            found |= answers(f"{name} from its file", again)
            for row, scores in enumerate(model.card["scores"]):
                for key, value in scores.items():
                    if isinstance(value, float):
                        found[f"{name}/scores/{row}/{key}"] = value
    arrays: dict[str, Any] = {key: np.asarray(value) for key, value in found.items()}
    np.savez_compressed(path, **arrays)


def compare(before: Path, after: Path) -> int:
    """Print what differs; return the number of answers that differ by more than allowed."""
    with np.load(before) as old, np.load(after) as new:
        distances = {
            name: float("inf")
            if name not in new or new[name].shape != old[name].shape
            else float(np.abs(new[name] - old[name]).max() / max(np.abs(old[name]).max(), 1e-300))
            for name in old
        }
        extra = [name for name in new if name not in old]
    worst: Callable[[str], float] = distances.__getitem__
    differing = [name for name in distances if not distances[name] <= TOLERANCE]
    for name in sorted(differing, key=worst, reverse=True):
        print(f"{distances[name]:.2e}  {name}")
    largest = max(distances.values())
    print(f"{len(distances)} answers, {len(differing)} differ; largest difference {largest:.2e}")
    if extra:
        print(f"only in {after}: {', '.join(extra)}")
    return len(differing)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", path, *weights]:
            write(Path(path), [Path(file) for file in weights])
        case ["compare", before, after]:
            sys.exit(compare(Path(before), Path(after)) > 0)
        case _:
            sys.exit(__doc__)

"""Whole posteriors of two inverse problems beside references: PosteriorBench, made anew.

    python -m benchmarks.posteriorbench --problem poisson --cases 50 --pairs 4000

Each case is a checkpoint in `results/posterior`, with all its figures; a killed command goes on
behind the last one. `published/benchmark/posterior.csv` has the means over cases and the figures
that others published, `posterior_cases.csv` each case. Seconds are processor time of one thread.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import uqsonet
from benchmarks.posteriorbench.ensembles import Regression, smoothed
from benchmarks.posteriorbench.metrics import METRICS, covered, distances, moment_errors, moments
from benchmarks.posteriorbench.problems import (
    CUT,
    NEAREST_NOISE,
    PROBLEMS,
    SEED,
    SIGMA,
    Case,
    Inverse,
    likelihood,
)
from uqsonet.files import write_text
from uqsonet.gauss.seeds import numpy_generator, torch_generator

LOG = logging.getLogger("uqsonet")

FOLDER, STATE = Path("published/benchmark"), Path("results/posterior")

KEYS = ["problem", "method", "pairs"]
FIGURES = [*METRICS, "long_mean", "long_std", "cover_50", "cover_90", "seconds"]

COMPARED = 100
"""Number of samples that the five metrics compare, of an answer and of the reference."""

BANDS = 400
"""Number of samples behind bands, and of the reference that they should hold."""

PICTURES = 3
"""Number of cases that are drawn."""

PUBLISHED = {
    "poisson": {
        "DDIS": (0.0997, 0.320, 0.264, 2.24, 0.070, 576),
        "Fun-DDPS": (0.139, 0.389, 0.345, 2.26, 0.032, 432),
        "FunDPS": (0.291, 0.732, 0.702, 3.66, 0.086, 438),
    },
    "darcy": {
        "DDIS": (0.0791, 0.3365, 0.1759, 3.26, 0.0226, 576),
        "Fun-DDPS": (0.0858, 0.398, 0.218, 3.08, 0.0116, 432),
        "FunDPS": (0.0886, 0.401, 0.221, 3.22, 0.0154, 438),
        "DiffusionPDE": (0.175, 0.671, 0.331, 6.44, 0.051, 2400),
    },
}
"""The five metrics and seconds of a large GPU, of the first 50 of their own cases, from all of
their 50,000 pairs (arXiv 2609.20794). Their files are not public text: cases here are others."""


@dataclass(frozen=True)
class Answer:
    """An answer to a case, or its reference.

    Attributes
    ----------
    mean, std : Tensor, shape (n, n)
    samples : Tensor, shape (S, n, n)
    notes : dict
        Effective sizes, for example.
    """

    mean: Tensor
    std: Tensor
    samples: Tensor
    notes: dict[str, float]

    @classmethod
    def of(cls, samples: Tensor, notes: dict[str, float] | None = None) -> Answer:
        """Return the answer that is known by samples alone."""
        return cls(*moments(samples.double()), samples.float(), notes or {})


Method = Callable[[Case], Answer]


def exact_poisson(case: Case, _: Any) -> tuple[Answer, Tensor]:
    """Return the reference of a Poisson case, and as many other samples of it."""
    from benchmarks.posteriorbench.importance import ExactPosterior

    found = ExactPosterior(case, numpy_generator(SEED, "poisson", "reference", case.number))
    (mean, std), apart, apart_std = found.moments()
    notes = {
        "effective": found.effective_size,
        "halves_mean": apart,
        "halves_std": apart_std,
        "log10_acceptance": found.log_acceptance / np.log(10),
    }
    first, second = (
        found.sample(BANDS, numpy_generator(SEED, "poisson", "samples", part, case.number)).float()
        for part in range(2)
    )
    return Answer(mean, std, first, notes), second


def sampled_darcy(case: Case, model: uqsonet.Emulator) -> tuple[Answer, Tensor]:
    """Return the reference of a Darcy case, by the real solver, and other samples of it.

    The learned operator proposes; the solver decides.
    """
    from benchmarks.posteriorbench.darcy import reference

    generator = torch_generator(SEED, "darcy", "reference", case.number)
    (mean, std), media, notes = reference(case, model, generator)
    first, second = (one[torch.randperm(len(one), generator=generator)[:BANDS]] for one in media)
    return Answer(mean, std, first, notes), second


LAWS = {"poisson": "mixture", "darcy": "latent"}
"""Law of the inputs that the library's models are fitted with."""


def methods_of(problem: Inverse, pairs: int, state: Path) -> dict[str, Method]:
    """Return what answers cases, learned from so many pairs or knowing the solver."""
    kept = state / "pairs.pt"
    if not kept.is_file():
        torch.save(problem.pairs(pairs), kept)
    inputs, outputs = torch.load(kept, weights_only=True)
    regression = Regression(inputs, outputs)

    def es_mda(case: Case) -> Answer:
        generator = numpy_generator(SEED, problem.name, "es_mda", case.number)
        return Answer.of(smoothed(problem, case, generator))

    def linear(case: Case) -> Answer:
        generator = numpy_generator(SEED, problem.name, "regression", case.number)
        found = regression.given(case, BANDS, generator)
        return Answer(found.mean, found.std, found.samples, {})

    ours = Learned(fitted(problem, inputs, outputs, state), problem)
    return {"ours": ours, "regression": linear, "es_mda": es_mda}


def fitted(problem: Inverse, inputs: Tensor, outputs: Tensor, state: Path) -> uqsonet.Emulator:
    """Return the library's model of the pairs, fitted once."""
    path = state / "model.safetensors"
    if not path.is_file():
        runs = uqsonet.Runs({problem.asked: inputs.numpy()}, {problem.read: outputs.numpy()})
        start = time.process_time()
        law = LAWS[problem.name]
        model = uqsonet.fit(runs, sensors=[128], law=law, bar=False)
        LOG.info("fit: %.0f s of processor time", time.process_time() - start)
        model.save(path)
    return uqsonet.load(path)


class Learned:
    """Answers of a fitted model that is told the weight (`condition(likelihood=...)`)."""

    def __init__(self, model: uqsonet.Emulator, problem: Inverse) -> None:
        self.model, self._problem = model, problem
        self._points = model.inputs[0].domain.points()

    def __call__(self, case: Case) -> Answer:
        """Return the answer to a case."""
        places = self._points[case.sensors].numpy()
        sensors = {self._problem.read: (places, case.readings.numpy(), NEAREST_NOISE)}
        answer = self.model.condition(sensors, likelihood=likelihood(SIGMA, CUT))
        field, shape = answer[self._problem.asked], case.truth.shape
        mean, std, samples = (
            torch.from_numpy(np.asarray(one))
            for one in (field.mean(), field.std(), field.sample(BANDS))
        )
        notes = {"effective": float(answer.effective_size)}
        return Answer(mean.view(shape), std.view(shape), samples.view(-1, *shape), notes)


def scores(answer: Answer, reference: Answer, problem: Inverse) -> dict[str, float]:
    """Return all figures of an answer but its seconds."""
    first = reference.samples[:COMPARED]
    found = distances(answer.samples[:COMPARED], first, problem.centre, problem.scale)
    long = moment_errors(answer.mean, answer.std, reference.mean, reference.std)
    found |= dict(zip(("long_mean", "long_std"), long, strict=True))
    held = covered(answer.samples, reference.samples)
    return found | dict(zip(("cover_50", "cover_90"), held, strict=True)) | answer.notes


def scored(
    problem: Inverse, number: int, methods: dict[str, Method], model: Any, state: Path
) -> dict[str, dict[str, float]]:
    """Return the figures of a case by method, the reference's own under `floor`.

    What its checkpoint has is not worked out again.
    """
    path = state / f"case-{number:03d}.json"
    rows = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    names = ["floor", *(methods or rows)]
    methods = {name: method for name, method in methods.items() if name not in rows}
    if "floor" in rows and not methods:
        return rows
    case, start = problem.case(number), time.process_time()
    reference, other = REFERENCES[problem.name](case, model)
    seconds = time.process_time() - start
    floor = Answer.of(other[:COMPARED])
    rows["floor"] = scores(floor, reference, problem) | {"seconds": seconds} | reference.notes
    held = covered(other, reference.samples)
    rows["floor"] |= dict(zip(("cover_50", "cover_90"), held, strict=True))
    shown = {"reference": reference}
    for name, method in methods.items():
        start = time.process_time()
        answer = method(case)
        seconds = time.process_time() - start
        rows[name] = scores(answer, reference, problem) | {"seconds": seconds}
        shown[name] = answer
    if number < PICTURES:
        arrays = {"truth": case.truth.numpy(), "sensors": case.sensors.numpy()}
        for who in ("reference", "ours"):
            arrays |= {f"{who}_{key}": value for key, value in _fields(shown[who])}
        np.savez(state / f"case-{number:03d}.npz", allow_pickle=False, **arrays)
    rows = {name: rows[name] for name in names}
    write_text(path, json.dumps(rows))
    line = {name: [round(row[k], 3) for k in FIGURES] for name, row in rows.items()}
    LOG.info("case %d: %s", number, line)
    return rows


def _fields(answer: Answer) -> Iterable[tuple[str, np.ndarray]]:
    yield "mean", answer.mean.numpy()
    yield "std", answer.std.numpy()
    yield "sample", answer.samples[0].numpy()


REFERENCES: dict[str, Callable[[Case, Any], tuple[Answer, Tensor]]] = {
    "poisson": exact_poisson,
    "darcy": sampled_darcy,
}


def tables(problem: str, pairs: int, cases: list[dict[str, dict[str, float]]]) -> tuple[Any, Any]:
    """Return the means over cases with what is published, and every case."""
    rows = [
        {"problem": problem, "case": number, "method": name, "pairs": _seen(name, pairs), **row}
        for number, case in enumerate(cases)
        for name, row in case.items()
    ]
    every: Any = pd.DataFrame(rows)
    means = every.groupby(KEYS, sort=False)[FIGURES].mean()
    means["cases"] = every.groupby(KEYS, sort=False).size()
    others = [
        {"problem": problem, "method": f"{name} (published)", "pairs": 50_000, "cases": 50}
        | dict(zip([*METRICS, "seconds"], figures, strict=True))
        for name, figures in PUBLISHED[problem].items()
    ]
    return pd.concat([means.reset_index(), pd.DataFrame(others)]), every


def _seen(method: str, pairs: int) -> int:
    """Return the number of pairs that a method has learned from."""
    return 0 if method in ("floor", "es_mda") else pairs


def merge(table: Any, path: Path, keys: list[str]) -> None:
    """Write rows into a file in place of those of the same keys."""
    if path.is_file():
        before = pd.read_csv(path)
        same = before.set_index(keys).index.isin(table.set_index(keys).index)
        table = pd.concat([before[~same], table])
    table = table.sort_values("problem", kind="stable", ascending=False)
    text = table.to_csv(index=False, lineterminator="\n", float_format="%.4g")
    write_text(path, text)


def draw(problem: Inverse, state: Path, path: Path) -> None:
    """Draw truth, samples, means and standard deviations of the first cases."""
    import matplotlib.pyplot as plt

    files = [np.load(state / f"case-{number:03d}.npz") for number in range(PICTURES)]
    columns = [(who, what) for what in ("sample", "mean", "std") for who in ("reference", "ours")]
    shape = len(files), 1 + len(columns)
    figure, axes = plt.subplots(*shape, figsize=(14, 6), squeeze=False, layout="constrained")
    for number, (row, file) in enumerate(zip(axes, files, strict=True)):
        truth = file["truth"]
        limit, top = np.abs(truth - problem.centre).max(), file["reference_std"].max()
        both = {"vmin": problem.centre - limit, "vmax": problem.centre + limit, "cmap": "RdBu_r"}
        images = [row[0].imshow(truth.T, origin="lower", **both)]
        row[0].plot(*np.divmod(file["sensors"], len(truth)), "k.", markersize=1.5)
        for axis, (who, what) in zip(row[1:], columns, strict=True):
            style: Any = {"vmin": 0.0, "vmax": top} if what == "std" else both
            images.append(axis.imshow(file[f"{who}_{what}"].T, origin="lower", **style))
        for axis, title in zip(row, [("truth", ""), *columns], strict=True):
            axis.set(xticks=[], yticks=[])
            if number == 0:
                axis.set_title(" ".join(title[::-1]).strip(), fontsize=10)
        for image, part in ((images[0], row[:5]), (images[-1], row[5:])):
            figure.colorbar(image, ax=part.tolist(), fraction=0.03, pad=0.01)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Answer, score and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--problem", choices=list(PROBLEMS), required=True)
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--pairs", type=int, default=4000, help="To learn from.")
    parser.add_argument("--state", type=Path, default=STATE)
    parser.add_argument("--out", type=Path, default=FOLDER, help="Folder of both tables.")
    parser.add_argument("--figure", type=Path, help="Picture of three cases.")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    problem = PROBLEMS[options.problem]()
    state = options.state / f"{problem.name}-{options.pairs}"
    state.mkdir(parents=True, exist_ok=True)
    methods = methods_of(problem, options.pairs, state)
    ours: Any = methods["ours"]
    cases = [scored(problem, number, methods, ours.model, state) for number in range(options.cases)]
    means, every = tables(problem.name, options.pairs, cases)
    merge(means, options.out / "posterior.csv", KEYS)
    merge(every, options.out / "posterior_cases.csv", [*KEYS, "case"])
    print(means.to_string())
    if options.figure:
        draw(problem, state, options.figure)


if __name__ == "__main__":
    main()

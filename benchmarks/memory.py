"""Peak memory of every stage at full scale, each in a process of its own.

`python -m benchmarks.memory STAGE FOLDER PAIRS` runs one stage on the files in FOLDER, as the rows
below do one after another. The stage's problem is poisson2d, whose inputs are the largest.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.rows import Row, not_run
from benchmarks.timing import hardware
from benchmarks.workloads import study_of
from uqsonet_study.evaluation import evaluate
from uqsonet_study.layouts import generate_layouts
from uqsonet_study.references import compute_reference
from uqsonet_study.settings import EvaluationName, Jobs, Sizes
from uqsonet_study.simulation import simulate
from uqsonet_study.training import TrainingJob, train

PROBLEM = "poisson2d"
STAGES = ("simulate", "sensors", "reference", "train paper", "train tuned", "evaluate")
"""In this order: each reads what those before it wrote."""

LIMIT = 8.0
"""GiB that no stage may take."""

SETS = 4
"""Observation sets for each count; they come one after another and share no memory."""


def _train(folder: Path, recipe: str, pairs: int) -> None:
    study = study_of(recipe)
    method = study.settings(study.first(PROBLEM), "uqsonet")
    changes: dict[str, object] = {"iterations": 2, "validate_every": 2}
    if pairs < 80_000:
        changes |= {"batch_size": pairs // 4}
    training = method.training.model_copy(update=changes)
    files = folder / "functions.h5", folder / "sensors.h5", folder / "validation.h5"
    method = method.model_copy(update={"training": training})
    job = TrainingJob("uqsonet", PROBLEM, method, 0.0, 0, pairs, 1, *files)
    paths = (folder / f"{recipe}{suffix}" for suffix in (".safetensors", ".csv", ".state"))
    train(job, Jobs(), *paths)


def run_stage(stage: str, folder: Path, pairs: int) -> None:
    """Run a stage as a job of the pipeline does."""
    study = study_of("tuned")
    few = {"sets": SETS}
    functions, sensors = folder / "functions.h5", folder / "sensors.h5"
    if stage == "simulate":
        data = Sizes(training=pairs, validation=100, test=200)
        simulate(PROBLEM, data, 1, functions)
    elif stage == "sensors":  # fewer layouts than in a full run: they are small and take long
        layout = study.config.layouts[study.first(PROBLEM).layout]
        chosen = layout.model_copy(update={"pool": 2000})
        generate_layouts(PROBLEM, chosen, 1, 100, 200, sensors)
    elif stage == "reference":
        labels: dict[str, EvaluationName] = {"validation": "validation", "test": "precise"}
        for split, label in labels.items():
            samples = study.evaluation(PROBLEM, label).model_copy(update=few)
            files = functions, sensors, split, label, samples
            compute_reference(*files, 0.0, 1, folder / f"{split}.h5")
    elif stage == "evaluate":
        evaluation = study.evaluation(PROBLEM, "precise").model_copy(update=few)
        what = evaluation, 0.0, 1, functions, folder / "test.h5"
        weights = [folder / "tuned.safetensors"]
        evaluate("uqsonet", "precise", *what, folder / "uqsonet.csv", weights=weights)
        evaluate("baselines", "precise", *what, folder / "baselines.csv", training=pairs)
    else:
        _train(folder, stage.removeprefix("train "), pairs)


def peak() -> float:
    """Return the largest resident size of this process so far, GiB.

    Linux counts it anew for each program; getrusage would begin with that of the parent.
    """
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    (found,) = [line for line in lines if line.startswith("VmHWM")]
    return int(found.split()[1]) / 2**20


def rows(quick: bool) -> list[Row]:
    """Return the peak memory of each stage, in GiB."""
    pairs, found = 400 if quick else 80_000, []
    with tempfile.TemporaryDirectory(prefix="uqsonet-memory-") as folder:
        for stage in STAGES[:1] if quick else STAGES:
            command = [sys.executable, "-m", "benchmarks.memory", stage, folder, str(pairs)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            name = f"peak memory, {stage}, {PROBLEM}, {pairs} pairs"
            if done.returncode:
                reason = (done.stderr.strip() or "killed").splitlines()[-1]
                found.append(not_run(name, hardware(1), "GiB", reason))
                continue
            peak = float(done.stdout.split()[-1])
            found.append(Row(name, hardware(1), peak, "GiB", "limit", LIMIT))
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    run_stage(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
    print(peak())

"""Damage or forge thousands of data, weight and checkpoint files and see what gets through.

    python -m tests.reliability.fuzz_files --count 6000 --log docs/fuzz-files.csv      (make fuzz)

Files of every kind are written by the real code, then damaged (`mutations.py`) and given to
`uqsonet check` in batches of subprocesses with a memory limit, watched while they announce file
after file, so that a crash of HDF5 and a hang are seen. A damaged file must be refused with a
`UQSONetError`, unless all its arrays and its header are still equal, as after a bit that nothing
reads. A forged one (`forgeries.py`: other content under right checksums) may be sound, and is then
`accepted`. Outcomes are counted by mutation.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import torch

import uqsonet
from tests.reliability import forgeries, mutations
from tests.watch import wait_for
from uqsonet.errors import UQSONetError
from uqsonet.models.base import build_model
from uqsonet.problems import get_problem
from uqsonet.storage.reading import ArrayFile, array_kind
from uqsonet.storage.weights import read_weights, write_weights
from uqsonet.training.checkpoint import Progress, save_checkpoint
from uqsonet_study.check import check_path
from uqsonet_study.config import (
    KarhunenLoeveNetwork,
    MethodConfig,
    ProblemConfig,
    ReferenceConfig,
    SensorsConfig,
    TrainingConfig,
)
from uqsonet_study.layouts import generate_layouts
from uqsonet_study.parts import PartStore, cut
from uqsonet_study.references import compute_reference
from uqsonet_study.simulation import simulate, simulate_shard

BATCH, MEMORY, FORGED = 250, 6 << 30, 0.3
FINE = ("refused", "equal", "accepted")
"""Allowed outcomes; others are `silent`, `raised <type>`, `crash <signal>` and `hang`."""


def make_files(folder: Path) -> None:
    """Write one small sound file of each kind."""
    folder.mkdir(parents=True)
    name, seed = "diffusion1d", 5
    simulate(
        name, ProblemConfig(training=30, validation=3, test=3, shard=10), seed, folder / "f.h5"
    )
    generate_layouts(name, SensorsConfig(counts=[1, 3], pool=20), seed, 3, 3, folder / "s.h5")
    sources = folder / "f.h5", folder / "s.h5", "validation", "validation"
    compute_reference(
        *sources, ReferenceConfig(sets=2, reference_samples=20), 0.0, seed, folder / "r.h5"
    )
    problem = get_problem(name)
    kappa, u = simulate_shard(problem, seed, "test", 0, 10)
    arrays = {"kappa": kappa.float().numpy(), "u": u.float().numpy()}
    parts = cut({"test": 10}, 10)
    PartStore(folder, {"problem": name}).complete(parts, lambda _: arrays, "functions")
    network = KarhunenLoeveNetwork(input_modes=4, output_modes=3, branch=[6])
    model = build_model("uqsonet", problem.fields, network, 0.0)
    training = TrainingConfig(iterations=2, batch_size=2, learning_rate=1e-3, validate_every=1)
    meta = {
        "method": "uqsonet",
        "fields": problem.fields.as_dict(),
        "config": MethodConfig(network=network, training=training).model_dump(mode="json"),
        "noise_std": 0.0,
        "trials": [0, 1],
    }
    parameters = {n: torch.stack([p, p + 1]) for n, p in model.named_parameters()}
    buffers = {f"buffer/{n}": b for n, b in model.named_buffers() if n in model.state_dict()}
    stacked = {f"parameter/{n}": p for n, p in parameters.items()}
    write_weights(folder / "w.safetensors", stacked | buffers, meta)
    state = stacked | {f"adam/step/{n}": torch.tensor(2.0) for n in parameters}
    progress = Progress(1, 0.5, [{"trial": 0}])
    save_checkpoint(folder / "c.safetensors", meta, state, [torch.Generator()], progress)
    pairs = [f.numpy() for f in problem.sample(np.random.default_rng(seed), 30)]
    runs = uqsonet.Runs({"k": pairs[0]}, {"u": pairs[1]})
    uqsonet.fit(runs, 0, sensors=[3], bar=False).save(folder / "m.safetensors")


def content(path: Path) -> object:
    """Return all that a file holds, comparable."""
    if path.suffix == ".safetensors":
        tensors, meta = read_weights(path)
        return {n: (t.dtype, t.shape, t.numpy().tobytes()) for n, t in tensors.items()}, meta
    kind = array_kind(path)
    with ArrayFile(path, kind) as file:
        arrays = {name: file.read(name) for name in sorted(file.names())}
        bare = {n: (a.dtype.str, a.shape, a.tobytes()) for n, a in arrays.items()}
        return kind, bare, file.meta


def damage(good: Path, bad: Path, chance: random.Random) -> str:
    """Write a damaged copy; return the name of the mutation."""
    data = good.read_bytes()
    if chance.random() < FORGED:
        return forgeries.forge_any(good, bad, chance)
    if chance.random() < 0.6:
        name = chance.choice(list(mutations.NOISE))
        bad.write_bytes(mutations.NOISE[name](data, chance))
        return f"{good.suffix[1:3]}:{name}"
    if good.suffix == ".safetensors":
        name, changed = mutations.change_safetensors(data, chance)
        bad.write_bytes(changed)
        return name
    bad.write_bytes(data)
    return mutations.change_h5(bad, chance)


def judge(good: Path, bad: Path, forged: bool = False) -> str:
    """Return the outcome of checking a damaged or forged file."""
    try:
        ((_, problem),) = check_path(bad)
        if problem is not None:
            return "refused"
        if forged:
            return "accepted"
        return "equal" if content(bad) == content(good) else "silent"
    except UQSONetError:
        return "refused"
    except Exception as error:  # what a user would see as a traceback
        return f"raised {type(error).__name__}"


def work(folder: Path, first: int, count: int) -> None:
    """Do a batch, announcing each file before it is read."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    files = sorted(p for p in folder.iterdir() if p.suffix in (".h5", ".safetensors"))
    with tempfile.TemporaryDirectory(dir=folder) as place:
        for number in range(first, first + count):
            chance = random.Random(number)
            good = files[number % len(files)]
            bad = Path(place) / f"bad{good.suffix}"
            mutation = damage(good, bad, chance)
            print(json.dumps([number, good.name, mutation]), flush=True)
            print(json.dumps(judge(good, bad, mutation.startswith("forged"))), flush=True)


def run_batch(folder: Path, first: int, count: int) -> tuple[list[tuple], int]:
    """Run a batch in a subprocess; return (number, file, mutation, outcome) and how many it did."""
    command = [sys.executable, "-m", "tests.reliability.fuzz_files", "--work", str(folder)]
    command += ["--first", str(first), "--count", str(count)]
    end = ""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors)
        try:
            wait_for(process.poll, lambda: os.fstat(out.fileno()).st_size)
        except AssertionError:
            process.kill()
            process.wait()
            end = "hang"
        out.seek(0)
        errors.seek(0)
        lines = [json.loads(line) for line in out.read().splitlines()]
        if process.returncode and len(lines) % 2 == 0:
            raise SystemExit(f"the batch at {first} failed:\n{errors.read()[-3000:]}")
    if len(lines) % 2:
        lines.append(end or f"crash {-process.returncode}")
    rows = [(*lines[k], lines[k + 1]) for k in range(0, len(lines), 2)]
    return rows, len(rows)


def run(folder: Path, count: int) -> list[tuple]:
    """Damage and judge `count` files."""
    if not folder.exists():
        make_files(folder)
    for file in folder.iterdir():
        assert file.is_dir() or [p for _, p in check_path(file)] == [None], file
    rows: list[tuple] = []
    while len(rows) < count:  # a crash ends a batch early; the next goes on behind it
        rows += run_batch(folder, len(rows), min(BATCH, count - len(rows)))[0]
    return rows


def summary(rows: list[tuple]) -> list[tuple[str, str, int]]:
    """Count rows by mutation and outcome."""
    counts = Counter((mutation, outcome) for _, _, mutation, outcome in rows)
    return [(*key, number) for key, number in sorted(counts.items())]


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=6000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--log", type=Path, default=Path("fuzz-files.csv"))
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.first, options.count)
        return
    folder = Path(tempfile.mkdtemp()) / "files"
    rows = run(folder, options.count)
    shutil.rmtree(folder.parent)
    with options.log.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("mutation", "outcome", "files"))
        writer.writerows(summary(rows))
    bad = [row for row in rows if row[3] not in FINE]
    print(*bad, sep="\n")
    print(f"{len(rows)} files, {Counter(row[3] for row in rows)}")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()

"""What a GPU does with every recipe, in ten minutes: `make gpu`, or `python -m benchmarks.gpu`.

Rows are written as they are measured. What fails is a row, too, and the rest goes on. Nothing new
begins after eight minutes. `--device cpu --quick` tries the program itself.
"""

from __future__ import annotations

import copy
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import numpy as np
import torch
import typer

from benchmarks.rows import Row, not_run, write
from benchmarks.timing import hardware, medians
from benchmarks.training import engine_pass, gpu_rows
from benchmarks.workloads import CONFIG, functions, workload
from uqsonet.networks import set_embedding
from uqsonet.networks.train import Optimiser, Trial
from uqsonet.operator import perceptrons
from uqsonet_study.layouts import uniform_layouts
from uqsonet_study.loading import read_config
from uqsonet_study.settings import Method
from uqsonet_study.trainer import SensorTrainer

LIMIT = 480  # seconds after which nothing new begins
TESTS = 180  # seconds that the tests may take
SENSORS = 10
COMPARED = 200  # samples whose gradients are compared with those of the CPU
ROUNDING = 1e-3  # largest relative difference of gradients that counts as rounding
PAIRS = 600  # training pairs, at least; no recipe has as many modes


class Bench:
    """A device, and rows of what it does; `quick` is for one training of each architecture."""

    def __init__(self, device: str, quick: bool) -> None:
        self.device, self.quick, self.gpu = device, quick, device != "cpu"
        self.name = torch.cuda.get_device_name(device) if self.gpu else hardware(1)

    def seconds(self, action: Callable[[], object]) -> float:
        """Return how long the device is busy with an action."""
        self.wait()
        start = time.perf_counter()
        action()
        self.wait()
        return time.perf_counter() - start

    def wait(self) -> None:
        """Wait until the device has done what it was given."""
        if self.gpu:
            torch.cuda.synchronize(self.device)

    def parts(self) -> Iterator[tuple[str, Callable[[], Iterator[Row]]]]:
        """Yield all there is to do, what matters most first."""
        if self.gpu:
            yield "tests of mark gpu", self.tests
            yield "steps of the paper's networks", lambda: iter(gpu_rows(self.quick))
        for problem in ("diffusion1d", "poisson2d"):
            yield f"{problem}, recipe paper, other ways", partial(self.other_ways, problem)
        for problem in ("poisson2d", "elliptic_sde2d", "navier_stokes"):
            yield f"{problem}, simulation", partial(self.simulation, problem)
        for name, training in self.trainings():
            yield name, partial(self.training, name, *training)

    def tests(self) -> Iterator[Row]:
        """Run the tests that need a GPU."""
        command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "tests"]
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, timeout=TESTS, check=False)
        lines = done.stdout.splitlines() or done.stderr.splitlines()
        if done.returncode:
            failed = [line for line in lines if line.startswith("FAILED")]
            raise RuntimeError("; ".join([lines[-1], *failed]))
        yield Row(f"tests: {lines[-1]}", self.name, time.perf_counter() - start, "s")

    def other_ways(self, problem: str) -> Iterator[Row]:
        """Time steps of the paper's networks in other ways that compute the same."""
        sizes = (COMPARED, PAIRS) if self.quick else (None, None)
        work = workload(problem, "paper", None, *sizes).on(self.device)
        ways: dict[str, Any] = {
            "as it is": nullcontext(),
            "tanh by sigmoid": patch.object(perceptrons, "on_cpu", lambda _: True),
            "rows of heads uncut": patch.object(set_embedding, "MAX_PARTS", 1),
        }
        actions = {}
        for name, way in ways.items():
            step = engine_pass(work)
            with way:
                step()  # records graphs
            actions[name] = partial(self.seconds, step)
        taken = medians(actions, 1 if self.quick else 5)
        usual = taken.pop("as it is") / len(work.batches)
        for name, seconds in taken.items():
            step, label = seconds / len(work.batches), f"{problem}, recipe paper, a step: {name}"
            yield Row(label, self.name, step, "s", "as it is", usual)

    def simulation(self, problem: str) -> Iterator[Row]:
        """Solve the equations of some pairs."""
        size = 16 if self.quick else 2048
        seconds = self.seconds(lambda: functions.__wrapped__(problem, size, self.device))
        yield Row(f"{problem}, simulation of {size} pairs", self.name, seconds, "s")

    def trainings(self) -> Iterator[tuple[str, tuple[str, str, Method]]]:
        """Yield name, problem, method and settings of trainings that differ in what a step does."""
        seen = set[str]()
        for overlay in ([], *([path] for path in sorted(CONFIG.parent.glob("config/*.yaml")))):
            recipes: Any = read_config([CONFIG, *overlay]).recipes
            every = (
                (recipe, problem, method, config)
                for recipe, problems in recipes.items()
                for problem, methods in problems.items()
                for method, config in methods.items()
                if isinstance(config, Method)  # else one of several, or another law for it
            )
            for recipe, problem, method, config in every:
                network, training = config.network, config.training
                kind = [problem, network.model_dump(), training.batch_size, training.protocol]
                key = json.dumps([method, network.architecture, *([] if self.quick else kind)])
                if key not in seen:
                    seen.add(key)
                    yield f"{problem}, recipe {recipe}, {method}", (problem, method, config)

    def training(self, name: str, problem: str, method: str, config: Method) -> Iterator[Row]:
        """Compare gradients with the CPU's; measure steps and memory."""
        batch = min(config.training.batch_size, COMPARED if self.quick else 10**9)
        settings = config.training.model_copy(update={"batch_size": batch})
        config = config.model_copy(update={"training": settings})
        data = functions(problem, max(batch, PAIRS), self.device)
        points = data.fields.input.grid.size
        places = uniform_layouts(np.random.default_rng(1), points, SENSORS, 256)
        layouts = {SENSORS: torch.from_numpy(places).long()}
        if self.gpu:
            gc.collect()
            torch.cuda.reset_peak_memory_stats(self.device)
        trial = Trial(method, config, 0.1, 0, 0)
        trainer = SensorTrainer(trial, data, layouts, self.device)
        host = Optimiser(copy.deepcopy(trainer.model).cpu(), settings)
        drawn, normals = trainer.draw()
        drawn, normals = {k: v[:COMPARED] for k, v in drawn.items()}, normals[:COMPARED]
        host.gradients({k: v.cpu() for k, v in drawn.items()}, normals.cpu())
        trainer.optimiser.gradients(drawn, normals)
        expected, found = (
            torch.cat([p.grad.cpu().flatten() for p in model.parameters() if p.grad is not None])
            for model in (host.model, trainer.model)
        )
        off = float((found - expected).norm() / expected.norm())
        yield Row(f"{name}, gradient: difference from the CPU's", self.name, off, "relative")
        if not off <= ROUNDING:
            raise RuntimeError(f"the gradient differs by {off:.2g}")
        warm, steps = (2, 3) if self.quick else (20, 100)
        for step in range(warm):
            trainer.step(step)
        seconds = self.seconds(lambda: [trainer.step(step) for step in range(steps)])
        label = f"{name}, batch {batch}, {SENSORS} sensors at most"
        yield Row(label, self.name, steps / seconds, "steps/s")
        if self.gpu:
            peak = torch.cuda.max_memory_allocated(self.device) / 2**30
            yield Row(f"{name}, peak memory", self.name, peak, "GiB")


def main(
    device: Annotated[str, typer.Option(help="cuda, cuda:<number>, or cpu.")] = "cuda",
    quick: Annotated[bool, typer.Option(help="Small sizes: does all of it run?")] = False,
    out: Annotated[Path, typer.Option(help="Folder for benchmarks.{csv,json}.")] = Path(
        "results/benchmarks/gpu"
    ),
) -> None:
    """Test a GPU, compare every recipe's gradients with the CPU's, measure steps and memory."""
    torch.set_num_threads(1)
    bench, start, rows, failed = Bench(device, quick), time.monotonic(), list[Row](), 0

    def add(row: Row) -> None:
        rows.append(row)
        write(rows, out)
        cells, now = row.cells(), time.monotonic() - start
        print(f"{now:4.0f} s  {row.name}: {cells['value']} {row.unit} {row.peer}", flush=True)

    add(Row(f"threads of the CPU, torch {torch.__version__}", bench.name, 1.0, ""))
    for name, part in bench.parts():
        if time.monotonic() - start > LIMIT:
            add(not_run(name, bench.name, "", f"and what follows: {LIMIT} s are over"))
            break
        try:
            for row in part():
                add(row)
        except Exception as error:  # whatever it is, the rest is worth measuring
            failed += 1
            text = f"failed: {type(error).__name__}: {' '.join(str(error).split())}"
            add(not_run(name, bench.name, "", text[:400]))
    print(f"{out}/benchmarks.csv: {len(rows)} rows, {failed} failures")
    raise typer.Exit(int(failed > 0))


if __name__ == "__main__":
    typer.run(main)

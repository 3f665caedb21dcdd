"""Kill the pipeline at any moment and see that the same command ends with the same bytes.

A run of half a minute (`tiny.yaml`, the project's Snakefile) is made once undisturbed. Each round
removes one target of one stage, starts the command, kills its process group with SIGKILL at a
random moment, and runs the command to its end. All files must then have the bytes of the
undisturbed run, and nothing may be left over. Rounds are logged as CSV.
"""

from __future__ import annotations

import csv
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.workflow.conftest import fresh_copy

HERE = Path(__file__).resolve().parent
CONFIGS = ("--configfile", "config/smoke.yaml", "config/tiny.yaml")
RESULTS = "results/tiny"
FINAL = f"{RESULTS}/tables/1d-pde-error.tex"
GIVEN = "diffusion1d/m2+4-noise0"
STAGES: dict[str, list[str]] = {
    "simulate": [f"{RESULTS}/data/diffusion1d.h5"],
    "sensors": [f"{RESULTS}/sensors/diffusion1d/m2+4.h5"],
    "reference": [
        f"{RESULTS}/reference/{GIVEN}/{label}.h5" for label in ("validation", "paper", "precise")
    ],
    "train": [
        f"{RESULTS}/train/diffusion1d/tuned/uqsonet-N2000/trial{k}.safetensors" for k in (0, 1)
    ],
    "evaluate": [
        f"{RESULTS}/scores/{GIVEN}/{answer}-N2000.{label}.csv"
        for answer in ("untrained/baselines", "tuned/uqsonet")
        for label in ("paper", "precise")
    ],
    "report": [f"{RESULTS}/summary/diffusion1d.csv", FINAL],
}
KEPT = (".h5", ".safetensors", ".csv", ".tex")


class Harness:
    """A project in a folder, and what an undisturbed run made of it."""

    def __init__(self, work: Path) -> None:
        self.path, self.output = fresh_copy(work / "project").path, work / "output"
        self.results = self.path / RESULTS
        shutil.copy(HERE / "tiny.yaml", self.path / "config")
        self.seconds: dict[str, float] = {}
        """Target -> what the command takes to make it."""
        for target in (target for targets in STAGES.values() for target in targets):
            start = time.monotonic()
            self.finish(target)
            self.seconds[target] = time.monotonic() - start
        self.finish(FINAL)
        paths = [path for path in self.results.rglob("*.*") if path.suffix in KEPT]
        paths = [path for path in paths if not path.match("train/*/*/*/*.csv")]  # they hold times
        self.whole = {path: path.read_bytes() for path in paths}

    def start(self, target: str, *flags: str) -> subprocess.Popen[bytes]:
        """Start the command in a process group of its own."""
        paths = [str(self.path / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
        environment |= {"PYTHONPATH": str(self.path / "src"), "PATH": os.pathsep.join(paths)}
        command = [sys.executable, "-m", "snakemake", "--cores", "1", *flags, *CONFIGS]
        with self.output.open("wb") as output:
            options = {"stdout": output, "stderr": subprocess.STDOUT, "start_new_session": True}
            command += ["--", target]
            return subprocess.Popen(command, cwd=self.path, env=environment, **options)

    def finish(self, target: str) -> None:
        """Run the command to its end; it must end well."""
        if self.start(target).wait():
            raise SystemExit(f"the command failed:\n{self.output.read_text()}")

    def kill(self, stage: str, chance: random.Random) -> tuple | None:
        """Do one round; return its row of the log, None if the command ended before the kill."""
        target = chance.choice(STAGES[stage])
        path = self.path / target
        for file in path.parent.glob(f"{path.stem}.*"):  # with the other files of its job
            file.unlink()
        seconds = chance.uniform(0.2, 1) * self.seconds[target]
        process = self.start(target)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        code, debris = process.wait(), len([*self.results.rglob(".*.part")])
        assert code in (0, -signal.SIGKILL), self.output.read_text()
        if code:  # which leaves Snakemake's lock
            assert self.start(target, "--unlock").wait() == 0, self.output.read_text()
        self.finish(target)
        if code == 0:
            return None
        share = seconds / self.seconds[target]
        return stage, target, f"{seconds:.3f}", f"{share:.2f}", debris, not self.wrong()

    def wrong(self) -> list[str]:
        """Return what is damaged, differs from the undisturbed run, or is left over."""
        wrong = [path for path, held in self.whole.items() if path.read_bytes() != held]
        bad = [f"differs: {path}" for path in wrong]
        left = [*self.results.rglob(".*.part"), *(self.results / "state").rglob("*.*")]
        bad += [f"left over: {path}" for path in left]
        print(*bad, sep="\n", end="")
        return bad


def run(work: Path, log: Path, kills: int) -> int:
    """Kill every stage as often; return how many files are compared.

    The last stage comes first: all that a target is made of stays finished.
    """
    harness, chance = Harness(work), random.Random(time.time_ns())
    with log.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("stage", "target", "seconds", "share", "debris", "same"))
        for stage in sorted((number % len(STAGES) for number in range(kills)), reverse=True):
            row = None
            while row is None:  # a kill that came too late is none
                row = harness.kill([*STAGES][stage], chance)
            writer.writerow(row)
            file.flush()
            print(*row, flush=True)
            if not row[-1]:
                raise SystemExit("differs after a kill")
    harness.finish(FINAL)
    if harness.wrong():
        raise SystemExit("the finished DAG differs")
    return len(harness.whole)

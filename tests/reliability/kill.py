"""Kill the pipeline at any moment and see that the same command ends with the same bytes.

    python -m tests.reliability.kill --kills 204 --log docs/kills.csv        (make test-kill)

A run of half a minute (`tiny.yaml`, the project's Snakefile) is made once undisturbed. Each round
then takes one target of one stage, removes it, starts the command, kills its whole process group
with SIGKILL, either at a random moment or stopped inside an atomic write (`hook/`), and runs the
same command to its end. The target must have the bytes of the undisturbed run, every file of
the results must pass `uqsonet check`, and no temporary file may be left. At the end the whole
DAG is finished and all tables, weights and data are compared. Rounds are logged as CSV; a second
start goes on where the log ends.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.watch import wait_for, written
from tests.workflow.conftest import ROOT, Project, fresh_copy
from uqsonet_study.check import check_path
from uqsonet_study.cli import read_config
from uqsonet_study.pipeline import Plan

HERE = Path(__file__).resolve().parent
RESULTS = Path("results/tiny")
CONFIGS = ("--configfile", "config/smoke.yaml", "config/tiny.yaml")
FINAL = (str(RESULTS / "tables/all.tex"),)
PHASES = ("open", "write", "sync", "rename", "renamed")
PLAN = Plan(read_config([ROOT / "config.yaml", ROOT / "config/smoke.yaml", HERE / "tiny.yaml"]))


def _below(*files: str) -> tuple[str, ...]:
    return tuple(str(Path(file).relative_to(RESULTS)) for file in files)


CASE, METHOD = "diffusion1d", "uqsonet"
STAGES: dict[str, tuple[str, ...]] = {
    "simulate": _below(PLAN.functions(CASE)),
    "sensors": _below(PLAN.layouts(CASE)),
    "reference": _below(
        *(PLAN.posteriors(CASE, label) for label in ("validation", "paper", "precise"))
    ),
    "train": _below(*PLAN.trained(CASE, METHOD, "safetensors")),
    "evaluate": _below(*PLAN.scores(CASE)),
    "report": (
        "summary/diffusion1d.csv",
        "scorecard.csv",
        "tables/1d-pde-error.tex",
        "tables/all.tex",
    ),
}
COLUMNS = ("stage", "target", "phase", "at", "seconds", "moment", "debris", "resumed", "same")
TIMES = ("simulate/diffusion1d.json", *_below(*PLAN.trained(CASE, METHOD, "csv")))
"""Hold measured times. The second is compared without them."""


class Harness:
    """A project with an undisturbed run beside it.

    Parameters
    ----------
    work : Path
        Folder for both; taken up again if it is there.
    """

    def __init__(self, work: Path) -> None:
        self.work, self.whole = work, work / "whole"
        self.random = random.Random(time.time_ns())
        self.project = Project(work / "project")
        if not (self.whole / "done").exists():
            shutil.rmtree(work, ignore_errors=True)
            fresh_copy(self.project.path)
            shutil.copy(HERE / "tiny.yaml", self.project.path / "config/tiny.yaml")
            (work / "measured.json").write_text(json.dumps(self.measure()))
            shutil.copytree(self.results, self.whole)
            (self.whole / "done").touch()
        measured = json.loads((work / "measured.json").read_text())
        self.seconds: dict[str, float] = measured["seconds"]
        self.writes: dict[str, int] = measured["writes"]

    @property
    def results(self) -> Path:
        """The folder of results."""
        return self.project.path / RESULTS

    def start(self, targets: tuple[str, ...], plan: dict | None = None) -> subprocess.Popen[bytes]:
        """Start the command in a process group of its own."""
        paths = [str(HERE / "hook"), str(self.project.path / "src")]
        bins = [
            str(self.project.path / "bin"),
            str(Path(sys.executable).parent),
            os.environ["PATH"],
        ]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(paths),
            "PATH": os.pathsep.join(bins),
            "OMP_NUM_THREADS": "1",
            "MPLBACKEND": "Agg",
            "KILL_AT": json.dumps(plan or {}),
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-m", "snakemake", "--cores", "1", *CONFIGS, "--", *targets]
        with (self.work / "output").open("wb") as output:
            return subprocess.Popen(
                command,
                cwd=self.project.path,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def finish(self, targets: tuple[str, ...], plan: dict | None = None) -> None:
        """Run the command to its end; it must end well."""
        process = self.start(targets, plan)
        if wait_for(process.poll, self._sign):
            raise SystemExit("the command failed:\n" + (self.work / "output").read_text())

    def _sign(self) -> object:
        return written(self.work / "output", self.results)

    def measure(self) -> dict[str, dict[str, float]]:
        """Run everything undisturbed; return how long each target takes and how often it writes."""
        seconds, writes = {}, {}
        for target in (target for targets in STAGES.values() for target in targets):
            folder, start = self._signals(), time.monotonic()
            self.finish((str(RESULTS / target),), {"phase": "", "number": 0, "folder": str(folder)})
            seconds[target] = time.monotonic() - start
            writes[target] = (folder / "writes").stat().st_size
        self.finish(FINAL)
        return {"seconds": seconds, "writes": writes}

    def _signals(self) -> Path:
        folder = self.work / "signals"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def remove(self, target: str) -> None:
        """Remove a target with the other files of its job."""
        path = self.results / target
        for other in path.parent.glob(f"{path.stem}.*"):
            other.unlink()

    def kill(self, stage: str, phase: str) -> dict[str, object] | None:
        """Do one round; return its row of the log, None if the command ended before the kill."""
        target = self.random.choice(STAGES[stage])
        folder = self._signals()
        self.remove(target)
        plan = None
        if phase != "random":
            number = self.random.randint(1, self.writes[target])
            plan = {"phase": phase, "number": number, "folder": str(folder)}
        start = time.monotonic()
        process = self.start((str(RESULTS / target),), plan)
        moment = start + self.random.uniform(0.2, self.seconds[target])
        stopped = folder / "stopped.json"

        def over() -> bool | None:
            due = plan is None and time.monotonic() > moment
            return process.poll() is not None or stopped.exists() or due or None

        wait_for(over, self._sign, pause=0.005)
        alive = process.poll() is None
        took = time.monotonic() - start
        if not alive:
            self.finish((str(RESULTS / target),))
            return None
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._require_dead(process.pid)
        at = Path(json.loads(stopped.read_text())["path"]).name if stopped.exists() else ""
        debris = len(self.debris())
        again = time.monotonic()
        self.finish((str(RESULTS / target),))
        return {
            "stage": stage,
            "target": target,
            "phase": phase,
            "at": re.sub(r"^\.(.*)\.[^.]*\.part$", r"\1", at),
            "seconds": f"{took:.3f}",
            "moment": "in a write" if at else f"{took / self.seconds[target]:.2f} of the run",
            "debris": debris,
            "resumed": f"{time.monotonic() - again:.3f}",
            "same": self.same(target),
        }

    @staticmethod
    def _require_dead(session: int) -> None:
        """Wait until nothing of a session runs any more."""

        def gone() -> bool | None:
            return not any(_session(p) == session for p in Path("/proc").glob("[0-9]*")) or None

        wait_for(gone, lambda: None, lambda: "processes survived the kill", pause=0.01)

    def debris(self) -> list[Path]:
        """Return temporary files that are there."""
        return list(self.results.rglob(".*.part"))

    def same(self, target: str) -> bool:
        """Whether a target and all it was made with is sound and as in the undisturbed run."""
        folder = (self.results / target).parent
        names = [p.relative_to(self.results) for p in folder.glob(f"{Path(target).stem}.*")]
        problems = [
            f"{p}: {why}"
            for p in names
            for _, why in check_path(self.results / p)
            if why and p.suffix != ".tex"
        ]
        problems += [str(p) for p in names if not self.equal(p)]
        problems += [f"debris {p}" for p in self.debris()]
        if problems or not names:
            print(*problems, sep="\n", file=sys.stderr)
        return bool(names) and not problems

    def equal(self, name: Path) -> bool:
        """Whether a file has the bytes of the undisturbed run; times are left out."""
        ours, theirs = self.results / name, self.whole / name
        if name.as_posix() == TIMES[0]:
            keys = ("file", "arrays", "config", "seed", "probe")
            found = [{k: json.loads(p.read_text())[k] for k in keys} for p in (ours, theirs)]
            return found[0] == found[1]
        if name.as_posix() == TIMES[1]:
            rows = [list(csv.DictReader(p.open())) for p in (ours, theirs)]
            bare = [[{k: v for k, v in r.items() if k != "seconds"} for r in t] for t in rows]
            return bare[0] == bare[1]
        return ours.read_bytes() == theirs.read_bytes()

    def finish_and_compare(self) -> int:
        """Finish the DAG; every table, weight and data file must be as undisturbed."""
        self.finish(FINAL)
        kept = (".h5", ".safetensors", ".csv", ".tex", ".json")
        names = [p.relative_to(self.whole) for p in self.whole.rglob("*") if p.suffix in kept]
        bad = [str(name) for name in names if not self.equal(name)]
        bad += [f"{p}: {why}" for p, why in check_path(self.results) if why]
        bad += [f"left over: {p}" for p in (self.results / "state").rglob("*") if p.is_file()]
        if bad:
            raise SystemExit("the finished DAG differs:\n" + "\n".join(bad))
        return len(names)


def _session(process: Path) -> int | None:
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[3])


def phases(kills: int) -> list[str]:
    """Return the phases of a stage's kills: every other one at random, the others in a write."""
    return ["random" if k % 2 else PHASES[k // 2 % len(PHASES)] for k in range(kills)]


def run(work: Path, log: Path, kills: int, stages: list[str]) -> int:
    """Do the rounds that the log does not have yet; return how many files the end compares.

    Stages are killed one after another, the last one first: all before a target stays finished.
    """
    harness = Harness(work)
    if not log.exists():
        log.write_text(",".join(COLUMNS) + "\n")
    for stage, share in reversed([*zip(stages, shares(kills, len(stages)), strict=True)]):
        with log.open() as file:
            done = sum(row["stage"] == stage for row in csv.DictReader(file))
        for phase in phases(share)[done:]:
            row = None
            while row is None:  # a kill that came too late is none
                row = harness.kill(stage, phase)
            with log.open("a") as file:
                csv.DictWriter(file, COLUMNS, lineterminator="\n").writerow(row)
            print(*row.values(), flush=True)
            if not row["same"]:
                raise SystemExit(f"differs after a kill: {row}")
    return harness.finish_and_compare()


def shares(kills: int, stages: int) -> list[int]:
    """Divide kills among stages, as evenly as it goes."""
    return [kills // stages + (k < kills % stages) for k in range(stages)]


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=204)
    parser.add_argument("--log", type=Path, default=Path("kills.csv"))
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "uqsonet-kill")
    parser.add_argument("--stages", nargs="+", choices=list(STAGES), default=list(STAGES))
    options = parser.parse_args()
    files = run(options.work, options.log, options.kills, options.stages)
    print(f"{options.kills} kills; {files} files of the finished DAG are as undisturbed")


if __name__ == "__main__":
    main()

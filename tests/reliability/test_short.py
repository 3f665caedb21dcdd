"""The long experiments in short: kills, damaged files, damaged configurations."""

import csv
import fcntl
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.reliability import fuzz_calls, fuzz_config, fuzz_files, kill
from uqsonet_study import locks

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
@pytest.mark.timeout(0)  # what takes time is watched
def test_a_kill_in_every_stage_changes_no_byte(tmp_path: Path) -> None:
    log = tmp_path / "kills.csv"
    assert kill.run(tmp_path / "work", log, len(kill.STAGES), list(kill.STAGES)) >= 15
    with log.open() as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["stage"] for row in rows) == sorted(kill.STAGES)
    assert all(row["same"] == "True" for row in rows)


@pytest.mark.long
def test_no_damaged_file_gets_through(tmp_path: Path) -> None:
    rows = fuzz_files.run(tmp_path / "files", 500)
    assert len(rows) == 500
    assert not [row for row in rows if row[3] not in fuzz_files.FINE]
    assert Counter(row[3] for row in rows)["refused"] > 330  # forged files may be sound


@pytest.mark.long
def test_no_configuration_raises_anything_but_its_error() -> None:
    counts = fuzz_config.run(400)
    assert {outcome for _, outcome in counts} == {"refused", "accepted"}


def test_every_call_is_answered_finitely_or_refused() -> None:
    counts = fuzz_calls.run(60)
    assert {outcome for *_, outcome in counts} == {"refused", "finite"}


def test_the_kept_log_of_kills_is_what_the_document_says() -> None:
    with (ROOT / "docs/reliability/kills.csv").open() as file:
        rows = list(csv.DictReader(file))
    stages = Counter(row["stage"] for row in rows)
    assert len(rows) >= 200 and set(stages) == set(kill.STAGES) and min(stages.values()) >= 20
    assert sum(row["phase"] != "random" for row in rows) >= 50
    assert all(row["same"] == "True" for row in rows)


def test_locks_of_the_dead_are_removed_and_those_of_the_living_stay(tmp_path: Path) -> None:
    folder = tmp_path / ".snakemake"
    (folder / "locks").mkdir(parents=True)
    lock = folder / "locks" / "0.output.lock"
    lock.touch()
    hold = "import sys; from pathlib import Path; from uqsonet_study import locks\n"
    hold += (
        "assert locks.join(Path(sys.argv[1])) is not None; print('at work', flush=True); input()"
    )
    living = subprocess.Popen(
        [sys.executable, "-c", hold, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert living.stdout is not None
    assert living.stdout.readline() == "at work\n"
    assert locks.release_dead(folder) == 0 and lock.exists()
    living.kill()
    living.communicate()
    assert locks.release_dead(folder) == 1 and not lock.exists()
    file = locks.join(folder)
    assert file is not None
    with pytest.raises(BlockingIOError), (folder / locks.NAME).open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(file)

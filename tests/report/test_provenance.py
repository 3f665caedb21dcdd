from __future__ import annotations

from pathlib import Path

import pytest

from tests.report.conftest import make_config
from uqsonet.errors import DataError
from uqsonet.storage.files import file_digest
from uqsonet_study.report.provenance import provenance_of, stage_costs

DONE = "2026-01-01 INFO {rule} done in {seconds} s, processor 900.0 s, peak memory {memory} MiB\n"
OLD = "2026-01-01 INFO {rule} done in {seconds} s, peak memory {memory} MiB\n"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    logs = tmp_path / "logs"
    (logs / "train" / "e_1").mkdir(parents=True)
    # The log of a job that ran twice: the last run is the one that made the result.
    (logs / "train" / "e_1" / "0.log").write_text(
        DONE.format(rule="train", seconds="7200.0", memory=50)
        + DONE.format(rule="train", seconds="1800.0", memory=300)
    )
    (logs / "train" / "e_1" / "1.log").write_text(
        OLD.format(rule="train", seconds="3600.0", memory=200)
    )
    (logs / "sensors.log").write_text("2026-01-01 INFO started\n")
    (logs / "page.log").write_text(DONE.format(rule="page", seconds="1.0", memory=10))
    return tmp_path


def test_costs_are_those_of_the_last_run_of_each_job(results: Path) -> None:
    assert stage_costs(results)["train"] == {
        "jobs": 2,
        "hours": 1.5,
        "processor_hours": 1.25,
        "peak_memory_mib": 300,
    }


def test_costs_leave_out_jobs_of_earlier_configurations(results: Path) -> None:
    log = (results / "logs/train/e_1/1.log").read_text()
    for name in ("uqsonet-1/trial_0", "uqsonet-1/trial_1", "uqsonet-2/trial_0", "laws-3"):
        path = results / "logs/train/p" / f"{name}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(log)
    files = "train/p/uqsonet-1/trial_0.csv", "train/p/laws-3.json", "simulate/p.h5"
    (results / "jobs.csv").write_text("rule,file\n" + "".join(f"r,{file}\n" for file in files))
    costs = stage_costs(results)
    assert costs["train"]["jobs"] == 3 and costs["page"]["jobs"] == 1


def test_provenance_names_configuration_seed_recipe_and_machine(results: Path) -> None:
    found = provenance_of(results, make_config(seed=5))
    assert found["configuration_sha256"] == file_digest(results / "config.json")
    assert (found["seed"], found["recipe"]) == (5, "my_recipe")
    assert found["cores"] >= 1 and "torch" in found["versions"]
    # The page cannot count itself: made again, it would differ.
    assert set(found["stages"]) == {"train"}


def test_other_recipes_are_named(results: Path) -> None:
    config = make_config(experiment={"recipe": "other"})
    assert provenance_of(results, config)["recipe"] == "my_recipe (e_1: other)"


def test_a_folder_without_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"config\.json: cannot be read"):
        provenance_of(tmp_path, make_config())

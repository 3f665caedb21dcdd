from __future__ import annotations

from pathlib import Path

import pytest

from tests.report.conftest import make_config
from uqsonet.files import file_digest
from uqsonet_study.pipeline import Paths
from uqsonet_study.report.provenance import provenance_of, stage_costs

DONE = "2026-01-01 INFO {rule} done in {seconds} s,{processor} peak memory {memory} MiB\n"


def done(rule: str, seconds: float, memory: int, processor: str = "") -> str:
    return DONE.format(rule=rule, seconds=seconds, memory=memory, processor=processor)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    logs = tmp_path / "logs"
    (logs / "train/e_1").mkdir(parents=True)
    (logs / "train/e_1/1.log").write_text(done("train", 3600.0, 200))  # of no job of ours
    (logs / "table.log").write_text(done("table", 3.0, 20))
    (logs / "sensors.log").write_text("2026-01-01 INFO started\n")
    (logs / "page.log").write_text(done("page", 1.0, 10))
    return tmp_path


def test_costs_are_those_of_the_last_run_of_each_job_that_the_configuration_has(
    results: Path,
) -> None:
    config = make_config()
    job, *_ = Paths(config).trained(config.cases["e_1"], "uqsonet", "csv")
    path = results / "logs" / Path(job).relative_to(config.results).with_suffix(".log")
    path.parent.mkdir(parents=True)
    # The log of a job that ran twice: the last run is the one that made the result.
    twice = [done("train", seconds, 50, " processor 900.0 s,") for seconds in (7200.0, 1800.0)]
    path.write_text("".join(twice))
    path.with_name("trial1.log").write_text(done("train", 3600.0, 200))
    costs = stage_costs(results, config)
    expected = {"jobs": 2, "hours": 1.5, "processor_hours": 1.25, "peak_memory_mib": 200}
    assert costs["train"] == expected and costs["page"]["jobs"] == 1


def test_provenance_names_configuration_seed_recipes_and_machine(results: Path) -> None:
    found = provenance_of(results, make_config(seed=5))
    assert found["configuration_sha256"] == file_digest(results / "config.json")
    assert (found["seed"], found["recipe"]) == (5, "my_recipe")
    assert found["cores"] >= 1 and "torch" in found["versions"]
    # The page cannot count itself: made again, it would differ.
    assert set(found["stages"]) == {"table"}
    other = provenance_of(results, make_config(experiment={"recipe": "other"}))
    assert other["recipe"] == "my_recipe (e_1: other)"

"""Source digests and the cutting of jobs."""

import json
from pathlib import Path

import pytest

from uqsonet.cli import read_config
from uqsonet.errors import ConfigError
from uqsonet.pipeline import Plan, method_modules, source_digest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan(read_config([ROOT / "config.yaml"]))


def test_trials_are_cut_into_stacks(plan: Plan) -> None:
    assert plan.stacks("diffusion1d") == {k: [k] for k in range(5)}
    jobs = plan.config.jobs.model_copy(update={"trials_per_job": 2})
    pairs = Plan(plan.config.model_copy(update={"jobs": jobs}))
    assert pairs.stacks("diffusion1d") == {0: [0, 1], 1: [2, 3], 2: [4]}


def test_methods_are_found_by_name() -> None:
    assert method_modules("vidon") == ["uqsonet.nn.vidon"]
    assert set(method_modules("uqsonet")) == {"uqsonet.nn.kriging", "uqsonet.nn.uqsonet"}
    with pytest.raises(ConfigError, match="there are"):
        method_modules("perceptron")


def test_a_digest_follows_imports() -> None:
    assert source_digest(["uqsonet.reference"]) != source_digest(["uqsonet.sensors"])
    assert source_digest(["uqsonet.config"]) == source_digest([])


def test_training_does_not_depend_on_the_number_of_trials_or_on_figures(plan: Plan) -> None:
    changed = plan.config.experiments["diffusion1d"].model_copy(
        update={"trials": 9, "figure_counts": [1]}
    )
    other = Plan(plan.config.model_copy(update={"experiments": {"diffusion1d": changed}}))
    arguments = ("diffusion1d", "uqsonet", 0)
    assert plan.train(*arguments) == other.train(*arguments)
    assert json.loads(plan.train(*arguments))["trials"] == [0]

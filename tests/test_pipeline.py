"""Source digests and the cutting of jobs."""

import json
from pathlib import Path

import pytest

from uqsonet.errors import ConfigError
from uqsonet_study.cli import read_config
from uqsonet_study.pipeline import Plan, method_modules, source_digest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan(read_config([ROOT / "config.yaml"]))


def test_trials_are_cut_into_stacks(plan: Plan) -> None:
    assert plan.stacks("diffusion1d", "uqsonet") == {k: [k] for k in range(5)}
    jobs = plan.config.jobs.model_copy(update={"trials_per_job": 2})
    pairs = Plan(plan.config.model_copy(update={"jobs": jobs}))
    assert pairs.stacks("diffusion1d", "uqsonet") == {0: [0, 1], 1: [2, 3], 2: [4]}


def test_methods_are_found_by_name() -> None:
    assert set(method_modules("vidon")) == {
        "uqsonet.models.karhunen_loeve_vidon",
        "uqsonet.models.attention",
    }
    assert set(method_modules("uqsonet")) == {
        "uqsonet.models.karhunen_loeve",
        "uqsonet.models.attention",
    }
    with pytest.raises(ConfigError, match="there are"):
        method_modules("perceptron")


def test_a_digest_follows_imports() -> None:
    assert source_digest(["uqsonet.reference"]) != source_digest(["uqsonet.sensors"])
    assert source_digest(["uqsonet_study.config"]) == source_digest([])


def test_training_does_not_depend_on_the_number_of_trials(plan: Plan) -> None:
    changed = plan.config.experiments["diffusion1d"].model_copy(update={"trials": 9})
    experiments = plan.config.experiments | {"diffusion1d": changed}
    other = Plan(plan.config.model_copy(update={"experiments": experiments}))
    arguments = ("diffusion1d", "uqsonet", 0)
    assert plan.train(*arguments) == other.train(*arguments)
    assert json.loads(plan.train(*arguments))["trials"] == [0]


def test_what_only_an_ablation_reads_is_not_scored_on_test_sets() -> None:
    config = read_config([ROOT / "config.yaml", ROOT / "config/ablation.yaml"])
    plan = Plan(config)
    parts = config.tables["parts"].experiments
    assert set(plan.summarised()) == set(parts) < set(config.selected)
    assert set(plan.tables()) == {"ablation", "parts"}
    alone = Plan(config.model_copy(update={"tables": {}, "figures": {}}))
    assert alone.summarised() == list(config.selected)


def test_tables_of_the_paper_come_first(plan: Plan) -> None:
    tables = dict(reversed(list(plan.config.tables.items())))
    names = list(Plan(plan.config.model_copy(update={"tables": tables})).tables())
    assert names[-1] == "scores" and names[:-1] == [n for n in tables if n != "scores"]


def weights(plan: Plan, case: str, method: str = "uqsonet") -> list[str]:
    return plan.trained(case, method, "safetensors")


def test_cases_share_what_is_the_same(plan: Plan) -> None:
    # One training serves every noise level, and the largest N is no other model than ...
    for noise in ("0.1", "1"):
        assert weights(plan, f"diffusion1d_noise-noise{noise}") == weights(plan, "diffusion1d")
    assert weights(plan, "diffusion1d_size-n10000") == weights(plan, "diffusion1d")
    assert weights(plan, "poisson2d_noise-noise0.5") == weights(plan, "poisson2d")
    # ... but what differs in N or d_z is trained by itself,
    for case in ("diffusion1d_size-n5000", "diffusion1d_latent-dz5"):
        assert not set(weights(plan, case)) & set(weights(plan, "diffusion1d"))
    # and references differ with the noise and the counts, not along a sweep.
    sizes = [c.name for c in plan.config.cases_of(["diffusion1d_size"])]
    assert len({plan.posteriors(name, "precise") for name in sizes}) == 1
    noises = [c.name for c in plan.config.cases_of(["diffusion1d_noise"])]
    assert len({plan.posteriors(name, "precise") for name in noises}) == 5
    assert len({plan.layouts(name) for name in noises}) == 1


def test_members_of_an_ensemble_are_the_trials_of_its_method(plan: Plan) -> None:
    members = weights(plan, "diffusion1d_ensemble", "deep_ensemble")
    assert members == weights(plan, "diffusion1d", "vidon") and len(members) == 5
    assert plan.weights_scored("diffusion1d_ensemble", "deep_ensemble", 0) == members
    ours = {f for f in plan.scores("diffusion1d_ensemble") if "uqsonet" in f}
    assert ours <= set(plan.scores("diffusion1d"))
    assert sum("deep_ensemble" in f for f in plan.scores("diffusion1d_ensemble")) == 2


def test_the_papers_recipe_trains_for_each_noise_and_count() -> None:
    plan = Plan(read_config([ROOT / "config.yaml", ROOT / "config/paper.yaml"]))
    found = {
        file for c in plan.config.cases_of(["diffusion1d_noise"]) for file in weights(plan, c.name)
    }
    assert len(found) == 5 * 2 * 5
    same = weights(plan, "diffusion1d_size-n10000-m3"), weights(plan, "diffusion1d_latent-dz10-m3")
    assert same[0] == same[1]  # d_z = 10 is the recipe's own


def test_selecting_an_experiment_renames_nothing(plan: Plan) -> None:
    chosen = Plan(plan.config.model_copy(update={"select": ["diffusion1d_noise"]}))
    assert weights(chosen, "diffusion1d_noise-noise0.3") == weights(plan, "diffusion1d")
    assert set(chosen.tables()) == {"1d-pde-addnoise-error"}
    assert set(chosen.figures()) == {"1d-pde-addnoise"}
    assert chosen.pictures() == ["diffusion1d_noise_data", "diffusion1d_noise_training"]


def test_one_more_noise_level_changes_no_other_job(plan: Plan) -> None:
    noisy = plan.config.experiments["diffusion1d_noise"]
    noisy = noisy.model_copy(update={"noise_std": [*noisy.noise_levels, 2.0]})
    experiments = plan.config.experiments | {"diffusion1d_noise": noisy}
    other = Plan(plan.config.model_copy(update={"experiments": experiments}))
    for case in plan.config.cases:
        assert other.scores(case) == plan.scores(case)
        for label in plan.config.cases[case].evaluations:
            assert other.evaluate(case, label, "uqsonet") == plan.evaluate(case, label, "uqsonet")
    assert other.report(
        "uqsonet_study.report.tables.write", ["poisson2d"], table="2d-pde-error"
    ) == (plan.report("uqsonet_study.report.tables.write", ["poisson2d"], table="2d-pde-error"))
    assert set(other.scores("diffusion1d_noise-noise2")).isdisjoint(
        file for case in plan.config.cases for file in plan.scores(case)
    )

"""The configuration: misspelt, misplaced and contradictory keys are refused by name."""

import copy
import json
from pathlib import Path

import pytest
import yaml

from uqsonet.errors import ConfigError
from uqsonet_study.cli import read_config
from uqsonet_study.config import SensorsConfig, json_schema, load_config

ROOT = Path(__file__).resolve().parents[1]
BASE = yaml.safe_load((ROOT / "config.yaml").read_text())


def merge(base: dict, overlay: dict) -> dict:
    """Merge as the workflow does: mappings key by key, everything else replaced."""
    merged = copy.deepcopy(base)
    for key, value in overlay.items():
        inner = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if inner else value
    return merged


def changed(path: str, value: object, base: dict | None = None) -> dict:
    raw = copy.deepcopy(BASE if base is None else base)
    *parents, last = path.split(".")
    node = raw
    for key in parents:
        node = node[key]
    node[last] = value
    return raw


OVERLAYS = {path.stem: path for path in sorted((ROOT / "config").glob("*.yaml"))}
MERGED = {name: merge(BASE, yaml.safe_load(path.read_text())) for name, path in OVERLAYS.items()}
OWN, LAWS = MERGED["own_data"], MERGED["laws"]

RECIPE = "recipes.tuned.diffusion1d.vidon"
FIXED_BATCHES = BASE["recipes"]["tuned"]["diffusion1d"]["vidon"]["training"] | {
    "protocol": "fixed_batches",
    "batch_size": 2000,
}
ONE = "experiments.diffusion1d"
AUTO = "recipes.tuned.mixture1d.auto"
DARCY = "problems.darcy.data"


def clustered(distances: dict) -> dict:
    return {"counts": [1, 2, 4, 7, 10], "layout": "regular_space", "distances": distances}


def nested(levels: int, copies: int = 1) -> list:
    value: list = [1]
    for _ in range(levels):
        value = [value] * copies
    return value


ALIAS: list = []
ALIAS.append(ALIAS)  # an alias in YAML may hold itself


def test_the_default_configuration_is_valid_and_found_by_name():
    config = load_config(BASE)
    for name, case in config.cases.items():
        assert config.recipe_of(case.experiment) in config.recipes
        for method in case.methods:
            assert config.method_of(name, method).training.iterations > 0
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 1
    assert (ROOT / "workflow/schemas/config.schema.json").read_text() == json_schema()


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_overlay_gives_a_valid_configuration_with_its_own_results(name):
    """Or it only adds experiments or outputs: equal files then come from equal settings."""
    base, config = load_config(BASE), read_config([ROOT / "config.yaml", OVERLAYS[name]])
    assert config == load_config(MERGED[name])
    assert config.results not in [raw["results"] for other, raw in MERGED.items() if other != name]
    if config.results == base.results:
        added = not set(config.selected) & set(base.experiments)
        assert added or config.experiments == base.experiments
        for key in ("scale", "seed", "recipe", "problems", "evaluations", "jobs"):
            assert getattr(config, key) == getattr(base, key)
        for key in ("experiments", "recipes", "tables", "figures"):
            assert getattr(config, key).items() >= getattr(base, key).items()


WRONG = [
    # What a single key may hold.
    (BASE, "sed", 1, "sed: unknown key"),
    (BASE, "problems.diffusion1d.trainig", 1, "diffusion1d.trainig: unknown key"),
    (BASE, "problems.diffusion1d.training", -5, "diffusion1d.training: .*found -5"),
    (BASE, "seed", "many", "seed: .*found 'many'"),
    (BASE, "seed", [[[1]] * 10] * 10, "seed: "),
    (BASE, "seed", 16**5000, r"seed: .* \(found 20001 bits\)"),
    (BASE, f"{ONE}.noise_std", float("nan"), "noise_std: .*finite"),
    (BASE, f"{ONE}.problem", "../x", f"{ONE}.problem"),
    (BASE, "results", "../x", "results: "),
    (BASE, f"{ONE}.sensors.layout", "grid", "sensors.layout: .*found 'grid'"),
    (BASE, f"{ONE}.sensors.counts", [3, 2], "distinct and ascending"),
    (BASE, f"{RECIPE}.network.architecture", "cnn", "network: .*'cnn'"),
    (BASE, f"{RECIPE}.network.branch", [0], "branch.0: "),
    # Keys of one section.
    (BASE, f"{ONE}.sensors.distances", {2: 0.5}, "only with layout: regular_space"),
    (BASE, f"{ONE}.sensors.layout", "regular_space", "regular_space needs distances"),
    (BASE, f"{ONE}.sensors", clustered({2: 0.5, 9: 0.1}), r"distances for \[9\], which"),
    (BASE, f"{ONE}.sensors", clustered({1: 0.5}), "a single sensor has no other"),
    (BASE, f"{ONE}.sweep", {}, "name what varies"),
    (BASE, f"{ONE}.sweep", {"training": [5, 6]}, "both in the experiment"),
    (BASE, f"{ONE}.methods", ["cokriging"], "are baselines"),
    (BASE, "experiments.poisson2d.one_model_per_count", True, "for uniform layouts only"),
    (BASE, "figures.1d-sde-compare.errors", None, "at least one of distance"),
    # Names of other sections.
    (BASE, "select", ["x"], r"select: \['x'\] not among the experiments"),
    (BASE, f"{ONE}.problem", "x", "problem: 'x' is not in problems"),
    (BASE, f"{ONE}.methods", ["other"], "no entry for 'other'"),
    (BASE, "recipe", "none", "recipes.none.diffusion1d has no entry"),
    (BASE, "evaluations", {}, r"missing \['paper', 'precise', 'validation'\]"),
    (BASE, "tables.NN.experiments", ["x"], r"tables.NN: \['x'\] not among the exper"),
    (BASE, "figures.1d-pde-plot.counts", [99], r"figures.1d-pde-plot: \[99\] not among"),
    (LAWS, f"{AUTO}.law_of", "auto", "'auto' is a law of 'auto', itself a law"),
    # Limits between sections.
    (BASE, f"{ONE}.training", 30_000, "30000 exceeds the 20000 training"),
    (BASE, "evaluations.precise.sets", 10_000, "sets = 10000 exceeds the 200 test"),
    (BASE, f"{RECIPE}.training.batch_size", 20_000, "batch_size = 20000 exceeds the 10000"),
    (BASE, f"{RECIPE}.training", FIXED_BATCHES, "into 5 batches, fewer than the 10 sensor counts"),
    (BASE, f"{ONE}.methods", ["vidon", "deep_ensemble"], "compare the two in separate experim"),
    (BASE, "tables.1d-pde-error.experiments", ["diffusion1d", "poisson2d"], "of several problems"),
    (BASE, "tables.1d-pde-error.experiments", ["diffusion1d_size"], "are sweeps"),
    (BASE, "figures.1d-sde-compare.errors", "diffusion1d", "no sweep.training"),
    (LAWS, "recipes.tuned.mixture1d.uqsonet.network", {"architecture": "attention"}, "laws are"),
    (LAWS, "experiments.student1d.problem", "mixture1d", "laws: a problem has one panel"),
    # Own data.
    (OWN, f"{DARCY}.inptu", "a", f"{DARCY}.inptu: unknown key"),
    (OWN, DARCY, {"file": "a.npz", "input": "a"}, f"{DARCY}.output"),
    (OWN, "figures.own", {"layout": "spectra", "experiments": ["darcy"]}, "spectra compares"),
]


@pytest.mark.parametrize(
    ("base", "path", "value", "message"), WRONG, ids=[message for *_, message in WRONG]
)
def test_what_is_wrong_is_refused_by_key(base, path, value, message):
    with pytest.raises(ConfigError, match=message):
        load_config(changed(path, value, base))


@pytest.mark.parametrize("raw", [None, [], "text", 3, {1: 2}, {"seed": b"1"}])
def test_whatever_the_whole_file_is_only_a_config_error_comes_out(raw):
    with pytest.raises(ConfigError):
        load_config(raw)


def test_every_mistake_is_listed_and_the_source_named():
    raw = changed("seed", -1)
    raw["sed"] = 1
    with pytest.raises(ConfigError) as caught:
        load_config(raw, "config/mine.yaml")
    lines = str(caught.value).splitlines()
    assert lines[0] == "config/mine.yaml is not valid:" and len(lines) == 3


def test_distances_survive_the_way_to_a_job():
    raw = changed(f"{ONE}.sensors", clustered({2: 0.8, 4: 0.5}))
    sensors = load_config(raw).experiments["diffusion1d"].sensors
    spec = json.loads(json.dumps(sensors.model_dump(mode="json")))  # keys become text
    assert SensorsConfig.model_validate(spec).distances == {2: 0.8, 4: 0.5}


def test_lists_stand_for_cases_named_by_their_values():
    config = load_config(BASE)
    noisy = config.cases_of(["diffusion1d_noise"])
    assert [case.noise_std for case in noisy] == [0.1, 0.3, 0.5, 0.7, 1.0]
    assert config.cases["diffusion1d_noise-noise0.5"].sensors.counts == [3, 7]
    assert config.cases["diffusion1d_size-n500"].training == 500
    assert config.cases["diffusion1d"].training == 10_000
    assert config.cases["poisson2d"].training == 80_000
    latent = config.method_of("diffusion1d_latent-dz15", "uqsonet").network
    assert latent.architecture == "karhunen_loeve" and latent.input_modes == 15
    assert config.case("diffusion1d_noise", noise_std=0.3, sensors=7).name.endswith("noise0.3")
    with pytest.raises(ValueError, match="has 5 cases"):
        config.case("diffusion1d_noise")


def test_a_model_for_each_count_where_training_depends_on_the_sensors():
    config = load_config(merge(BASE, {"recipe": "paper"}))
    names = [case.name for case in config.cases_of(["diffusion1d_noise"])]
    assert names[:2] == ["diffusion1d_noise-noise0.1-m3", "diffusion1d_noise-noise0.1-m7"]
    assert len(names) == 10
    assert config.case("diffusion1d_noise", noise_std=1.0, sensors=7).sensors.counts == [7]
    latent = config.method_of("diffusion1d_latent-dz15-m3", "uqsonet").network
    assert latent.architecture == "attention" and latent.latent_dim == 15


def test_batches_and_iterations_shrink_with_the_training_set_of_a_sweep():
    config = load_config(merge(BASE, {"recipe": "paper"}))
    assert config.method_of("diffusion1d_size-n500-m3", "uqsonet").training.batch_size == 500
    assert config.method_of("diffusion1d_size-n20000-m3", "uqsonet").training.batch_size == 1000
    # No pair is seen more often than max_passes allow.
    limits = {"iterations": 1500, "max_passes": 20, "batch_size": 1000, "learning_rate": 1e-3}
    raw = changed("recipes.tuned.diffusion1d.uqsonet.training", limits)
    raw["problems"]["diffusion1d"]["training"] = 80_000
    for pairs, iterations in ((500, 20), (10_000, 200), (80_000, 1500)):
        raw["experiments"]["diffusion1d_size"]["sweep"] = {"training": [pairs]}
        training = load_config(raw).method_of(f"diffusion1d_size-n{pairs}", "uqsonet").training
        assert training.iterations == iterations


@pytest.mark.parametrize("value", [nested(41), nested(5000), ALIAS, nested(20, 10)])
def test_a_value_nested_too_deep_or_named_too_often_is_refused_in_few_words(value, capfd):
    message = "nested more than 40 levels deep|more than 100000 values with each alias written"
    with pytest.raises(ConfigError, match=message):
        load_config(changed("seed", value))
    assert capfd.readouterr().err == ""  # pydantic would print a line for each repr that failed


def test_own_data_have_no_reference_and_residuals_in_the_band():
    config = load_config(OWN)
    assert not config.has_reference("darcy")
    assert config.has_reference("diffusion1d")
    for label in ("validation", "precise"):
        evaluation = config.evaluation_of("darcy", label)
        assert (evaluation.estimator, evaluation.wasserstein) == ("none", False)
    # A recipe of one's own cannot leave the residuals out, either.
    mine = {"network": {"architecture": "karhunen_loeve"}, "training": {"iterations": 10}}
    mine["training"]["batch_size"] = 100
    written = load_config(changed("recipes.tuned.darcy", {"uqsonet": mine}, OWN))
    assert written.method_of("darcy", "uqsonet").training.iterations == 10
    for found in (config, written):
        assert found.method_of("darcy", "uqsonet").network.held_out_residuals
    assert not config.method_of("diffusion1d", "uqsonet").network.held_out_residuals


def test_what_is_recorded_of_the_paper_has_no_key_of_own_data_or_laws():
    problems = json.loads(load_config(OWN).model_dump_json())["problems"]
    assert "data" not in problems["diffusion1d"]
    assert problems["darcy"]["data"]["file"] == "docs/own-data/darcy_16.npz"
    experiments = json.loads(load_config(LAWS).model_dump_json())["experiments"]
    assert not {"sets", "model_samples"} & set(experiments["diffusion1d"])


def test_a_law_has_the_networks_of_the_method_it_belongs_to():
    config = load_config(LAWS)
    assert config.law_of("mixture1d", "auto").law == "auto"
    assert config.law_of("mixture1d", "uqsonet") is None
    assert config.base("mixture1d", "auto") == "uqsonet"
    assert config.method_of("mixture1d", "auto") == config.method_of("mixture1d", "uqsonet")
    assert config.ensemble_of("mixture1d", "auto") is None


def test_an_experiment_has_its_own_sets_and_samples():
    config = load_config(LAWS)
    whole = config.evaluations["precise"]
    assert config.evaluation_of("mixture1d", "precise") == whole
    chosen, found = config.experiments["darcy128"], config.evaluation_of("darcy128", "precise")
    for key in ("sets", "reference_samples", "model_samples"):
        own = getattr(chosen, key)["precise"]
        assert getattr(found, key) == own < getattr(whole, key)
    assert found.estimator == "monte_carlo"
    assert config.evaluation_of("darcy128", "validation").estimator == "none"
    assert config.has_reference("darcy128")


def test_an_overlay_changes_no_other_place_of_an_alias(tmp_path: Path) -> None:
    path = tmp_path / "overlay.yaml"
    path.write_text("problems: {binary1d: {training: 600}}\n")
    config = read_config([ROOT / "config.yaml", ROOT / "config/laws.yaml", path])
    assert config.problems["binary1d"].training == 600 != config.problems["mixture1d"].training

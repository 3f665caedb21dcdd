"""The configuration: misspelt, misplaced and contradictory keys are refused by name."""

import copy
import json
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from uqsonet.errors import ConfigError
from uqsonet_study.config import Config, SensorsConfig, json_schema, load_config
from uqsonet_study.pipeline import Plan

ROOT = Path(__file__).resolve().parents[1]
OVERLAYS = sorted((ROOT / "config").glob("*.yaml"))
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


NETWORK = "recipes.tuned.diffusion1d.vidon.network"
TRAINING = "recipes.tuned.diffusion1d.vidon.training"
SENSORS = "experiments.diffusion1d.sensors"


def clustered(distances: dict) -> dict:
    return {"counts": [1, 2, 4, 7, 10], "layout": "regular_space", "distances": distances}


def test_the_default_configuration_is_valid_and_found_by_name():
    config = load_config(BASE)
    for name, case in config.cases.items():
        assert config.recipe_of(case.experiment) in config.recipes
        for method in case.methods:
            assert config.method_of(name, method).training.iterations > 0


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda p: p.stem)
def test_every_overlay_gives_a_valid_configuration_with_its_own_results(overlay):
    """Or it only adds experiments or outputs: equal files then come from equal settings."""
    base, config = load_config(BASE), load_config(merge(BASE, yaml.safe_load(overlay.read_text())))
    if config.results == base.results:
        added = not set(config.selected) & set(base.experiments)
        assert added or config.experiments == base.experiments
        for key in ("scale", "seed", "recipe", "problems", "evaluations", "jobs"):
            assert getattr(config, key) == getattr(base, key)
        for key in ("experiments", "recipes", "tables", "figures"):
            assert getattr(config, key).items() >= getattr(base, key).items()


REFUSED = {
    "unknown key at the top": ("sed", 1, "sed: unknown key"),
    "unknown key below": ("problems.diffusion1d.trainig", 1, "diffusion1d.trainig: unknown key"),
    "negative number": ("problems.diffusion1d.training", -5, "diffusion1d.training: .*found -5"),
    "text for a number": ("seed", "many", "seed: .*found 'many'"),
    "NaN": ("experiments.diffusion1d.noise_std", float("nan"), "noise_std: .*finite"),
    "infinite": ("experiments.diffusion1d.noise_std", float("inf"), "noise_std: .*finite"),
    "negative noise": ("experiments.diffusion1d.noise_std", -0.1, "noise_std: .*found -0.1"),
    "empty counts": ("experiments.diffusion1d.sensors.counts", [], "sensors.counts"),
    "falling counts": ("experiments.diffusion1d.sensors.counts", [3, 2], "distinct and ascending"),
    "repeated counts": ("experiments.diffusion1d.sensors.counts", [2, 2], "distinct and ascending"),
    "zero sensors": ("experiments.diffusion1d.sensors.counts", [0, 2], "counts.0: .*found 0"),
    "no such layout": (f"{SENSORS}.layout", "grid", "sensors.layout: .*found 'grid'"),
    "no such backend": (f"{SENSORS}.backend", "scipy", "sensors.backend: .*found 'scipy'"),
    "negative margin": (f"{SENSORS}.margin", -0.1, "sensors.margin: .*found -0.1"),
    "zero distance": (f"{SENSORS}.distances", {2: 0}, "distances.2: .*found 0"),
    "distances alone": (f"{SENSORS}.distances", {2: 0.5}, "only with layout: regular_space"),
    "no distances": (f"{SENSORS}.layout", "regular_space", "regular_space needs distances"),
    "distance of no count": (SENSORS, clustered({2: 0.5, 9: 0.1}), r"distances for \[9\], which"),
    "distance of one": (SENSORS, clustered({1: 0.5}), "a single sensor has no other"),
    "noise twice": ("experiments.diffusion1d.noise_std", [0.5, 0.5], "each noise level may stand"),
    "empty sweep": ("experiments.diffusion1d.sweep", {}, "name what varies"),
    "N twice": ("experiments.diffusion1d.sweep", {"training": [5, 6]}, "both in the experiment"),
    "N too large": ("experiments.diffusion1d.training", 30_000, "30000 exceeds the 20000 training"),
    "cut line": ("experiments.diffusion1d.cut_lines", ["z=1"], "cut_lines.0: .*found 'z=1'"),
    "evaluation": ("experiments.diffusion1d.evaluations", ["all"], "evaluations.0: .*'all'"),
    "per count, clustered": (
        "experiments.poisson2d.one_model_per_count",
        True,
        "for uniform layouts only",
    ),
    "table layout": ("tables.NN.layout", "matrix", "tables.NN: .*'matrix'"),
    "table of nothing": ("tables.NN.experiments", ["x"], r"tables.NN: \['x'\] not among the exper"),
    "table of two problems": (
        "tables.1d-pde-error.experiments",
        ["diffusion1d", "poisson2d"],
        "of several problems",
    ),
    "table of a sweep": ("tables.1d-pde-error.experiments", ["diffusion1d_size"], "are sweeps"),
    "figure counts": ("figures.1d-pde-plot.counts", [99], r"figures.1d-pde-plot: \[99\] not among"),
    "figure noise": ("figures.1d-pde-plot.noise_std", [0.3], r"\[0.3\] not among .*noise_std"),
    "figure method": ("figures.1d-pde-plot.method", "gnn", r"\['gnn'\] not among .*methods"),
    "figure of no sweep": ("figures.1d-sde-compare.errors", "diffusion1d", "no sweep.training"),
    "figure of nothing": ("figures.1d-sde-compare.errors", None, "at least one of distance"),
    "select nothing": ("select", [], "select: "),
    "select unknown": ("select", ["x"], r"select: \['x'\] not among the experiments"),
    "ensemble of nothing": (
        "recipes.tuned.diffusion1d.deep_ensemble.ensemble_of",
        "gnn",
        "no entry for 'gnn'",
    ),
    "ensemble of one": ("recipes.tuned.diffusion1d.deep_ensemble.members", 1, "members: .*found 1"),
    "ensemble and member": (
        "experiments.diffusion1d.methods",
        ["vidon", "deep_ensemble"],
        "compare the two in separate experiments",
    ),
    "method twice": ("experiments.diffusion1d.methods", ["vidon", "vidon"], "stand once"),
    "baseline listed": ("experiments.diffusion1d.methods", ["cokriging"], "are baselines"),
    "method without entry": ("experiments.diffusion1d.methods", ["other"], "no entry for 'other'"),
    "unknown problem": ("experiments.diffusion1d.problem", "x", "problem: 'x' is not in problems"),
    "unknown recipe": ("recipe", "none", "recipes.none.diffusion1d has no entry"),
    "recipe of an experiment": ("experiments.diffusion1d.recipe", "gone", "recipes.gone"),
    "bad name": ("experiments.diffusion1d.problem", "../x", "experiments.diffusion1d.problem"),
    "absolute results": ("results", "/tmp/x", "results: "),
    "results above": ("results", "../x", "results: "),
    "too many sets": ("evaluations.precise.sets", 10_000, "sets = 10000 exceeds the 200 test"),
    "missing evaluation": ("evaluations", {}, r"missing \['paper', 'precise', 'validation'\]"),
    "large batch": (f"{TRAINING}.batch_size", 20_000, "batch_size = 20000 exceeds the 10000"),
    "protocol": (f"{TRAINING}.protocol", "other", "training.protocol: "),
    "zero learning rate": (f"{TRAINING}.learning_rate", 0, "training.learning_rate: "),
    "architecture": (f"{NETWORK}.architecture", "cnn", "network: .*'cnn'"),
    "zero width": (f"{NETWORK}.branch", [0], "branch.0: "),
    "device": ("jobs.device", "tpu", "jobs.device: .*found 'tpu'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_is_refused_by_key(case):
    path, value, message = REFUSED[case]
    with pytest.raises(ConfigError, match=message):
        load_config(changed(path, value))


def test_every_mistake_is_listed_and_the_source_named():
    raw = changed("seed", -1)
    raw["sed"] = 1
    with pytest.raises(ConfigError) as caught:
        load_config(raw, "config/mine.yaml")
    lines = str(caught.value).splitlines()
    assert lines[0] == "config/mine.yaml is not valid:" and len(lines) == 3


def test_fixed_batches_need_a_batch_for_every_count():
    raw = changed(TRAINING, BASE["recipes"]["tuned"]["diffusion1d"]["vidon"]["training"])
    training = raw["recipes"]["tuned"]["diffusion1d"]["vidon"]["training"]
    training |= {"protocol": "fixed_batches", "batch_size": 2000}
    with pytest.raises(ConfigError, match="into 5 batches, fewer than the 10 sensor counts"):
        load_config(raw)
    training["batch_size"] = 1000
    load_config(raw)


def test_distances_survive_the_way_to_a_job():
    raw = changed(SENSORS, clustered({2: 0.8, 4: 0.5}))
    sensors = load_config(raw).experiments["diffusion1d"].sensors
    spec = json.loads(json.dumps(sensors.model_dump(mode="json")))  # keys become text
    assert SensorsConfig.model_validate(spec).distances == {2: 0.8, 4: 0.5}


def test_the_configuration_cannot_be_changed_after_validation():
    config = load_config(BASE)
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 1


def test_the_published_schema_is_that_of_the_classes():
    assert (ROOT / "workflow/schemas/config.schema.json").read_text() == json_schema()


def test_every_key_of_a_network_or_training_is_described():
    schema = Config.model_json_schema()["$defs"]
    for name in ("AttentionNetwork", "KarhunenLoeveNetwork", "TrainingConfig", "SensorsConfig"):
        for key, entry in schema[name]["properties"].items():
            assert key == "architecture" or entry.get("description"), f"{name}.{key}"


def places(node: object, path: tuple = ()) -> list[tuple]:
    items = node.items() if isinstance(node, dict) else enumerate(node)
    found = []
    for key, value in items:
        found.append((*path, key))
        if isinstance(value, dict | list):
            found += places(value, (*path, key))
    return found


JUNK = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**20), 10**20),
        st.floats(allow_nan=True, allow_infinity=True),
        st.text(max_size=8),
        st.binary(max_size=4),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=300)
@given(st.lists(st.tuples(st.sampled_from(places(BASE)), JUNK), min_size=1, max_size=3))
def test_whatever_stands_in_the_file_only_a_config_error_comes_out(mutations):
    raw = copy.deepcopy(BASE)
    for path, value in mutations:
        node = raw
        try:
            for key in path[:-1]:
                node = node[key]
            node[path[-1]] = value
        except (KeyError, TypeError, IndexError):
            continue  # an earlier mutation removed this place
    try:
        assert isinstance(load_config(raw), Config)
    except ConfigError as error:
        assert "configuration is not valid" in str(error)


@settings(max_examples=50)
@given(JUNK)
def test_whatever_the_whole_file_is_only_a_config_error_comes_out(raw):
    with pytest.raises(ConfigError):
        load_config(raw)


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


def test_batches_shrink_with_the_training_set_of_a_sweep():
    config = load_config(merge(BASE, {"recipe": "paper"}))
    assert config.method_of("diffusion1d_size-n500-m3", "uqsonet").training.batch_size == 500
    assert config.method_of("diffusion1d_size-n20000-m3", "uqsonet").training.batch_size == 1000


@pytest.mark.parametrize(("pairs", "iterations"), [(500, 20), (10_000, 200), (80_000, 1500)])
def test_no_pair_is_seen_more_often_than_max_passes_allow(pairs, iterations):
    limits = {"iterations": 1500, "max_passes": 20, "batch_size": 1000, "learning_rate": 1e-3}
    changed = {"recipes": {"tuned": {"diffusion1d": {"uqsonet": {"training": limits}}}}}
    sizes = {"problems": {"diffusion1d": {"training": 80_000}}}
    sizes |= {"experiments": {"diffusion1d_size": {"sweep": {"training": [pairs]}}}}
    config = load_config(merge(merge(BASE, changed), sizes))
    training = config.method_of(f"diffusion1d_size-n{pairs}", "uqsonet").training
    assert training.iterations == iterations


@pytest.mark.parametrize("levels", [41, 500, 5000, None])
def test_a_value_nested_too_deep_is_refused_without_another_word(levels, capfd):
    value: list = [1]
    if levels is None:
        value[0] = value  # an alias in YAML may hold itself
    for _ in range(levels or 0):
        value = [value]
    with pytest.raises(ConfigError, match="nested more than 40 levels deep"):
        load_config(changed(SENSORS, value))
    assert capfd.readouterr().err == ""  # pydantic would print a line for each repr that failed


def test_an_integer_that_python_does_not_print_is_refused():
    with pytest.raises(ConfigError, match=r"seed: .* \(found 20001 bits\)"):
        load_config(BASE | {"seed": 16**5000})


def test_a_value_that_is_named_many_times_counts_as_often():
    value: list = [1]
    for _ in range(20):
        value = [value] * 10
    with pytest.raises(ConfigError, match="more than 100000 values with each alias written out"):
        load_config(changed(SENSORS, value))
    value = [[[1]] * 10] * 10
    with pytest.raises(ConfigError, match=r"experiments\.diffusion1d\.sensors: "):
        load_config(changed(SENSORS, value))


OWN = yaml.safe_load((ROOT / "config/own_data.yaml").read_text())


def own(path: str, value: object) -> dict:
    """Return the example of own data with another value."""
    raw = merge(BASE, copy.deepcopy(OWN))
    *parents, last = path.split(".")
    node = raw
    for key in parents:
        node = node[key]
    node[last] = value
    return raw


def test_own_data_have_no_reference_and_residuals_in_the_band():
    config = load_config(merge(BASE, OWN))
    assert not config.has_reference("darcy")
    assert config.has_reference("diffusion1d")
    for label in ("validation", "precise"):
        evaluation = config.evaluation_of("darcy", label)
        assert (evaluation.estimator, evaluation.wasserstein) == ("none", False)
    # A recipe of one's own cannot leave the residuals out, either.
    mine = {"network": {"architecture": "karhunen_loeve"}, "training": {"iterations": 10}}
    mine["training"]["batch_size"] = 100
    written = load_config(own("recipes.tuned.darcy", {"uqsonet": mine}))
    assert written.method_of("darcy", "uqsonet").training.iterations == 10
    for found in (config, written):
        assert found.method_of("darcy", "uqsonet").network.held_out_residuals
    assert not config.method_of("diffusion1d", "uqsonet").network.held_out_residuals


def test_what_is_recorded_of_the_papers_problems_has_no_key_for_own_data():
    problems = json.loads(load_config(merge(BASE, OWN)).model_dump_json())["problems"]
    assert "data" not in problems["diffusion1d"]
    assert problems["darcy"]["data"]["file"] == "docs/own-data/darcy_16.npz"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("problems.darcy.data.inptu", "a", "problems.darcy.data.inptu: unknown key"),
        ("problems.darcy.data", {"file": "a.npz", "input": "a"}, "problems.darcy.data.output"),
        ("problems.darcy.data.transform", "root", "problems.darcy.data.transform"),
        ("problems.darcy.test", 20, "evaluations.precise.sets = 50 exceeds the 20 test functions"),
        ("experiments.darcy.methods", ["vidon"], "recipes.tuned.darcy has no entry for 'vidon'"),
        ("tables.own", {"layout": "errors", "experiments": ["darcy"]}, "layout errors compares"),
        ("figures.own", {"layout": "spectra", "experiments": ["darcy"]}, "layout spectra compares"),
        ("figures.own", {"layout": "compare", "spread": "darcy"}, "layout compare compares"),
    ],
)
def test_what_is_wrong_about_own_data_is_refused_by_key(path, value, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_config(own(path, value))


LAWS = merge(BASE, yaml.safe_load((ROOT / "config/any_law.yaml").read_text()))


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


def test_what_is_recorded_of_the_papers_experiments_has_no_key_of_laws():
    raw = json.loads(load_config(LAWS).model_dump_json())["experiments"]
    assert not {"sets", "model_samples"} & set(raw["diffusion1d"])
    assert "points" not in raw["diffusion1d"]["sensors"]
    assert raw["bounded1d"]["sensors"]["points"] == [17, 50, 79]


SHIPPED = merge(BASE, yaml.safe_load((ROOT / "config/placement.yaml").read_text()))
PLACES = merge(SHIPPED, {"tables": {"placement": {"shipped": False}}})


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("tables.placement.method", "mine", "'mine' not among experiments.diffusion1d.methods"),
        ("tables.placement.method", "vidon", "has the architecture karhunen_loeve_set"),
        ("tables.placement.functions", 201, "functions = 201 exceeds the 200 test functions"),
        ("tables.placement.samples_of", {"poisson": 9}, "['poisson'] not among its experiments"),
        ("tables.placement.functions_of", {"poisson": 9}, "['poisson'] not among its experiments"),
        ("tables.placement.functions_of", {"diffusion1d": 201}, "functions = 201 exceeds the 200"),
        ("tables.placement.experiments", ["diffusion1d_noise"], "have several cases, one is shown"),
        ("tables.placement.counts", [0], "tables.placement.placement.counts.0"),
        ("tables.again", {"layout": "placement", "experiments": ["diffusion1d"]}, "so one table"),
        ("tables.placement", None, "tables.placement"),
        ("figures.placement.experiments", ["diffusion1d_noise"], "have several cases"),
        ("recipes.tuned.poisson2d.uqsonet.network", {"architecture": "attention"}, "by karhunen_"),
    ],
)
def test_what_is_wrong_about_places_is_refused_by_key(path, value, message):
    load_config(PLACES)
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_config(changed(path, value, PLACES))


def test_places_by_shipped_operators_ask_for_no_training():
    (job, *others) = Plan(load_config(SHIPPED)).placement_jobs()
    assert len(others) == 4 and Path(job.inputs["weights"][0]).name == "diffusion1d.safetensors"
    trained = Plan(load_config(PLACES)).placement_jobs()[0]
    assert "/train/" in trained.inputs["weights"][0] and trained.name != job.name
    table = {"layout": "placement", "shipped": True, "experiments": ["binary1d"]}
    other = merge(LAWS, {"tables": {"p": table}})
    with pytest.raises(ConfigError, match=r"tables: shipped: .*binary1d\.safetensors: No"):
        Plan(load_config(other)).placement_jobs()


FIXED = "experiments.bounded1d.sensors"
ONE_D = "recipes.tuned.mixture1d"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (f"{ONE_D}.auto.law", "best", "recipes.tuned.mixture1d.auto.law: "),
        (f"{ONE_D}.auto.laws", "auto", "recipes.tuned.mixture1d.auto.laws: unknown key"),
        (f"{ONE_D}.auto.law_of", "vidon", "recipes.tuned.mixture1d has no entry for 'vidon'"),
        (f"{ONE_D}.auto.law_of", "mixture", "'auto' is a law of 'mixture', itself a law"),
        (f"{ONE_D}.auto.law_of", "auto", "'auto' is a law of 'auto', itself a law"),
        (f"{ONE_D}.uqsonet.network", {"architecture": "attention"}, "laws are for karhunen_loeve"),
        (f"{FIXED}.points", None, "layout: fixed and points belong together"),
        (f"{FIXED}.layout", "uniform", "layout: fixed and points belong together"),
        (f"{FIXED}.points", [17, 17, 79], "points must be distinct"),
        (f"{FIXED}.points", [17, 79], "counts must be [2], the number of points"),
        (f"{FIXED}.points", [17, 50, -1], "experiments.bounded1d.sensors.points.2"),
        (f"{FIXED}.margin", 0.1, "margin has no meaning with layout: fixed"),
        ("experiments.darcy64.sets", {"precise": 51}, "darcy64.sets.precise = 51 exceeds the 50"),
        ("experiments.darcy64.sets", {"all": 5}, "experiments.darcy64.sets"),
        ("experiments.mixture1d.noise_std", [0.0, 0.1], "have several cases, one is shown"),
        ("experiments.student1d.problem", "mixture1d", "tables.any-law: a problem has one panel"),
        ("figures.any-law-mixture.count", 3, "[3] not among experiments.mixture1d.sensors.counts"),
        (
            "figures.any-law-mixture.methods",
            ["bounded"],
            "['bounded'] not among experiments.mixture1d.",
        ),
    ],
)
def test_what_is_wrong_about_laws_is_refused_by_key(path, value, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_config(changed(path, value, LAWS))

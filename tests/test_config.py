"""The configuration: misspelt, misplaced and contradictory keys are refused by name."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from uqsonet.errors import ConfigError
from uqsonet_study.cases import Study
from uqsonet_study.loading import load_config, merge, read_config
from uqsonet_study.report import inputs
from uqsonet_study.settings import Layout

ROOT = Path(__file__).resolve().parents[1]
BASE = yaml.safe_load((ROOT / "config.yaml").read_text())
OVERLAYS = {path.stem: path for path in sorted((ROOT / "config").glob("*.yaml"))}


def changed(path: str, value: object) -> dict[str, Any]:
    raw = copy.deepcopy(BASE)
    *parents, last = path.split(".")
    node = raw
    for key in parents:
        node = node[key]
    node[last] = value
    return raw


def study(path: str, value: object) -> Study:
    return Study(load_config(changed(path, value)))


def faults(of: Study, experiment: str) -> set[str]:
    return {row.fault for row in of.answers_of(experiment)} - {""}


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_overlay_gives_a_valid_configuration_whose_cases_can_be_computed(name: str) -> None:
    config = read_config([ROOT / "config.yaml", OVERLAYS[name]])
    found = Study(config)
    assert not any(found.answers.fault)
    for table in config.tables:
        inputs.summaries_of_table(found, table)
    for figure in config.figures:
        inputs.panel_files(found, figure)


def test_experiments_of_the_small_run_are_those_of_the_full_one() -> None:
    full, small = (
        read_config(paths)
        for paths in ([ROOT / "config.yaml"], [ROOT / "config.yaml", OVERLAYS["smoke"]])
    )
    assert small.tables == full.tables and small.figures.keys() == full.figures.keys()
    for name, experiment in full.experiments.items():
        assert {"uqsonet"} <= {*small.experiments[name].methods} <= {*experiment.methods}
        assert small.experiments[name].layout == experiment.layout
        assert {*small.experiments[name].noise} <= {*experiment.noise}


ONE, VIDON = "experiments.diffusion1d", "recipes.tuned.diffusion1d.vidon"
APART = "layouts.apart"
WRONG = [
    # What a single key may hold.
    ("sed", 1, "sed: unknown key; did you mean 'seed'"),
    (
        "problems.diffusion1d.trainig",
        1,
        "diffusion1d.trainig: unknown key; did you mean 'training'",
    ),
    ("problems.diffusion1d.training", -5, "diffusion1d.training: .*found -5"),
    ("seed", "many", "seed: .*found 'many'"),
    ("seed", True, "seed: must be a number, found True"),
    (f"{ONE}.noise", [0.5, True], "noise: must be a number, found True"),
    (f"{ONE}.noise", float("nan"), "noise.*finite"),
    (f"{ONE}.problem", "../x", f"{ONE}.problem"),
    ("results", "../x", "results: "),
    ("results", "src/x", "is a part of the project itself"),
    (f"{VIDON}.network.architecture", "cnn", "network: .*'cnn'"),
    (f"{VIDON}.network.branch", [0], "branch.0: "),
    ("layouts.m3+5.counts", [3, 2], "distinct and ascending"),
    # Keys of one section.
    (f"{APART}.distances", {9: 0.1}, r"distances for \[9\], which are no counts"),
    (f"{APART}.distances", {1: 0.1}, r"distances for \[1\], which are no counts above 1"),
    (f"{ONE}.methods", ["cokriging"], "are baselines"),
    (f"{ONE}.methods", ["uqsonet", "uqsonet"], "each value may stand once"),
    (f"{ONE}.noise", [0.1, 0.10000001], "differ in six digits"),
    (f"{ONE}.noise", [], "at least 1 item"),
    ("evaluations.precise.wasserstein", True, "wasserstein needs plain samples"),
    ("tables.NN.rows", "noise", "rows belongs to layout errors, found networks"),
    ("tables.NN.experiments", ["poisson2d", "poisson2d"], "each value may stand once"),
    ("figures.1d-pde-plot.spread", "diffusion1d", "layout posterior knows no spread"),
    ("figures.1d-pde-plot", {"layout": "posterior", "counts": [2]}, "needs experiment"),
    ("figures.1d-sde-compare", {"layout": "compare"}, "at least one of distance"),
    # Names: of other sections, reserved ones, and equal ones.
    (f"{ONE}.problem", "x", "problem: 'x' is not in problems"),
    (f"{ONE}.layout", "m1-11", "layout: 'm1-11' is not in layouts; did you mean 'm1-10'"),
    ("tables.NN.experiments", ["x"], "tables.NN: 'x' is not in experiments"),
    ("evaluations", {}, r"missing \['paper', 'precise', 'validation'\]"),
    ("tables.all", {"layout": "NN", "experiments": ["diffusion1d"]}, "tables"),
    ("tables.All", {"layout": "networks", "experiments": ["diffusion1d"]}, "'All' is reserved"),
    ("tables.nn", {"layout": "networks", "experiments": ["diffusion1d"]}, "differ in capitals"),
]


@pytest.mark.parametrize(("path", "value", "message"), WRONG, ids=[m for *_, m in WRONG])
def test_what_is_wrong_is_refused_by_key(path: str, value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(changed(path, value))


FIXED_BATCHES = BASE["recipes"]["tuned"]["diffusion1d"]["vidon"]["training"] | {
    "protocol": "fixed_batches",
    "batch_size": 2000,
}
FAULTY = [
    (f"{ONE}.N", 30_000, "N = 30000 exceeds the 20000 training pairs"),
    (f"{ONE}.methods", ["other"], "no entry for 'other'"),
    (f"{ONE}.recipe", "tuend", "no entry for 'vidon'; did you mean 'tuned'"),
    ("problems.diffusion1d.test", 100, "sets = 200 exceeds the 100 functions"),
    (f"{VIDON}.training", FIXED_BATCHES, "into 5 batches, fewer than the 10 numbers of sensors"),
    (VIDON, {"ensemble_of": "vidon"}, "is of 'vidon', which is not trained itself"),
    (VIDON, {"law_of": "vidon"}, "is of 'vidon', which is not trained itself"),
]


@pytest.mark.parametrize(("path", "value", "message"), FAULTY, ids=[m for *_, m in FAULTY])
def test_a_case_that_cannot_be_computed_says_why_and_leaves_others_alone(
    path: str, value: object, message: str
) -> None:
    found = study(path, value)
    assert any(message in fault for fault in faults(found, "diffusion1d"))
    assert not faults(found, "poisson2d")


SHOWN = [
    ("tables.1d-pde-error.experiments", ["diffusion1d", "poisson2d"], "is about one problem"),
    ("tables.1d-pde-error.experiments", ["diffusion1d_size"], "varies N or dz"),
    ("tables.scores.experiments", ["diffusion1d_noise"], "has 5 cases, one is shown"),
    ("evaluations.paper.estimator", "none", "compares with reference posteriors"),
    ("figures.1d-sde-compare.errors", "diffusion1d", "has no list of N"),
    ("figures.1d-pde-plot.counts", [99], "99 is not among counts"),
    ("figures.1d-pde-plot.method", "vidn", "'vidn' is not among methods"),
    ("figures.1d-pde-addnoise.noise", [0.4], "0.4 is not among noise"),
    ("figures.calibration.experiments", ["diffusion1d_size"], "has 6 cases"),
]


@pytest.mark.parametrize(("path", "value", "message"), SHOWN, ids=[m for *_, m in SHOWN])
def test_tables_and_figures_refuse_what_they_cannot_show(
    path: str, value: object, message: str
) -> None:
    raw = changed(path, value)
    if path.startswith("evaluations"):
        raw["evaluations"]["paper"]["wasserstein"] = False
    found = Study(load_config(raw))
    kind, name = path.split(".")[:2] if not path.startswith("ev") else ("tables", "1d-pde-error")
    with pytest.raises(ConfigError, match=message):
        if kind == "tables":
            inputs.summaries_of_table(found, name)
        inputs.summaries_of_figure(found, name)
        inputs.panel_files(found, name)


@pytest.mark.parametrize("raw", [None, [], "text", 3, {1: 2}, {"seed": b"1"}])
def test_whatever_the_whole_file_is_only_a_config_error_comes_out(raw: Any) -> None:
    with pytest.raises(ConfigError):
        load_config(raw)


@pytest.mark.parametrize("text", ["- a", "a: [", "a: b: c", "\tx", ""])
def test_a_file_that_is_no_mapping_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"mine\.yaml: "):
        read_config([tmp_path / "mine.yaml"])


def test_every_mistake_is_listed_and_the_source_named() -> None:
    raw = changed("seed", -1) | {"sed": 1}
    with pytest.raises(ConfigError) as caught:
        load_config(raw, "config/mine.yaml")
    lines = str(caught.value).splitlines()
    assert lines[0] == "config/mine.yaml is not valid:" and len(lines) == 3


def test_distances_survive_the_way_to_a_job() -> None:
    layout = load_config(BASE).layouts["apart"]
    spec = json.loads(json.dumps(layout.model_dump(mode="json")))  # keys become text
    assert Layout.model_validate(spec) == layout and layout.distances[2] == 0.8


def test_an_overlay_changes_no_other_place_of_an_alias() -> None:
    merged = merge(BASE, {"figures": {"calibration": {"experiments": ["diffusion1d"]}}})
    assert merged["tables"]["scores"]["experiments"] == BASE["tables"]["scores"]["experiments"]


def test_a_part_of_the_configuration_is_a_valid_one_with_the_same_cases() -> None:
    whole = Study(load_config(BASE))
    part = whole.part(["diffusion1d"], tables=["1d-pde-error"], figures=["1d-pde-plot"])
    found = Study(load_config(json.loads(json.dumps(part))))
    assert list(found.config.tables) == ["1d-pde-error"]
    for mine, theirs in zip(
        found.answers_of("diffusion1d"), whole.answers_of("diffusion1d"), strict=True
    ):
        assert mine[1:] == theirs[1:]
    other = Study(load_config(changed("experiments.poisson2d.methods", ["uqsonet"])))
    assert other.part(["diffusion1d"]) == whole.part(["diffusion1d"])

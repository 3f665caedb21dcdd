"""Publishing merges what a run has into what was published before."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.report.conftest import make_config, summary_of
from uqsonet.errors import DataError
from uqsonet_study import publish as publishing
from uqsonet_study.config import Config, load_config
from uqsonet_study.pipeline import Plan
from uqsonet_study.publish import publish
from uqsonet_study.report.paper import paper_cells
from uqsonet_study.report.scorecard import scorecard


def finished(folder: Path, summary: pd.DataFrame, config: Config) -> Path:
    (folder / "tables").mkdir(parents=True)
    (folder / "tables/all.tex").write_text("x")
    (folder / "config.json").write_text(config.model_dump_json())
    scorecard(summary, config, "code", folder / "scorecard.csv")
    return folder


def test_a_later_run_fills_its_own_cells_and_leaves_the_others(
    summary: pd.DataFrame, config: Config, tmp_path: Path
) -> None:
    first = finished(tmp_path / "first", summary, config)
    out = tmp_path / "published"
    publish(first, out, "a" * 40, "snakemake one")
    one = pd.read_csv(out / "scorecard.csv")
    assert len(set(one["run"].dropna())) == 1
    second = finished(tmp_path / "second", summary, config)
    card = pd.read_csv(second / "scorecard.csv")
    card.loc[card["method"] == "vidon", card.columns[9:]] = float("nan")
    card.loc[card["ours"].notna(), "ours"] += 1
    card.to_csv(second / "scorecard.csv", index=False)
    publish(second, out, "b" * 40, "snakemake two")
    two = pd.read_csv(out / "scorecard.csv")
    ours = two["method"].eq("uqsonet") & one["ours"].notna()
    raised = two.loc[ours, "ours"].to_numpy() - one.loc[ours, "ours"].to_numpy()
    assert np.allclose(raised, 1)
    assert two.loc[two["method"].eq("vidon")].equals(one.loc[one["method"].eq("vidon")])
    runs = json.loads((out / "provenance.json").read_text())["runs"]
    assert sorted(runs) == sorted(set(two["run"].dropna()))
    assert {run["command"] for run in runs.values()} == {"snakemake one", "snakemake two"}


def test_an_earlier_run_stays_as_long_as_a_file_of_its_does(
    summary: pd.DataFrame, config: Config, tmp_path: Path
) -> None:
    """And is replaced altogether by one of the same command."""
    out = tmp_path / "published"
    for name in ("before", "first", "second"):
        run = finished(tmp_path / name, summary, config)
        if name == "before":
            (run / "tables/old.tex").write_text("of an old recipe")
        if name == "first":
            (run / "tables/parts.tex").write_text("of an ablation")
        publish(run, out, name[0] * 40, "y" if name == "second" else "x")
    assert not (out / "tables/old.tex").exists()
    runs = json.loads((out / "provenance.json").read_text())["runs"]
    digests = {run["commit"][0]: run["sha256"] for run in runs.values()}
    assert set(digests["f"]) == {"tables/parts.tex"}
    assert set(digests["s"]) == {"config.json", "tables/all.tex"}


def trained(run: Path, config: Config, case: str, method: str, suffix: str) -> Path:
    """Return where a run keeps the first trial of a method."""
    return run / Path(Plan(config).trained(case, method, suffix)[0]).relative_to(config.results)


def test_weights_that_do_not_fit_are_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = {"problem": "diffusion1d", "sensors": {"counts": [1, 2]}, "methods": ["vidon", "uqsonet"]}
    experiments = {name: one | {"training": 50 + k} for k, name in enumerate("abc")}
    config = make_config(experiments=experiments, tables={})
    run = finished(tmp_path / "run", summary_of(config, tmp_path / "scores"), config)
    out = tmp_path / "out"
    sizes = {"a uqsonet": 10, "a vidon": 20, "b uqsonet": 4000, "b vidon": 3000, "c uqsonet": 9000}
    paths = {name: trained(run, config, *name.split(), "safetensors") for name in sizes}
    for name, size in sizes.items():
        paths[name].parent.mkdir(parents=True)
        paths[name].write_bytes(bytes(size))
    stale = out / paths["c uqsonet"].relative_to(run)
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"of an earlier run")
    small = sum(path.stat().st_size for path in (run / "config.json", run / "tables/all.tex"))
    monkeypatch.setattr(publishing, "LARGE_BYTES", 1000)
    monkeypatch.setattr(publishing, "MOST_BYTES", small + 5000)
    publish(run, out, "a" * 40, "x")
    there = {run / path.relative_to(out) for path in out.glob("train/*/*/*.safetensors")}
    assert there == {paths[name] for name in ("a uqsonet", "a vidon", "b uqsonet")}
    (record,) = json.loads((out / "provenance.json").read_text())["runs"].values()
    left = [str(paths[name].relative_to(run)) for name in ("b vidon", "c uqsonet")]
    assert record["weights_left_out"] == left


def test_weights_to_compare_with_and_trainings_not_asked_for_are_left_out(tmp_path: Path) -> None:
    one = {"problem": "diffusion1d", "sensors": {"counts": [1, 2]}, "methods": ["uqsonet"]}
    experiments = {"e_1": one, "e_2": one | {"recipe": "other", "trials": 2}}
    experiments |= {"e_3": one | {"training": 70}, "e_4": one | {"sweep": {"training": [50, 60]}}}
    config = make_config(experiments=experiments, tables={}, select=["e_1", "e_2", "e_4"])
    run = finished(tmp_path / "run", summary_of(config, tmp_path / "scores"), config)
    for name in config.cases:
        for suffix in ("safetensors", "csv"):
            path = trained(run, config, name, "uqsonet", suffix)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(10))
    publish(run, tmp_path / "out", "a" * 40, "x")
    there = {run / path.relative_to(tmp_path / "out") for path in tmp_path.glob("out/train/*/*/*")}
    asked = [name for name in config.cases if name != "e_3"]
    logs = {trained(run, config, name, "uqsonet", "csv") for name in asked}
    assert there == logs | {trained(run, config, "e_1", "uqsonet", "safetensors")}
    assert trained(run, config, "e_3", "uqsonet", "csv") not in logs


def test_scores_and_logs_of_laws_are_published_without_their_weights(tmp_path: Path) -> None:
    raw = make_config(experiment={"methods": ["uqsonet", "auto"]}, tables={}).model_dump()
    for problems in raw["recipes"].values():
        problems["diffusion1d"]["auto"] = {"law_of": "uqsonet"}
    config = load_config(raw)
    run = finished(tmp_path / "run", summary_of(config, tmp_path / "scores"), config)
    (run / "scores.csv").write_text("problem,law\n")
    plan = Plan(config)
    (log, *_), (weights, *_) = plan.law_logs("e_1", "auto"), plan.weights("e_1", "auto")
    for file in (log, weights):
        path = run / Path(file).relative_to(config.results)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    publish(run, tmp_path / "out", "a" * 40, "x")
    there = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.*")}
    assert {"scores.csv", str(Path(log).relative_to(config.results))} <= there
    assert not any(name.endswith("safetensors") for name in there)


def test_no_finished_run_and_foreign_files_are_refused(
    summary: pd.DataFrame, config: Config, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="no finished run"):
        publish(tmp_path, tmp_path / "out", "a" * 40, "x")
    run = finished(tmp_path / "run", summary, config)
    (tmp_path / "out").mkdir()
    paper_cells().to_csv(tmp_path / "out/scorecard.csv", index=False)
    with pytest.raises(DataError, match="cannot be merged"):
        publish(run, tmp_path / "out", "a" * 40, "x")
    (tmp_path / "out/scorecard.csv").unlink()
    (run / "config.json").rename(tmp_path / "config.json")
    with pytest.raises(DataError, match="not the configuration of a run"):
        publish(run, tmp_path / "out", "a" * 40, "x")
    (tmp_path / "config.json").rename(run / "config.json")
    (tmp_path / "out/provenance.json").write_text("[]")
    with pytest.raises(DataError, match="not the provenance"):
        publish(run, tmp_path / "out", "a" * 40, "x")


def test_a_run_of_all_cells_replaces_the_scorecard_of_an_older_version(
    summary: pd.DataFrame, config: Config, tmp_path: Path
) -> None:
    run, out = finished(tmp_path / "run", summary, config), tmp_path / "out"
    card = pd.read_csv(run / "scorecard.csv").assign(run="code")
    card.to_csv(run / "scorecard.csv", index=False)
    out.mkdir()
    card.drop(columns="precise_regression").to_csv(out / "scorecard.csv", index=False)
    publish(run, out, "a" * 40, "x")
    published = pd.read_csv(out / "scorecard.csv")
    assert [*published] == [*card] and published["run"].str.startswith("a" * 10).all()


def test_every_published_row_names_a_published_run() -> None:
    folder = Path(__file__).parents[2] / "published"
    runs = json.loads((folder / "provenance.json").read_text())["runs"]
    card = pd.read_csv(folder / "scorecard.csv")
    assert set(card["run"].dropna()) == set(runs)
    assert card.loc[card["ours"].notna(), "run"].notna().all()

"""Publishing merges what a run has into what was published before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.report.conftest import keep, make_config, summary_of
from uqsonet.errors import DataError
from uqsonet.files import file_digest
from uqsonet_study.config import Config, load_config
from uqsonet_study.pipeline import Paths
from uqsonet_study.publish import publish
from uqsonet_study.report.scorecard import scorecard


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The scorecard of a run, as a file of results has it."""
    folder, config = tmp_path_factory.mktemp("card"), make_config()
    summary = keep(summary_of(config, folder), folder / "summary.csv")
    scorecard([summary], config, "code", folder / "scorecard.csv")
    return pd.read_csv(folder / "scorecard.csv")


def finished(folder: Path, card: pd.DataFrame, config: Config) -> Path:
    (folder / "tables").mkdir(parents=True)
    (folder / "tables/all.tex").write_text("x")
    (folder / "config.json").write_text(config.model_dump_json())
    card.to_csv(folder / "scorecard.csv", index=False)
    return folder


def published_runs(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "provenance.json").read_text())["runs"]


def test_a_later_run_fills_its_own_cells_and_leaves_the_others(
    card: pd.DataFrame, config: Config, tmp_path: Path
) -> None:
    out = tmp_path / "published"
    publish(finished(tmp_path / "first", card, config), out, "a" * 40, "snakemake one")
    one = pd.read_csv(out / "scorecard.csv")
    assert len(set(one["run"].dropna())) == 1
    later = card.copy()
    later.loc[later["method"] == "vidon", later.columns[9:]] = float("nan")
    later.loc[later["ours"].notna(), "ours"] += 1
    publish(finished(tmp_path / "second", later, config), out, "b" * 40, "snakemake two")
    two = pd.read_csv(out / "scorecard.csv")
    ours = two["method"].eq("uqsonet") & one["ours"].notna()
    raised = two.loc[ours, "ours"].to_numpy() - one.loc[ours, "ours"].to_numpy()
    assert np.allclose(raised, 1)
    assert two.loc[two["method"].eq("vidon")].equals(one.loc[one["method"].eq("vidon")])
    runs = published_runs(out)
    assert sorted(runs) == sorted(set(two["run"].dropna()))
    assert {run["command"] for run in runs.values()} == {"snakemake one", "snakemake two"}


def test_an_earlier_run_stays_as_long_as_a_file_of_its_does(
    card: pd.DataFrame, config: Config, tmp_path: Path
) -> None:
    """And is replaced altogether by one of the same command."""
    out, weights = (
        tmp_path / "published",
        Paths(config).trained(config.cases["e_1"], "vidon", "safetensors"),
    )
    again, once = (str(Path(file).relative_to(config.results)) for file in weights)
    for name in ("before", "first", "second"):
        run = finished(tmp_path / name, card, config)
        if name == "before":
            (run / "tables/old.tex").write_text("of an old recipe")
        if name == "first":
            (run / "tables/parts.tex").write_text("of an ablation")
        for file in (again, once)[: 1 if name == "second" else 2]:
            (run / file).parent.mkdir(parents=True, exist_ok=True)
            (run / file).write_text(name)
        publish(run, out, name[0] * 40, "y" if name == "second" else "x")
    assert not (out / "tables/old.tex").exists()
    of = {run["commit"][0]: run for run in published_runs(out).values()}
    assert set(of["f"]["sha256"]) == {"tables/parts.tex"}
    assert set(of["s"]["sha256"]) == {"config.json"}
    assert set(of["f"]["weights_sha256"]) == {once} and set(of["s"]["weights_sha256"]) == {again}


def test_kept_are_tables_logs_pictures_of_pages_and_the_digests_of_weights(
    card: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trainings that were not asked for are not among them."""
    one = {"problem": "diffusion1d", "sensors": {"counts": [1, 2]}, "methods": ["uqsonet", "auto"]}
    experiments = {"e_1": one, "e_2": one | {"training": 70}}
    raw = make_config(experiments=experiments, tables={}, select=["e_1"]).model_dump()
    for problems in raw["recipes"].values():
        problems["diffusion1d"]["auto"] = {"law_of": "uqsonet"}
    config = load_config(raw)
    paths, run, out = Paths(config), finished(tmp_path / "run", card, config), tmp_path / "out"
    one, two = config.cases["e_1"], config.cases["e_2"]
    weights, law = paths.weights(one, "uqsonet")[0], paths.weights(one, "auto")[0]
    kept = [paths.trained(one, "uqsonet", "csv")[0], paths.laws(one, "auto", "csv")[0]]
    left = [paths.trained(two, "uqsonet", "csv")[0], weights, law]
    kept, left, [weights] = (
        [str(Path(file).relative_to(config.results)) for file in files]
        for files in (kept, left, [weights])
    )
    kept += ["tables/a.csv", "tables/a.tex", "figures/shown.png", "scores.csv"]
    left += ["tables/all.csv", "tables/a.json", "figures/more.png", "figures/shown.pdf"]
    for name in [*kept, *left]:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(name)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/page.md").write_text("![What is\nshown.](../out/figures/shown.png)")
    monkeypatch.chdir(tmp_path)
    publish(run, out, "a" * 40, "x")
    there = {str(path.relative_to(out)) for path in out.rglob("*.*")}
    assert there == {*kept, "config.json", "scorecard.csv", "provenance.json"}
    (record,) = published_runs(out).values()
    assert record["weights_sha256"] == {weights: file_digest(run / weights)}
    assert record["sha256"] == {n: file_digest(out / n) for n in [*kept, "config.json"]}


def test_unfinished_runs_and_foreign_files_are_refused(
    card: pd.DataFrame, config: Config, tmp_path: Path
) -> None:
    """A run of all cells needs no row of the scorecard of an older version."""
    run, out = finished(tmp_path / "run", card, config), tmp_path / "out"

    def refused(folder: Path, why: str) -> None:
        with pytest.raises(DataError, match=why):
            publish(folder, out, "a" * 40, "x")

    refused(tmp_path, "no finished run")
    out.mkdir()
    card.assign(foreign=1).to_csv(out / "scorecard.csv", index=False)
    refused(run, "cannot be merged")
    # An older scorecard lacks a baseline, and no cell.
    card.drop(columns="precise_regression").to_csv(out / "scorecard.csv", index=False)
    publish(finished(tmp_path / "all", card.assign(run="code"), config), out, "a" * 40, "x")
    published = pd.read_csv(out / "scorecard.csv")
    assert [*published] == [*card] and published["run"].str.startswith("a" * 10).all()
    (out / "provenance.json").write_text("[]")
    refused(run, "not the provenance")
    (run / "config.json").unlink()
    refused(run, "not the configuration of a run")


def test_a_run_of_some_problems_leaves_the_scores_and_tables_of_others(
    card: pd.DataFrame, tmp_path: Path
) -> None:
    out = tmp_path / "published"
    one = {"problem": "diffusion1d", "sensors": {"counts": [1, 2]}, "methods": ["uqsonet"]}
    both = {"name": {"layout": "errors", "experiments": ["one", "other"]}}
    config = make_config(experiments={"one": one, "other": one | {"training": 70}}, tables=both)
    name, other = "name", "other"
    first = finished(tmp_path / "first", card, config)
    (first / "scores.csv").write_text("problem,law,crps\na,auto,1\nb,auto,2.50\n")
    (first / f"tables/{name}.csv").write_text("of all\n")
    publish(first, out, "a" * 40, "all")
    some = config.model_copy(update={"select": [other]})
    second = finished(tmp_path / "second", card, some)
    (second / "scores.csv").write_text("problem,law,crps\na,auto,3\n")
    (second / f"tables/{name}.csv").write_text("of some\n")
    publish(second, out, "b" * 40, "some")
    assert (out / "scores.csv").read_text() == "problem,law,crps\nb,auto,2.50\na,auto,3\n"
    assert (out / f"tables/{name}.csv").read_text() == "of all\n"

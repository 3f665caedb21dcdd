"""The table of cases: what an experiment stands for, and which cases share a file."""

from pathlib import Path
from typing import Any

import pytest

from tests.test_config import BASE, ROOT
from uqsonet_study.cases import Study, row_of
from uqsonet_study.loading import load_config, merge, read_config


def study_of(*overlays: Path | dict[str, Any]) -> Study:
    files = [o for o in overlays if isinstance(o, Path)]
    if files:
        return Study(read_config([ROOT / "config.yaml", *files]))
    raw = BASE
    for overlay in overlays:
        raw = merge(raw, overlay)
    return Study(load_config(raw))


@pytest.fixture(scope="module")
def study() -> Study:
    return study_of()


@pytest.fixture(scope="module")
def paper() -> Study:
    return study_of(ROOT / "config/paper.yaml")


def weights(study: Study, case: str, method: str = "uqsonet") -> list[str]:
    found = row_of(study.cases, case)
    return study.weights(found, method, found.trials)


def test_lists_stand_for_cases_named_by_their_values(study: Study, paper: Study) -> None:
    cases = study.cases
    assert list(cases[cases.experiment == "diffusion1d_noise"].noise) == [0.1, 0.3, 0.5, 0.7, 1.0]
    assert cases.loc["diffusion1d_noise-noise0.5"].counts == [3, 7]
    assert cases.loc["diffusion1d_size-n500"].N == 500
    assert cases.loc["poisson2d"].N == 80_000 and cases.loc["diffusion1d"].trials == 5
    names = list(paper.cases[paper.cases.experiment == "diffusion1d_noise"].name)
    assert names[:2] == ["diffusion1d_noise-noise0.1-m3", "diffusion1d_noise-noise0.1-m7"]
    assert len(names) == 10


def test_settings_follow_the_case(study: Study, paper: Study) -> None:
    latent = study.settings(row_of(study.cases, "diffusion1d_latent-dz15"), "uqsonet").network
    assert latent.architecture == "karhunen_loeve" and latent.input_modes == 15
    latent = paper.settings(row_of(paper.cases, "diffusion1d_latent-dz15-m3"), "uqsonet").network
    assert latent.architecture == "attention" and latent.latent_dim == 15
    for pairs, size in ((500, 500), (20_000, 1000)):
        case = row_of(paper.cases, f"diffusion1d_size-n{pairs}-m3")
        assert paper.settings(case, "uqsonet").training.batch_size == size


def test_no_pair_is_seen_more_often_than_max_passes_allow() -> None:
    limits = {"iterations": 1500, "max_passes": 20, "batch_size": 1000, "learning_rate": 1e-3}
    overlay = {
        "problems": {"diffusion1d": {"training": 80_000}},
        "experiments": {"diffusion1d_size": {"N": [500, 10_000, 80_000]}},
        "recipes": {"tuned": {"diffusion1d": {"uqsonet": {"training": limits}}}},
    }
    found = study_of(overlay)
    iterations = [
        found.settings(case, "uqsonet").training.iterations
        for case in found.of(["diffusion1d_size"])
    ]
    assert iterations == [20, 200, 1500]


def test_cases_share_what_is_the_same(study: Study) -> None:
    # One training serves every noise level, and the largest N is no other model than ...
    for noise in ("0.1", "1"):
        assert weights(study, f"diffusion1d_noise-noise{noise}") == weights(study, "diffusion1d")
    assert weights(study, "diffusion1d_size-n10000") == weights(study, "diffusion1d")
    assert weights(study, "poisson2d_noise-noise0.5") == weights(study, "poisson2d")
    # ... but what differs in N or d_z is trained by itself,
    for case in ("diffusion1d_size-n5000", "diffusion1d_latent-dz5"):
        assert not set(weights(study, case)) & set(weights(study, "diffusion1d"))
    # and references differ with the noise and the layout, not with N.
    assert len({case.given for case in study.of(["diffusion1d_size"])}) == 1
    assert len({case.given for case in study.of(["diffusion1d_noise"])}) == 5


def test_members_of_an_ensemble_are_the_trials_of_its_method(study: Study) -> None:
    members = weights(study, "diffusion1d_ensemble", "deep_ensemble")
    assert members == weights(study, "diffusion1d", "vidon") and len(members) == 5
    (row,) = [
        row
        for row in study.answers_of("diffusion1d_ensemble")
        if (row.method, row.evaluation) == ("deep_ensemble", "paper")
    ]
    assert row.weights == members and row.ensemble
    assert row.scores.endswith("m1-10-noise0/tuned/deep_ensemble-N10000.paper.csv")


def test_the_papers_networks_are_trained_for_each_noise_and_count(paper: Study) -> None:
    cases = paper.of(["diffusion1d_noise"])
    assert len({file for case in cases for file in weights(paper, case.name)}) == 5 * 2 * 5
    same = (
        weights(paper, "diffusion1d_size-n10000-m3"),
        weights(paper, "diffusion1d_latent-dz10-m3"),
    )
    assert same[0] == same[1]  # d_z = 10 is the recipe's own


def test_a_training_is_validated_with_its_sensors_or_those_of_the_first_case(
    study: Study, paper: Study
) -> None:
    for row in study.models.itertuples():
        assert row.given == study.first(row.problem).given or row.given in row.model
    (name,) = {Path(f).parent.name for f in weights(paper, "diffusion1d_noise-noise0.5-m3")}
    row = row_of(paper.models, ("diffusion1d", "paper", name))
    assert (row.given, row.noise) == ("m3-noise0.5", 0.5)
    assert name == "uqsonet-N10000-m3-noise0.5"


def test_numbers_of_jobs_are_those_of_the_paper(study: Study, paper: Study) -> None:
    for found, trainings, scores in ((study, 115, 91), (paper, 261, 142)):
        assert (
            len({file for row in found.answers.itertuples() for file in row.weights}) == trainings
        )
        assert len(found.scores) == scores


def test_scores_that_experiments_share_have_the_most_trials() -> None:
    more = {"problem": "diffusion1d", "layout": "m1-10", "N": 10000, "methods": ["uqsonet"]}
    found = study_of({"experiments": {"more": more | {"trials": 7}}})
    path = found.answers_of("more")[1].scores
    assert path in {row.scores for row in found.answers_of("diffusion1d")}
    assert len(row_of(found.scores, path).weights) == 7


def test_one_more_noise_level_changes_no_other_job(study: Study) -> None:
    levels = BASE["experiments"]["diffusion1d_noise"]["noise"]
    other = study_of({"experiments": {"diffusion1d_noise": {"noise": [*levels, 2.0]}}})
    assert set(study.scores.index) < set(other.scores.index)
    for path, row in study.scores.iterrows():
        assert row.equals(other.scores.loc[path])
    parts = [s.part(["poisson2d"], tables=["2d-pde-error"]) for s in (study, other)]
    assert parts[0] == parts[1]


def test_rows_are_plain_values_that_equal_themselves(study: Study) -> None:
    # NaN or numpy scalars in a job's parameters would run it again every time.
    for row in (*study.answers.itertuples(index=False), *study.models.itertuples(index=False)):
        for value in row:
            assert value == value and not type(value).__module__.startswith("numpy")


def test_laws_share_the_training_and_are_named_by_what_they_are_fitted_to() -> None:
    entry = {"auto": {"law_of": "uqsonet"}, "mixture": {"law_of": "uqsonet", "law": "mixture"}}
    overlay = {
        "experiments": {"diffusion1d": {"methods": ["uqsonet", "auto", "mixture"], "trials": 3}},
        "recipes": {"tuned": {"diffusion1d": entry}},
    }
    found = study_of(overlay)
    case = row_of(found.cases, "diffusion1d")
    for method in ("auto", "mixture"):
        folder = f"results/law/diffusion1d/tuned/{method}-N10000-m1-10-noise0"
        assert weights(found, "diffusion1d", method) == [
            f"{folder}/trial{k}.safetensors" for k in range(3)
        ]
        assert found.model(case, method) == found.model(case, "uqsonet")
    row = row_of(found.laws, ("diffusion1d", "tuned", "auto-N10000-m1-10-noise0"))
    assert "uqsonet.laws.mixture" in row.modules and row.layout == "m1-10"
    names = {found.law_name(case, "auto")}
    for change in ({"noise": 0.1}, {"N": 5000}, {"layout": "m3+5"}):
        other = study_of(overlay, {"experiments": {"diffusion1d": change}})
        names.add(other.law_name(row_of(other.cases, "diffusion1d"), "auto"))
    assert len(names) == 4

"""Experiments with sensors of the output: configuration, names of jobs, references, scores."""

from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
import yaml

from uqsonet.errors import ConfigError
from uqsonet.gaussian import condition
from uqsonet.posterior import GaussianPosterior
from uqsonet.problems import get_problem
from uqsonet.reference.files import Reference, load_sets
from uqsonet.storage.files import file_digest
from uqsonet_study.cli import read_config
from uqsonet_study.config import EvaluationConfig, ProblemConfig, SensorsConfig
from uqsonet_study.evaluation import Scored, evaluate
from uqsonet_study.evaluation import job as evaluation_job
from uqsonet_study.layouts import generate_layouts
from uqsonet_study.pipeline import Plan
from uqsonet_study.references import compute_reference, output_std
from uqsonet_study.simulation import simulate

ROOT = Path(__file__).resolve().parents[1]
TOY = get_problem("toy_linear")
PAIRS = [(0, 1), (3, 2)]
KAPPA_NOISE, SHARE = 0.3, 0.1


def read(tmp_path: Path, experiment: dict, **overlay: object) -> Plan:
    path = tmp_path / "overlay.yaml"
    path.write_text(yaml.safe_dump({"experiments": {"either_side": experiment}, **overlay}))
    return Plan(read_config([ROOT / "config.yaml", ROOT / "config/either_side.yaml", path]))


def test_names_of_experiments_without_output_sensors_are_what_they_were():
    plan = Plan(read_config([ROOT / "config.yaml"]))
    case = "diffusion1d_noise-noise0.5"
    assert plan.sensors_job(case).name == "diffusion1d/layouts-f11fb1da"
    assert plan.reference_job(case, "precise").name == "diffusion1d/precise-f3ce1101"
    assert plan.reference_job(case, "paper").name == "diffusion1d/paper-327c2710"
    assert [job.name for job in plan.evaluations(case, "precise")] == [
        "diffusion1d/precise/baselines-557caecc",
        "diffusion1d/precise/uqsonet-103eefe2",
    ]
    parameters = plan.reference_job(case, "paper").parameters
    assert set(parameters) == {"split", "label", "config", "noise_std", "seed"}
    assert set(parameters["config"]) == {"sets", "reference_samples", "wasserstein", "estimator"}


def test_both_targets_and_noises_share_layouts_and_the_published_training():
    plan = Plan(read_config([ROOT / "config.yaml", ROOT / "config/either_side.yaml"]))
    cases = plan.config.cases_of(["either_side", "either_side_input"])
    names = ["either_side-out0.01", "either_side-out0.05"]
    assert [c.name for c in cases] == [*names, *(n.replace("-", "_input-") for n in names)]
    assert len({plan.output_layouts(c.name) for c in cases}) == 1
    assert plan.output_layouts(names[0]) != plan.layouts(names[0])
    assert len({plan.posteriors(c.name, "precise") for c in cases}) == 4
    (weights,) = {w for c in cases for w in plan.weights(c.name, "uqsonet")}
    log = Path(weights.replace("results/either_side", "published")).with_suffix(".csv")
    assert (ROOT / log).exists()
    # Trainings are judged without the output's sensors, by the sets of other experiments.
    validation = plan.reference_job(names[0], "validation")
    assert set(validation.inputs) == {"functions", "sensors"}
    assert "count_pairs" not in validation.parameters
    job = plan.reference_job(names[0], "precise")
    assert job.parameters["count_pairs"] == [(1, 1), (3, 3), (5, 5)]
    assert job.parameters["output_noise"] == 0.01
    assert job.inputs["output_sensors"] == plan.output_layouts(names[0])
    assert (
        plan.job("sensors", plan.output_sensors_job(names[0]).name).parameters["side"] == "output"
    )


def test_either_side_may_have_no_sensors(tmp_path):
    experiment = {
        "sensors": {"counts": [0, 2, 0]},
        "output_sensors": {"counts": [1, 2, 3]},
        "output_noise": 0.05,
    }
    plan = read(tmp_path, experiment, select=["either_side"])
    (case,) = plan.config.cases_of(["either_side"])
    assert case.name == "either_side" and case.counts == [1, 2, 3]


@pytest.mark.parametrize(
    "experiment, message",
    [
        ({"output_sensors": None}, "output_sensors and output_noise belong together"),
        (
            {"output_sensors": None, "output_noise": None, "sensors": {"counts": [0, 3]}},
            r"sensors.counts.0: must be 1 or more without output_sensors, found 0",
        ),
        ({"output_sensors": {"counts": [1, 3]}}, r"\[1, 3, 5\] and output_sensors.counts \[1, 3\]"),
        (
            {"sensors": {"counts": [0, 3, 5]}, "output_sensors": {"counts": [3, 0, 5]}},
            r"must be above 0 and ascend, found \[3, 3, 5\]",
        ),
        ({"output_noise": 0.0}, "output_noise"),
        ({"output_noise": [0.1, 0.1]}, "each output noise level may stand once"),
        ({"one_model_per_count": True}, "one_model_per_count has no meaning with output_sensors"),
        (
            {"estimator": {"precise": "reduced"}},
            "output_sensors need estimator.precise chains or none, found reduced",
        ),
        ({"methods": ["vidon"]}, "output_sensors are for karhunen_loeve"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_key(tmp_path, experiment, message):
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, experiment)


def test_the_input_is_a_target_of_few_estimators(tmp_path):
    with pytest.raises(ConfigError, match=r"target.paper: input needs estimator.paper chains or"):
        read(tmp_path, {"target": {"paper": "input"}})
    with pytest.raises(ValueError, match="target: input needs estimator chains or none"):
        EvaluationConfig(sets=1, reference_samples=2, model_samples=2, target="input")


class Exact:
    """The joint law of the toy, in closed form."""

    fields = TOY.fields

    def condition_jointly(self, inputs, outputs):
        x, y, mask, noise = inputs
        z, u, seen, level = outputs
        assert mask.all() and seen.all()
        rows = torch.cat([TOY.shapes(x[0, :, 0]), TOY.responses(z[0, :, 0])])
        offset = torch.cat([torch.ones_like(y[0]), TOY.responses(z[0, :, 0])[:, 0]])
        noises = torch.cat([torch.full_like(y[0], noise), torch.full_like(u[0], level)])
        law = condition(rows, torch.cat([y[0], u[0]]) - offset, noises, None)

        def side(shapes, first):
            def basis(points):
                return first(points), shapes(points[:, 0])

            return GaussianPosterior(TOY.grid, basis, False, law.mean[None], law.root[None])

        return SimpleNamespace(
            input=side(TOY.shapes, lambda p: torch.ones(len(p)).double()),
            output=side(TOY.responses, lambda p: TOY.responses(p[:, 0])[:, 0]),
            effective_size=torch.tensor([50.0]),
        )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("either_side")
    data = ProblemConfig(training=400, validation=2, test=2, shard=100)
    simulate("toy_linear", data, 3, folder / "functions.h5")
    for side, counts in (("input", [0, 3]), ("output", [1, 2])):
        config = SensorsConfig(counts=counts, pool=10)
        generate_layouts("toy_linear", config, 3, 2, 2, folder / f"{side}.h5", side=side)
    return folder


def reference(files: Path, name: str, target: str = "output", estimator: str = "chains") -> Path:
    config = EvaluationConfig(
        sets=2, reference_samples=800, model_samples=1000, estimator=estimator, target=target
    )
    path = files / f"reference-{name}.h5"
    compute_reference(
        *(files / "functions.h5", files / "input.h5", "test", "precise", config, KAPPA_NOISE, 3),
        path,
        output_sensors=files / "output.h5",
        count_pairs=PAIRS,
        output_noise=SHARE,
    )
    return path


@pytest.fixture(scope="module", params=["output", "input"])
def scored(request, files):
    """A target, and its reference file."""
    return request.param, reference(files, request.param, request.param)


def test_chains_give_the_exact_law_of_either_field(files, scored):
    target, path = scored
    found, _, noise_std = load_sets(path)
    assert isinstance(found, Reference) and noise_std == KAPPA_NOISE
    assert found.output_noise_std == SHARE * output_std(files / "functions.h5")
    assert found.counts.tolist() == [1, 1, 3, 3]
    assert found.observations.counts.tolist() == [0, 0, 3, 3]
    assert found.outputs.counts.tolist() == [1, 1, 2, 2]
    assert (found.r_hat <= 1.01).all() and (found.effective_size >= 800).all()
    assert found.quantiles.shape[:2] == (4, 80) and (found.floor_w1 > 0).all()
    for s in range(4):
        sides = []
        for o, level in (
            (found.observations, noise_std),
            (found.outputs, found.output_noise_std),
        ):
            used = o.mask[s]
            sides.append((o.locations[s : s + 1, used], o.values[s : s + 1, used], used[used]))
            sides[-1] = (*sides[-1], level)
        exact = getattr(Exact().condition_jointly(*sides), target)
        mean, std = exact.mean()[0], exact.std()[0]
        inside = slice(1, -1)
        assert (((found.mean[s] - mean) / std)[inside] * 800**0.5).abs().max() < 4
        assert ((found.std[s] / std - 1)[inside] * 1600**0.5).abs().max() < 4
        assert not torch.equal(found.repeat_mean[s], found.mean[s])


def test_the_same_seed_gives_the_same_bytes(files, scored):
    target, path = scored
    assert file_digest(reference(files, "again", target)) == file_digest(path)


def test_scores_are_those_of_the_target(files, scored, monkeypatch):
    target, path = scored
    monkeypatch.setattr(evaluation_job, "load_trials", lambda _: [(0, Exact())])
    config = EvaluationConfig(
        sets=2, reference_samples=800, model_samples=1000, estimator="chains", target=target
    )
    out = files / f"{target}.csv"
    models = [Scored("baselines"), Scored("uqsonet", [path])]
    evaluate(models, "precise", config, KAPPA_NOISE, 3, files / "functions.h5", path, out)
    rows = pd.read_csv(out)
    baselines = {"sensor_free", "cokriging", "regression"}
    assert set(rows["method"]) == baselines | {"reference", "uqsonet"}
    assert sorted(set(rows["sensors"])) == [1, 3]
    mean = rows.groupby(["method", "metric"])["value"].mean()
    assert mean["uqsonet", "effective_size"] == 50
    assert mean["uqsonet", "err_mean"] < 0.04 < mean["sensor_free", "err_mean"]
    assert mean["uqsonet", "err_std"] < 0.08 < mean["sensor_free", "err_std"]
    for name in ("cokriging", "regression"):  # the toy is linear, and its pairs are few
        assert mean[name, "err_mean"] < 0.5 * mean["sensor_free", "err_mean"]
        assert mean[name, "err_std"] < 0.5 * mean["sensor_free", "err_std"]
    assert mean["uqsonet", "within_90"] == pytest.approx(0.9, abs=0.04)


def test_models_without_a_joint_law_are_refused_by_name(files, scored, monkeypatch):
    target, path = scored
    monkeypatch.setattr(
        evaluation_job, "load_trials", lambda _: [(0, SimpleNamespace(fields=TOY.fields))]
    )
    config = EvaluationConfig(
        sets=2, reference_samples=800, model_samples=9, estimator="chains", target=target
    )
    source = files / "functions.h5", path, files / "none.csv"
    with pytest.raises(ConfigError, match="method 'vidon' has no joint law"):
        evaluate([Scored("vidon", [path])], "precise", config, KAPPA_NOISE, 3, *source)


def test_sets_alone_are_stored_with_both_sides(files):
    found, _, _ = load_sets(reference(files, "alone", estimator="none"))
    assert not isinstance(found, Reference) and found.counts.tolist() == [1, 1, 3, 3]


def test_other_estimators_know_no_sensors_of_the_output(files):
    with pytest.raises(ConfigError, match=r"estimator is monte_carlo, which knows no sensors of"):
        reference(files, "plain", estimator="monte_carlo")

"""Experiments with sensors of the output: configuration, names of jobs, references, scores."""

from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
import yaml

from uqsonet.errors import ConfigError
from uqsonet.files import file_digest
from uqsonet.gauss.gaussian import condition
from uqsonet.gauss.posterior import GaussianPosterior
from uqsonet_study.cli import read_config
from uqsonet_study.config import EvaluationConfig, ProblemConfig, SensorsConfig
from uqsonet_study.evaluation import evaluate
from uqsonet_study.evaluation import job as evaluation_job
from uqsonet_study.layouts import generate_layouts
from uqsonet_study.pipeline import Plan
from uqsonet_study.problems import get_problem
from uqsonet_study.reference.files import Reference, load_sets
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


def test_both_targets_and_noises_share_layouts_and_the_published_training():
    plan = Plan(read_config([ROOT / "config.yaml", ROOT / "config/either_side.yaml"]))
    cases, paths = plan.config.cases_of(["either_side", "either_side_input"]), plan.paths
    names = ["either_side-out0.01", "either_side-out0.05"]
    assert [c.name for c in cases] == [*names, *(n.replace("-", "_input-") for n in names)]
    assert {paths.output_layouts(case) for case in cases} != {paths.layouts(cases[0])}
    assert len({paths.output_layouts(case) for case in cases}) == 1
    assert len({paths.reference(case, "precise") for case in cases}) == 4
    (weights,) = {w for case in cases for w in paths.weights(case, "uqsonet")}
    assert weights.endswith("train/diffusion1d/tuned/uqsonet-N10000/trial0.safetensors")
    # Trainings are judged without the output's sensors, by the sets of other experiments.
    _, told = plan.made[paths.reference(cases[0], "validation")]
    assert "count_pairs" not in told
    _, told = plan.made[paths.reference(cases[0], "precise")]
    assert told["count_pairs"] == [(1, 1), (3, 3), (5, 5)] and told["output_noise"] == 0.01
    assert Path(str(paths.output_layouts(cases[0]))).name.startswith("output-")


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
        ({"target": {"paper": "input"}}, "target.paper: input needs estimator.paper chains or"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_key(tmp_path, experiment, message):
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, experiment)


def test_either_side_may_have_no_sensors(tmp_path):
    counts = {"sensors": {"counts": [0, 2, 0]}, "output_sensors": {"counts": [1, 2, 3]}}
    plan = read(tmp_path, counts | {"output_noise": 0.05}, select=["either_side"])
    (case,) = plan.config.cases_of(["either_side"])
    assert case.name == "either_side" and case.counts == [1, 2, 3]
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


def config_of(target: str = "output", estimator: str = "chains") -> EvaluationConfig:
    sizes = {"sets": 2, "reference_samples": 800, "model_samples": 1000}
    return EvaluationConfig(**sizes, estimator=estimator, target=target)


def reference(files: Path, name: str, config: EvaluationConfig) -> Path:
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
    return request.param, reference(files, request.param, config_of(request.param))


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
        for o, level in ((found.observations, noise_std), (found.outputs, found.output_noise_std)):
            used = o.mask[s]
            read = o.locations[s : s + 1, used], o.values[s : s + 1, used]
            sides.append((*read, used[used], level))
        exact = getattr(Exact().condition_jointly(*sides), target)
        mean, std = exact.mean()[0], exact.std()[0]
        inside = slice(1, -1)
        assert (((found.mean[s] - mean) / std)[inside] * 800**0.5).abs().max() < 4
        assert ((found.std[s] / std - 1)[inside] * 1600**0.5).abs().max() < 4
        assert not torch.equal(found.repeat_mean[s], found.mean[s])
    again = reference(files, "again", config_of(target))
    assert file_digest(again) == file_digest(path)


def test_scores_are_those_of_the_target(files, scored, monkeypatch):
    target, path = scored
    monkeypatch.setattr(evaluation_job, "is_exact", lambda _: False)
    monkeypatch.setattr(evaluation_job, "load_trials", lambda _: [(0, Exact())])
    config = config_of(target)
    out = files / f"{target}.csv"
    tables = []
    for method, weights in (("baselines", []), ("uqsonet", [path])):
        source = KAPPA_NOISE, 3, files / "functions.h5", path
        evaluate(method, "precise", config, *source, out, weights=weights)
        tables.append(pd.read_csv(out))
    rows = pd.concat(tables)
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


def test_what_has_no_joint_law_is_refused_by_name(files, scored, monkeypatch):
    target, path = scored
    other = SimpleNamespace(fields=TOY.fields)
    monkeypatch.setattr(evaluation_job, "is_exact", lambda _: False)
    monkeypatch.setattr(evaluation_job, "load_trials", lambda _: [(0, other)])
    source = KAPPA_NOISE, 3, files / "functions.h5", path, files / "none.csv"
    with pytest.raises(ConfigError, match="method 'vidon' has no joint law"):
        evaluate("vidon", "precise", config_of(target), *source, weights=[path])
    with pytest.raises(ConfigError, match=r"estimator is monte_carlo, which knows no sensors of"):
        reference(files, "plain", config_of(estimator="monte_carlo"))


def test_sets_alone_are_stored_with_both_sides(files):
    found, _, _ = load_sets(reference(files, "alone", config_of(estimator="none")))
    assert not isinstance(found, Reference) and found.counts.tolist() == [1, 1, 3, 3]

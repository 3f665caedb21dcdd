"""What `benchmarks.mechanism` measures, where the answer is known."""

import math

import pytest
import torch

from benchmarks import mechanism
from benchmarks.rows import read
from tests.training.test_loop import ATTENTION
from uqsonet.operator.build import build_model
from uqsonet.operator.file import write_weights
from uqsonet_study.problems import get_problem


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for name, value in {"FIT": 300, "HELD": 100, "FEATURES": 40, "CROSSED": 50}.items():
        monkeypatch.setattr(mechanism, name, value)
    yield
    mechanism.pairs_of.cache_clear()
    mechanism.sensors_of.cache_clear()


def build(problem):
    torch.manual_seed(0)
    return build_model("uqsonet", get_problem(problem).fields, ATTENTION, 0.0)


def normals(*shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(
    ("ignored", "used", "same", "zero"),
    [("h", "z", "share_wrong_h", "h_at_zero"), ("z", "h", "share_prior", "z_at_mean")],
)
def test_what_the_branch_ignores_explains_nothing(ignored, used, same, zero):
    model, m = build("diffusion1d"), 4
    with torch.no_grad():
        first = model.branch.layers[0].weight
        first[:, : model.embedding.outputs] *= ignored == "z"
        first[:, model.embedding.outputs :] *= ignored == "h"
        model.embedding.score.weights[-1].zero_()
    given = mechanism.sensors_of("diffusion1d", None, None, m, 0.0)
    found = mechanism.measure(model, mechanism.pairs_of("diffusion1d", None), *given)
    assert found["attended"] == pytest.approx(m)
    assert found[f"effect_{used}"] == pytest.approx(1)
    nothing = [found["effect_both"], found[f"effect_{ignored}"], found[zero]]
    assert nothing == pytest.approx([0, 0, 0], abs=1e-12)
    assert found[same] == pytest.approx(found["share_encoder"], rel=1e-12)


def test_information_of_a_gaussian_pair():
    """c = 2 h + e, two of them: correlation^2 4/5, so I = 2 * 1/2 log 5."""
    h, fit = normals(20_000, 2), 10_000
    c = 2 * h + normals(20_000, 2, seed=2)
    errors = c[fit:] - mechanism.regressed([h], c, fit)
    assert mechanism.information(c[fit:], errors) == pytest.approx(math.log(5), rel=0.03)
    assert mechanism.share(c[fit:], c[fit:] - errors) == pytest.approx(0.8, abs=0.01)


def test_features_find_what_a_line_cannot():
    h, fit = normals(4000, 2), 3000
    c = h[:, :1] ** 2 + h[:, 1:]
    linear = mechanism.regressed([h], c, fit)
    curved = mechanism.regressed(mechanism.features(h, torch.Generator().manual_seed(0)), c, fit)
    assert mechanism.share(c[fit:], linear) == pytest.approx(1 / 3, abs=0.1)
    assert mechanism.share(c[fit:], curved) > 0.98


def test_effects_of_a_known_function():
    """h + 2 z + 3 h z of independent normals has variances 1, 4 and 9."""
    h, z = normals(2000, 1)[:1000, None], normals(2000, 1)[1000:]
    found = mechanism.effects(h + 2 * z + 3 * h * z)
    assert [found[k] for k in ("h", "z", "both")] == pytest.approx([1, 4, 9], rel=0.2)


def test_files_of_a_study_give_rows(toy_files, tmp_path, monkeypatch):
    for name, value in {"COUNTS": (1, 4), "MODES": 2, "FEW": 2}.items():  # the toy has two modes
        monkeypatch.setattr(mechanism, name, value)
    model, weights, out = build("toy_linear"), tmp_path / "a.safetensors", tmp_path / "rows.csv"
    tensors = {f"parameter/{k}": torch.stack([v, v]) for k, v in model.named_parameters()}
    tensors |= {f"buffer/{k}": getattr(model, k) for k in ("input_mean", "input_std")}
    meta = {"method": "uqsonet", "fields": model.fields.as_dict(), "noise_std": toy_files.noise_std}
    meta |= {"config": {"network": ATTENTION.model_dump(mode="json")}, "trials": [0, 3]}
    write_weights(weights, tensors, meta)
    mechanism.main([f"made={weights}"], out, toy_files.functions, toy_files.sensors)
    rows = read(out)
    assert [(r["trial"], r["sensors"]) for r in rows] == [(t, m) for t in "03" for m in "14"]
    assert 0 < float(rows[0]["share_cokriging"]) < float(rows[1]["share_cokriging"]) < 1
    assert all(math.isfinite(float(v)) for row in rows for k, v in row.items() if k != "recipe")

"""The comparison with published figures: pairs, scores, choices, the table and its files.

Below: a network that corrects the linear answer where an input has two values.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from uqsonet.errors import ConfigError, DataError, ObservationError
from uqsonet.operator.file import write_weights
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.runs.functions import Functions
from uqsonet_study import benchmark
from uqsonet_study.benchmark import (
    chosen,
    conditioned,
    drawn,
    fitted,
    fitted_with_symmetries,
    learned,
    places,
    score,
    wrong_share,
)
from uqsonet_study.cli import read_config
from uqsonet_study.config import BenchmarkConfig, CorrectionConfig
from uqsonet_study.correction import (
    Corrected,
    Correction,
    LinearMeans,
    fit_correction,
    second_differences,
)
from uqsonet_study.kernel_branch import fit_kernel_branch
from uqsonet_study.linearised import condition_linearised
from uqsonet_study.pipeline import Plan
from uqsonet_study.problems import get_problem
from uqsonet_study.problems.darcy64 import Darcy64
from uqsonet_study.problems.navier_stokes128 import NavierStokes128
from uqsonet_study.problems.poisson128 import Poisson128
from uqsonet_study.report.benchmark import COLUMNS, as_latex, as_markdown, joined
from uqsonet_study.shift_kernel import SHIFTS, Frequencies, ShiftKernel

ROOT = Path(__file__).resolve().parents[1]
FILES = [ROOT / "config.yaml", ROOT / "config/benchmark.yaml"]


class Small(Poisson128):
    """The published Poisson problem on few points."""

    name = "small"
    points = 16


class Bent(Small):
    """The same, where u gets a part of f squared."""

    name = "bent"

    def solve(self, kappa, unobserved=None):
        return super().solve(kappa + kappa.square())


class SmallFlow(NavierStokes128):
    """The published flow on few points."""

    name = "small_flow"
    points = 32


SMALL, FLOW = Small(), SmallFlow()
CONFIG = BenchmarkConfig.model_validate(
    {
        "sensors": 40,
        "functions": 6,
        "samples": 8,
        "published": "none.csv",
        "problems": {"poisson": {"problem": "small", "pairs": [400], "modes": 120, "exact": True}},
    }
)


@pytest.fixture(scope="module")
def scores() -> pd.DataFrame:
    """Exact answers, and those that are learned from 400 pairs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benchmark, "get_problem", lambda name: SMALL)
        parts = [benchmark.benchmark("poisson", CONFIG, pairs, 1) for pairs in (0, 400)]
    return pd.concat(parts)


@pytest.fixture(scope="module")
def flow_pairs() -> tuple[Functions, Functions]:
    """Training pairs of the flow, and others."""
    return drawn(FLOW, 1, "training", 90), drawn(FLOW, 1, "validation", 40)


def test_a_larger_set_of_pairs_begins_with_a_smaller_one():
    few, more = drawn(SMALL, 3, "training", 30), drawn(SMALL, 3, "training", 600)
    assert torch.equal(few.kappa, more.kappa[:30]) and torch.equal(few.u, more.u[:30])
    assert not torch.equal(few.kappa, drawn(SMALL, 3, "test", 30).kappa)
    assert not torch.equal(more.kappa[:30], more.kappa[500:530])


def test_sensors_are_apart_and_those_of_both_are_halved():
    index = places(SMALL, 3, "test", 0, 40)
    assert len(set(index.tolist())) == 40
    assert not torch.equal(index, places(SMALL, 3, "test", 1, 40))
    both = chosen("both", index)
    assert torch.equal(torch.cat([both["input"], both["output"]]), index)
    assert len(both["input"]) == 20
    assert len(chosen("forward", index)["output"]) == 0 == len(chosen("inverse", index)["input"])


def test_errors_are_relative_and_of_the_side_that_is_asked_for():
    truths = drawn(SMALL, 3, "test", 4)
    places_of = [places(SMALL, 1, "test", i, 40) for i in range(4)]

    class Off:
        """Means 10 % too large, samples that are zero."""

        def __init__(self, values):
            seen = (truths.u[i, index].double() for i, index in enumerate(places_of))
            (self.at,) = [i for i, own in enumerate(seen) if torch.equal(values, own)]

        def mean(self, side):
            return 1.1 * {"input": truths.kappa, "output": truths.u}[side][self.at].double()

        def sample(self, side, size, seed):
            return torch.zeros(size, SMALL.grid.size)

    found = score(lambda where, values: Off(values["output"]), SMALL, truths, "inverse", CONFIG, 1)
    assert found["target"].tolist() == ["input"] * 4
    np.testing.assert_allclose(found["err_mean"], 10, rtol=1e-5)
    np.testing.assert_allclose(found["err_sample"], 100, rtol=1e-5)


def test_four_hundred_pairs_come_near_the_exact_answer(scores):
    assert scores.columns.tolist() == COLUMNS
    assert set(scores["method"]) == {"exact", "ours", "regression"}
    assert scores["direction"].tolist() == ["forward", "inverse", "both", "both"] * 3
    for (_, target), part in scores.groupby(["direction", "target"]):
        exact, ours = (part[part["method"] == m]["err_mean"].item() for m in ("exact", "ours"))
        assert 0.9 * exact < ours < 1.5 * exact, target
    # A sample is the mean and a deviation as large as the mean's own.
    exact = scores[scores["method"] == "exact"]
    ratio = exact["err_sample"] / exact["err_mean"]
    assert ((ratio > 1.15) & (ratio < 1.65)).all()


def test_a_kernel_learns_what_a_linear_operator_leaves_over():
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(700, 5, generator=generator)
    left = torch.stack([a[:, 0] * a[:, 1], a[:, 2].square() - 1], 1)
    held = a[600:], left[600:]
    found = fit_kernel_branch(a[:500], left[:500], held, torch.ones(5))
    off = found(a[500:600]) - left[500:600]
    assert off.square().mean() < 0.03 * left.square().mean()
    at = a[500].double()
    slope = torch.autograd.functional.jacobian(found, at)
    torch.testing.assert_close(found.slope(at), slope, rtol=1e-4, atol=1e-4)


def test_linearised_answers_are_the_closed_form_where_the_operator_is_linear():
    pairs, held = drawn(SMALL, 1, "training", 400), drawn(SMALL, 1, "validation", 100)
    model = fitted(pairs, 60, held)
    points, index = SMALL.grid.points(), places(SMALL, 1, "test", 0, 40)
    truth = drawn(SMALL, 1, "test", 1)
    seen = points[index[:20]][None], truth.kappa[:, index[:20]], None, 0.0
    read = points[index[20:]][None], truth.u[:, index[20:]], None, 0.0
    for inputs in (seen, (torch.zeros(1, 0, 2), torch.zeros(1, 0), None, None)):
        ways = condition_linearised, KarhunenLoeveModel.condition_jointly
        one, other = (way(model, inputs, read) for way in ways)
        for side in ("input", "output"):
            torch.testing.assert_close(getattr(one, side).mean(), getattr(other, side).mean())
            torch.testing.assert_close(getattr(one, side).std(), getattr(other, side).std())
        torch.testing.assert_close(one.tail, other.tail)
    several = tuple(torch.cat([part, part]) for part in read[:2])
    with pytest.raises(ObservationError, match="2 sets"):
        condition_linearised(
            model, (torch.zeros(2, 0, 2), torch.zeros(2, 0), None, None), (*several, None, 0.0)
        )


def test_a_bent_operator_is_met_by_its_kernel():
    """With the kernel its sensors say more about f."""
    bent = Bent()
    pairs, held = drawn(bent, 1, "training", 1500), drawn(bent, 1, "validation", 300)
    test = drawn(bent, 1, "test", 8)
    errors = [
        score(conditioned(bent, fitted(pairs, 60, held, kernel)), bent, test, "inverse", CONFIG, 1)
        for kernel in (0, 1000)
    ]
    linear, kernel = (np.mean(found["err_mean"]) for found in errors)
    assert kernel < 0.8 * linear


def test_exact_outputs_are_solved_where_the_operator_is_not_linear():
    bent, where = Bent(), {"input": torch.arange(0, 256, 9), "output": torch.zeros(0).long()}
    bent.affine = None
    kappa, u = bent.sample(np.random.default_rng(0), 1)
    answer = benchmark.exact(bent)(
        where, {"input": kappa[0, where["input"]], "output": kappa[0, :0]}
    )
    drawn_u = answer.sample("output", 400, 1)
    torch.testing.assert_close(drawn_u, bent.solve(answer.sample("input", 400, 1)))
    assert (answer.mean("output") - u[0]).norm() < 0.5 * u[0].norm()
    with pytest.raises(ConfigError, match="bent: no posterior in closed form"):
        benchmark.exact(bent)(
            {"input": where["output"], "output": where["input"]},
            {"input": u[0, :0], "output": u[0, where["input"]]},
        )


def test_exact_outputs_of_a_medium_of_two_values_are_solved_from_media_that_fit_the_sensors():
    darcy = get_problem("darcy64")
    kappa, u = darcy.sample(np.random.default_rng(0), 1)
    index = torch.arange(0, 4096, 41)
    values = {"input": kappa[0, index], "output": u[0, :0]}
    answer = benchmark.exact(darcy)({"input": index, "output": index[:0]}, values)
    mean, drawn_u = answer.mean("output"), answer.sample("output", 32, 1)
    assert (mean - u[0]).norm() < 0.1 * u[0].norm()
    spread = (drawn_u - drawn_u.mean(0)).norm(dim=1).mean()
    assert 0.3 < spread / (drawn_u - u[0]).norm(dim=1).mean() < 1.5


def test_images_of_pairs_of_the_flow_are_pairs():
    flow = get_problem("navier_stokes128")
    kappa, u = flow.sample(np.random.default_rng(0), 1)
    images = flow.images(kappa, 5)
    assert torch.equal(images[:1], kappa) and not torch.allclose(images[0], images[1])
    torch.testing.assert_close(flow.solve(images), flow.images(u, 5), rtol=0, atol=1e-5)
    with pytest.raises(ConfigError, match="small: no images of its pairs are known, found 2"):
        SMALL.images(kappa, 2)


def test_circulant_blocks_are_the_regression_on_all_shifts(flow_pairs):
    """Its equations, written out for each shift of each pair, have the same solution."""
    few, held = flow_pairs
    bases = fitted(few, 100, held).bases
    shifts = ShiftKernel.of(bases, FLOW.grid.shape, FLOW.shifts)
    of = shifts.frequencies
    z = of.of_fields(few.kappa[:5], FLOW.grid.shape) * shifts.sizes
    u = of.of_fields(few.u[:5], FLOW.grid.shape)
    branch = shifts._fitted(z, u, 2.0, (1e-6,))[1e-6]

    every = [torch.cat([of.shifted(part, s) for s in range(SHIFTS)]) for part in (z, u)]
    real = torch.cat([every[0].real, every[0].imag], 1)
    kernel = torch.exp(real @ real.T / 2)
    kernel.diagonal().add_(1e-6 * float(kernel.diagonal().mean()))
    weights = torch.linalg.solve(kernel.to(u.dtype), every[1])
    a = bases.coefficients_of(held.kappa[:3])
    fields = bases.input_mean + a.double() @ bases.input_factor.double().T
    at = of.of_fields(fields, FLOW.grid.shape) * shifts.sizes
    near = torch.exp(torch.cat([at.real, at.imag], 1) @ real.T / 2).to(u.dtype)
    projection = bases.output_projection().double() / bases.output_scale.double()
    modes = ((near @ weights) @ of.to_modes(projection, FLOW.grid.shape)).real
    torch.testing.assert_close(
        branch(a.double()), modes - bases.output_mean @ projection, rtol=1e-6, atol=1e-8
    )


def test_fourier_coefficients_are_shifted_as_fields_are():
    fields = torch.randn(3, 1024, generator=torch.Generator().manual_seed(0))
    of, shape = Frequencies.of(4, (1, -1)), FLOW.grid.shape
    rolled = fields.unflatten(1, shape).roll((6, -6), (1, 2)).flatten(1)
    torch.testing.assert_close(
        of.shifted(of.of_fields(fields, shape), 3), of.of_fields(rolled, shape), rtol=0, atol=1e-12
    )
    assert len(of.turns) == 41 and int(of.turns.max()) == SHIFTS // 2


def test_an_operator_that_knows_symmetries_learns_from_few_pairs(flow_pairs):
    few, held = flow_pairs
    off = []
    for model in (
        fitted(few, 100, held, 60),
        fitted_with_symmetries(FLOW, few, 100, held, 60),
    ):
        at = model.targets(held)
        left = model.branch(at["a"]) - at["c"]
        off.append(float(left.detach().square().sum() / at["c"].square().sum()) ** 0.5)
    assert off[1] < 0.3 * off[0]


def test_the_table_joins_measured_and_published_figures(scores, tmp_path):
    published = ROOT / "config/benchmark.csv"
    scores.to_csv(tmp_path / "scores.csv", index=False)
    table = joined([tmp_path / "scores.csv"], published)
    assert table.columns.tolist() == COLUMNS
    first = table[(table["problem"] == "poisson") & (table["direction"] == "inverse")]
    assert first["method"].tolist()[:2] == ["exact", "ours"]
    assert set(table["method"]) >= {"DiffusionPDE", "FunDPS", "DDIS", "DDIS 1 %", "FNO"}
    assert not table["target"].isna().any()
    tex, text = as_latex(table), as_markdown(table)
    assert r"\toprule" in tex and "20.47" in tex and r"DDIS 1 \%" in tex
    assert "| FunDPS | 50,000 |" in text
    wrong = tmp_path / "wrong.csv"
    for content, message in (
        (
            "problem,direction,method,err_sample\nwaves,forward,ours,1\n",
            "'waves' is unknown; there",
        ),
        ("problem,direction\n", "no column method"),
    ):
        wrong.write_text(content)
        with pytest.raises(DataError, match=message):
            joined([wrong], published)


def test_jobs_of_other_configurations_do_not_know_the_benchmark():
    config = read_config([ROOT / "config.yaml"])
    assert "benchmark" not in config.model_dump()
    plan = Plan(read_config(FILES))
    assert "benchmark" not in plan.part()
    assert plan.benchmark("poisson")["sensors"] == 500
    # An operator that was trained with as many pairs is an input of the job.
    assert len(plan.benchmark_weights("darcy", 10000)) == 1
    assert plan.benchmark_weights("darcy", 4000) == plan.benchmark_weights("poisson", 500) == []


def test_a_trained_operator_answers_where_held_out_errors_say_so(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "get_problem", lambda name: SMALL)
    pairs = drawn(SMALL, 9, "training", 3500)
    first, others = pairs.kappa[:3000], pairs.u[:3000]
    train = Functions(SMALL.fields, "training", first, others)
    held = Functions(SMALL.fields, "validation", pairs.kappa[3000:], pairs.u[3000:])
    network = fitted(train, 120, held)
    path, state = tmp_path / "operator.safetensors", network.state_dict()
    told = {"network": network.config.model_dump(), "training": {"iterations": 1}}
    meta = {"method": "uqsonet", "fields": SMALL.fields.as_dict(), "config": told}
    tensors = {f"buffer/{key}": value for key, value in state.items()}
    write_weights(path, tensors, meta | {"noise_std": 0.0, "trials": [0]})

    few = CONFIG.model_dump() | {"functions": 3}
    few["problems"]["poisson"] |= {"pairs": [60], "directions": ["forward"], "modes": 20}
    config = BenchmarkConfig.model_validate(few)
    errors = {}
    for what, weights in (("operator", [path]), ("alone", [])):
        found = benchmark.benchmark("poisson", config, 60, 1, *weights)
        errors[what] = found[found["method"] == "ours"]["err_mean"].item()
    assert errors["operator"] < 0.8 * errors["alone"]
    test = drawn(SMALL, 1, "test", 3)
    found = score(learned(SMALL, path), SMALL, test, "forward", config, 1)
    assert errors["operator"] == pytest.approx(found["err_mean"].mean())
    with pytest.raises(DataError, match="not an operator of diffusion1d"):
        learned(get_problem("diffusion1d"), path)


def test_the_error_of_an_input_of_two_values_is_the_share_of_wrong_points():
    true = torch.tensor([3.0, 12.0, 12.0, 3.0]).double()
    found = torch.tensor([[3.1, 7.6, 12.0, 3.0], [8.0, 7.0, 12.0, 3.0]]).double()
    assert wrong_share(found, true).tolist() == [0.0, 0.5]


class Coarse(Darcy64):
    """The medium of two values on few points."""

    name = "coarse"
    points = 16


COARSE = Coarse()
SENSORS = 60
ONCE = CorrectionConfig(iterations=400, symmetries="square")


def layout(split):
    return lambda index: places(COARSE, 1, split, index, SENSORS)


@pytest.fixture(scope="module")
def pair():
    train, held = drawn(COARSE, 1, "training", 1200), drawn(COARSE, 1, "validation", 100)
    law = fitted(train, 150, held)
    layouts = layout("training"), layout("validation")
    return law, fit_correction(law, train, held, layouts, ONCE, 1)


def test_linear_means_are_those_of_the_joint_law(pair):
    law, _ = pair
    truth, index = drawn(COARSE, 1, "test", 3), torch.stack([layout("test")(i) for i in range(3)])
    means = LinearMeans(law, COARSE.grid)(index, truth.u.gather(1, index))
    for i in range(3):
        where = {"input": index[0][:0], "output": index[i]}
        values = {"input": truth.kappa[i][:0], "output": truth.u[i][index[i]]}
        answer = conditioned(COARSE, law)(where, values)
        for found, side in zip(means[i], ("input", "output"), strict=True):
            expected = answer.mean(side).float()
            off = 1e-3 * float(expected.std())
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=off)


def test_the_correction_has_fewer_wrong_points_than_the_linear_law(pair):
    law, correction = pair
    test = drawn(COARSE, 1, "test", 40)
    config = CONFIG.model_copy(update={"sensors": SENSORS, "functions": 40, "samples": 16})
    wrong = {}
    for name, answers in (("law", conditioned(COARSE, law)), ("correction", correction)):
        found = score(answers, COARSE, test, "inverse", config, 1)
        wrong[name] = found[["err_mean", "err_sample"]].mean()
    assert wrong["correction"]["err_mean"] < 0.8 * wrong["law"]["err_mean"]
    assert wrong["correction"]["err_mean"] < wrong["correction"]["err_sample"]


def test_probabilities_hold(pair):
    """Of the points with a probability near p a share of p has the higher value."""
    _, correction = pair
    test = drawn(COARSE, 1, "test", 200)
    index = torch.stack([layout("test")(i) for i in range(200)])
    p = correction.probability(index, test.u.gather(1, index))
    for low, high in ((0.05, 0.3), (0.3, 0.7), (0.7, 0.95)):
        some = (p > low) & (p < high)
        assert some.sum() > 200
        share = (test.kappa[some] > 7.5).float().mean()
        assert abs(float(share - p[some].mean())) < 0.08


def test_samples_have_the_probabilities_and_hang_together():
    p = torch.linspace(0.1, 0.9, COARSE.grid.size).double()
    rough, smooth = (Corrected(p, COARSE.grid, (3.0, 12.0), length) for length in (0.01, 0.3))
    torch.testing.assert_close(rough.mean("input"), 3 + 9 * p)
    for law in (rough, smooth):
        draws = law.sample("input", 4000, 1)
        assert draws.unique().tolist() == [3.0, 12.0]
        torch.testing.assert_close((draws > 7.5).double().mean(0), p, rtol=0, atol=0.04)
    changes = [
        (law.sample("input", 200, 1).reshape(-1, 16, 16).diff(dim=2) != 0).double().mean()
        for law in (rough, smooth)
    ]
    assert changes[1] < 0.5 * changes[0]


def test_the_same_seed_trains_the_same_network(pair):
    law, _ = pair
    train, held = drawn(COARSE, 1, "training", 100), drawn(COARSE, 1, "validation", 40)
    layouts, few = (layout("training"), layout("validation")), CorrectionConfig(iterations=3)

    def weights(seed):
        torch.randn(seed)  # whatever was drawn before
        found: Correction = fit_correction(law, train, held, layouts, few, 5)
        return torch.cat([one.detach().flatten() for one in found.network.parameters()])

    assert torch.equal(weights(1), weights(2))


def test_second_differences_are_exact_for_squares():
    x = torch.arange(6.0)
    u = (x[:, None] ** 2 + 3 * x**2)[None]
    torch.testing.assert_close(second_differences(u), torch.full_like(u, 8.0))


def test_what_it_is_not_for_is_refused(pair):
    law, correction = pair
    index = layout("test")(0)
    where = {"input": index[:3], "output": index[3:]}
    values = {side: torch.zeros(len(at)) for side, at in where.items()}
    with pytest.raises(DataError, match="3 sensors of the input; none is allowed"):
        correction(where, values)
    train = drawn(COARSE, 1, "training", 50)
    more = Functions(COARSE.fields, "training", train.kappa + torch.arange(50.0)[:, None], train.u)
    with pytest.raises(DataError, match="a correction is for two"):
        fit_correction(law, more, train, (layout("training"), layout("validation")), ONCE, 1)

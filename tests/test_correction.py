"""An input of two values from sensors of the output: a network corrects the linear answer."""

import pytest
import torch

from uqsonet.data import Functions
from uqsonet.errors import DataError
from uqsonet.problems.darcy64 import Darcy64
from uqsonet_study.benchmark import Conditioned, drawn, fitted, places, score
from uqsonet_study.config import BenchmarkConfig, CorrectionConfig
from uqsonet_study.correction import (
    Corrected,
    Correction,
    LinearMeans,
    fit_correction,
    second_differences,
)


class Coarse(Darcy64):
    """The medium of two values on few points."""

    name = "coarse"
    points = 16


COARSE = Coarse()
SENSORS = 60
CONFIG = BenchmarkConfig.model_validate(
    {
        "sensors": SENSORS,
        "functions": 40,
        "samples": 16,
        "published": "none.csv",
        "problems": {"darcy": {"problem": "coarse", "pairs": [1200]}},
    }
)
ONCE = CorrectionConfig(iterations=400, symmetries="square")


def layout(split):
    return lambda index: places(COARSE, 1, split, index, SENSORS)


@pytest.fixture(scope="module")
def learned():
    train, held = drawn(COARSE, 1, "training", 1200), drawn(COARSE, 1, "validation", 100)
    law = fitted(train, 150, held)
    layouts = layout("training"), layout("validation")
    return law, fit_correction(law, train, held, layouts, ONCE, 1)


def test_linear_means_are_those_of_the_joint_law(learned):
    law, _ = learned
    truth, index = drawn(COARSE, 1, "test", 3), torch.stack([layout("test")(i) for i in range(3)])
    means = LinearMeans(law, COARSE.grid)(index, truth.u.gather(1, index))
    for i in range(3):
        where = {"input": index[0][:0], "output": index[i]}
        values = {"input": truth.kappa[i][:0], "output": truth.u[i][index[i]]}
        answer = Conditioned(COARSE, law)(where, values)
        for found, side in zip(means[i], ("input", "output"), strict=True):
            expected = answer.mean(side).float()
            off = 1e-3 * float(expected.std())
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=off)


def test_the_correction_has_fewer_wrong_points_than_the_linear_law(learned):
    law, correction = learned
    test = drawn(COARSE, 1, "test", 40)
    wrong = {}
    for name, answers in (("law", Conditioned(COARSE, law)), ("correction", correction)):
        found = score(answers, COARSE, test, "inverse", CONFIG, 1)
        wrong[name] = found[["err_mean", "err_sample"]].mean()
    assert wrong["correction"]["err_mean"] < 0.8 * wrong["law"]["err_mean"]
    assert wrong["correction"]["err_mean"] < wrong["correction"]["err_sample"]


def test_probabilities_hold(learned):
    """Of the points with a probability near p a share of p has the higher value."""
    _, correction = learned
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


def test_the_same_seed_trains_the_same_network(learned):
    law, _ = learned
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


def test_what_it_is_not_for_is_refused(learned):
    law, correction = learned
    index = layout("test")(0)
    where = {"input": index[:3], "output": index[3:]}
    values = {side: torch.zeros(len(at)) for side, at in where.items()}
    with pytest.raises(DataError, match="3 sensors of the input; none is allowed"):
        correction(where, values)
    train = drawn(COARSE, 1, "training", 50)
    more = Functions(COARSE.fields, "training", train.kappa + torch.arange(50.0)[:, None], train.u)
    with pytest.raises(DataError, match="a correction is for two"):
        fit_correction(law, more, train, (layout("training"), layout("validation")), ONCE, 1)

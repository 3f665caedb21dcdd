"""The priors of problems with margins of their own, against rejection from themselves."""

import numpy as np
import pytest
import torch

from uqsonet.errors import ObservationError
from uqsonet.fields.grid import Grid
from uqsonet_study.beyond.priors.mapped import MappedField
from uqsonet_study.beyond.problems.margins1d import SHAPE, log_gamma
from uqsonet_study.priors.gaussian_process import GaussianField, squared_exponential

POINTS = Grid((0.0,), (1.0,), (13,)).points()


def prior(cut: float = 0.3) -> MappedField:
    field = GaussianField(POINTS, lambda x: 0 * x[:, 0], squared_exponential(1.0, 0.4))
    return MappedField(field, lambda w: (w - cut).clamp_min(0) ** 1.5, cut)


def test_posterior_is_that_of_draws_that_agree_with_the_sensors():
    rain, rng = prior(), np.random.default_rng(0)
    drawn = rain.draw(rng, 400_000)
    values = torch.tensor([0.5, 0.0, 0.0], dtype=torch.float64)
    places = [1, 5, 9]
    near = ((drawn[:, places] - values).abs() <= torch.tensor([0.02, 0, 0])).all(1)
    truth, size = drawn[near], int(near.sum())
    assert size > 1000
    found = rain.posterior(POINTS[places], values, 0.0).draw(rng, 20_000)
    assert float((found[:, places] - values).abs().max()) < 1e-4
    error = (truth.var(0) * (1 / size + 1 / 20_000)).sqrt()
    assert bool(((found.mean(0) - truth.mean(0)).abs() < 5 * error + 0.005).all())
    dry, dry_there = (found == 0).double().mean(0), (truth == 0).double().mean(0)
    assert float((dry - dry_there).abs().max()) < 5 * 0.5 / size**0.5
    with pytest.raises(ObservationError, match="without noise"):
        rain.posterior(POINTS[places], values, 0.1)


def test_k_has_gamma_margins():
    k = log_gamma(torch.from_numpy(np.random.default_rng(1).standard_normal(100_000))).exp()
    third = float(((k - 1) ** 3).mean())
    assert float(k.mean()) == pytest.approx(1, abs=0.01)
    assert float(k.var()) == pytest.approx(1 / SHAPE, rel=0.02)
    assert third == pytest.approx(2 / SHAPE**2, rel=0.1)

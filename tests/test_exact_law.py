"""The exact law of a problem's input behind a trained operator."""

import numpy as np
import pytest
import torch

from tests.answers import input_given
from uqsonet.operator.config import KarhunenLoeveNetwork
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.operator.weight_files import write_weights
from uqsonet.runs.functions import Functions
from uqsonet.sensors.sensors import Sensors
from uqsonet_study.beyond.exact import ExactLaw, is_exact
from uqsonet_study.problems import get_problem


def test_its_samples_are_those_of_the_prior_given_the_sensors():
    """The length is random: three sensors tell something of it."""
    problem = get_problem("length1d")
    kappa, u = problem.sample(np.random.default_rng(0), 300)
    kept = problem.training_grid()[1]
    pairs = Functions(problem.fields, "training", kappa.float(), u[:, kept].float())
    network = KarhunenLoeveNetwork(input_modes=80, output_modes=20, branch=[])
    model = KarhunenLoeveModel(problem.fields, network, 0.0)
    with torch.no_grad():
        model.fit_constants(pairs)
    model.law = ExactLaw("length1d")
    places = problem.grid.points()[[50, 90, 300]]
    values = kappa[0, [50, 90, 300]]
    given = input_given(model, places, values, None, 0.1)
    law = problem.prior.posterior(places, values.log(), 0.1)
    assert law is not None
    true = law.draw(np.random.default_rng(1), 4000)
    own = next(given.functions(4000, torch.Generator().manual_seed(0))).double()
    error = true.std(0) * (2 / 4000) ** 0.5
    assert float(((own.mean(0) - true.mean(0)) / error).abs().max()) < 5
    assert torch.allclose(own.std(0), true.std(0), rtol=0.12)
    # A set has the same samples in company; coefficients are those of the fields.
    single = given.sample(5, torch.Generator().manual_seed(0))
    noise, mask = torch.full((2, 3), 0.1).double(), torch.ones(2, 3, dtype=torch.bool)
    both = Sensors(places.expand(2, -1, -1), values.expand(2, -1), mask, None, noise)
    pair = model.law.condition(model.bases, both).sample(5, torch.Generator().manual_seed(0))
    assert torch.allclose(pair, single.expand(2, -1, -1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("law", "exact"), [("exact", True), ("auto", False), (None, False)])
def test_which_weights_stand_for_it(law, exact, tmp_path):
    path = tmp_path / "weights.safetensors"
    write_weights(path, {"a": torch.zeros(1)}, {} if law is None else {"law": {"asked": law}})
    assert is_exact([path]) is exact

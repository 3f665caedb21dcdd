"""The deep ensemble: its law is the spread of its members, and nothing else."""

import pytest
import torch

from uqsonet.errors import ObservationError
from uqsonet.models.base import build_model
from uqsonet.models.ensemble import DeepEnsemble
from uqsonet.posterior import moments_of
from uqsonet.problems import get_problem
from uqsonet_study.config import AttentionNetwork

SMALL = AttentionNetwork(
    location_embedding=[5],
    value_embedding=[5],
    attention=[6],
    branch=[8],
    trunk=[8],
    truncation=4,
)
PLACES, VALUES = torch.tensor([[[-0.5], [0.2]], [[0.1], [0.7]]]), torch.tensor([[1.0, 2.0]] * 2)


@pytest.fixture(scope="module")
def members():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return [
            build_model("vidon", get_problem("toy_linear").fields, SMALL, 0.5) for _ in range(5)
        ]


def test_mean_and_spread_are_those_of_the_members(members):
    answers = torch.stack([m.condition(PLACES, VALUES).mean() for m in members])
    law = DeepEnsemble(members).condition(PLACES, VALUES)
    assert torch.allclose(law.mean(), answers.mean(0))
    assert torch.allclose(law.std(), answers.std(0, correction=0), atol=1e-12)
    queries = torch.tensor([[0.33], [-0.9]])
    at = torch.stack([m.condition(PLACES, VALUES).mean(queries) for m in members])
    assert torch.allclose(law.std(queries), at.std(0, correction=0), atol=1e-12)


def test_every_sample_is_the_function_of_a_member(members):
    answers = torch.stack([m.condition(PLACES, VALUES).mean() for m in members], dim=1)
    law = DeepEnsemble(members).condition(PLACES, VALUES)
    samples = law.sample(300, generator=torch.Generator().manual_seed(1))
    distance = (samples[:, :, None] - answers[:, None]).abs().amax(-1)
    assert (distance.amin(-1) < 1e-12).all()
    shares = (distance < 1e-12).double().mean(1)
    assert (shares > 0.1).all()  # five members, 300 draws: each about a fifth


def test_drawn_moments_tend_to_the_exact_ones(members):
    law = DeepEnsemble(members).condition(PLACES, VALUES)
    mean, covariance = law.coefficient_moments()
    drawn = moments_of(law.coefficient_samples(20_000, torch.Generator().manual_seed(2)))
    assert torch.allclose(drawn[0], mean, atol=0.02)
    assert torch.allclose(drawn[1], covariance, atol=0.02)


def test_one_set_has_no_batch_dimension(members):
    law = DeepEnsemble(members).condition(PLACES[0], VALUES[0])
    assert law.mean().shape == (33,) and law.sample(4).shape == (4, 33)


def test_an_ensemble_of_one_or_of_random_models_is_refused(members):
    with pytest.raises(ObservationError, match="at least two members"):
        DeepEnsemble(members[:1])
    random = [
        build_model("uqsonet", get_problem("toy_linear").fields, SMALL, 0.5) for _ in range(2)
    ]
    with pytest.raises(ObservationError, match="must be deterministic"):
        DeepEnsemble(random).condition(PLACES, VALUES)

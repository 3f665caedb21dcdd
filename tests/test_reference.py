"""Reference posteriors: closed form in the linear case, limits, identical bytes."""

import pytest
import torch
from scipy.stats import norm

from uqsonet.data import load_functions
from uqsonet.metrics import wasserstein2
from uqsonet.problems import get_problem
from uqsonet.reference.files import load_reference
from uqsonet.reference.sampling import sample_reference
from uqsonet.storage.files import file_digest
from uqsonet_study.config import EvaluationConfig
from uqsonet_study.references import compute_reference

TOY = get_problem("toy_linear")
POINTS = TOY.grid.points()


def test_the_toy_is_what_it_says(toy_files):
    data = load_functions(toy_files.functions, "test")
    x = POINTS[:, 0]
    line = TOY.shapes(x)
    xi = torch.linalg.lstsq(line, (data.kappa.double() - 1).T).solution
    expected = TOY.responses(x)[:, :1] + TOY.responses(x) @ xi
    torch.testing.assert_close(data.u.double(), expected.T, rtol=0, atol=1e-5)
    assert TOY.prior.rank == 2


def test_monte_carlo_equals_the_closed_form_within_standard_errors(toy_files):
    reference, _, noise_std = load_reference(toy_files.test)
    o, size = reference.observations, toy_files.evaluation.reference_samples
    inside = slice(1, -1)
    sets = len(o.values)
    assert sets == 12
    # mean and std of a two-dimensional law: correlated points, bounded as if independent
    bound = norm.isf(1e-3 / (2 * sets * 31))
    for s in range(sets):
        keep = o.mask[s]
        mean, covariance = TOY.exact_posterior(
            o.locations[s][keep], o.values[s][keep], noise_std, POINTS
        )
        std = covariance.diagonal().sqrt()
        z = ((reference.mean[s] - mean) / (std / size**0.5))[inside]
        assert z.abs().max() < bound
        z = ((reference.std[s] / std - 1) * (2 * size) ** 0.5)[inside]
        assert z.abs().max() < bound
        assert not torch.equal(reference.repeat_mean[s], reference.mean[s])
        z = ((reference.repeat_mean[s] - mean) / (std / size**0.5))[inside]
        assert z.abs().max() < bound


def test_mode_moments_are_those_of_the_projected_law(toy_files):
    reference, _, noise_std = load_reference(toy_files.test)
    o, size = reference.observations, toy_files.evaluation.reference_samples
    v = reference.mode_vectors
    weights = TOY.grid.quadrature()
    inner = (v / weights.sqrt()[:, None]).T @ (v / weights.sqrt()[:, None])
    torch.testing.assert_close(inner, torch.eye(v.shape[1]).double(), rtol=0, atol=1e-10)
    for s in (0, 5, 11):
        keep = o.mask[s]
        mean, covariance = TOY.exact_posterior(
            o.locations[s][keep], o.values[s][keep], noise_std, POINTS
        )
        covariance = v.T @ covariance @ v
        error = (covariance.diagonal().clamp_min(0) / size).sqrt()
        assert ((reference.mode_mean[s] - v.T @ mean).abs() <= 4.5 * error + 1e-6).all()
        scale = covariance.diagonal().amax()
        difference = (reference.mode_covariance[s] - covariance).abs().max()
        assert difference < 6 * scale / size**0.5


def test_infinite_noise_gives_the_prior():
    normals = torch.randn(20, TOY.prior.rank, generator=torch.Generator().manual_seed(0)).double()
    x, y = torch.tensor([[0.5], [-0.5]]).double(), torch.tensor([3.0, -2.0]).double()
    mask = torch.ones(2).bool()
    vague = sample_reference(TOY, x, y, mask, 1e9, normals)
    prior = TOY.solve(TOY.prior.field(normals))
    torch.testing.assert_close(vague, prior, rtol=0, atol=1e-7)
    sharp = sample_reference(TOY, x, y, mask, 1e-6, normals)
    assert sharp.std(0).max() < 1e-4 < 0.1 < prior.std(0).max()


def test_a_noiseless_reference_passes_through_the_sensors_of_diffusion1d():
    problem = get_problem("diffusion1d")
    normals = torch.randn(50, problem.prior.rank, generator=torch.Generator().manual_seed(0))
    index = torch.tensor([40, 200, 333])
    x, y = problem.grid.points()[index], torch.tensor([0.7, 1.9, 1.2]).double()
    law = problem.prior.condition(x, y.log(), 0.0)
    kappa = problem.prior.field(law.mean + normals.double() @ law.root).exp()
    torch.testing.assert_close(kappa[:, index], y.expand(50, 3), rtol=1e-6, atol=0)
    u = sample_reference(problem, x, y, torch.ones(3).bool(), 0.0, normals.double())
    torch.testing.assert_close(u, problem.solve(kappa))


def test_padding_is_not_seen_by_the_reference():
    normals = torch.randn(4, TOY.prior.rank, generator=torch.Generator().manual_seed(0)).double()
    x, y = torch.tensor([[0.5], [0.0]]).double(), torch.tensor([3.0, float("nan")]).double()
    padded = sample_reference(TOY, x, y, torch.tensor([True, False]), 0.3, normals)
    alone = sample_reference(TOY, x[:1], y[:1], torch.ones(1).bool(), 0.3, normals)
    assert torch.equal(padded, alone)


def again(files, target, shift=0, **changes):
    config = files.evaluation.model_copy(update=changes)
    source = files.functions, files.sensors, "test", "precise", config
    compute_reference(*source, files.noise_std, files.seed + shift, target)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(toy_files, tmp_path):
    again(toy_files, tmp_path / "same.h5")
    assert file_digest(tmp_path / "same.h5") == file_digest(toy_files.test)
    again(toy_files, tmp_path / "other.h5", shift=1)
    assert file_digest(tmp_path / "other.h5") != file_digest(toy_files.test)


def test_moments_do_not_depend_on_how_samples_are_cut_into_blocks(toy_files, tmp_path, monkeypatch):
    monkeypatch.setattr(type(TOY), "block", 777)
    again(toy_files, tmp_path / "cut.h5")
    cut, whole = (load_reference(p)[0] for p in (tmp_path / "cut.h5", toy_files.test))
    for key in ("mean", "std", "repeat_std", "mode_mean", "mode_covariance"):
        torch.testing.assert_close(getattr(cut, key), getattr(whole, key), rtol=1e-9, atol=1e-9)


def test_stored_samples_and_their_floor(toy_files, tmp_path):
    config = {"reference_samples": 60, "wasserstein": True}
    again(toy_files, tmp_path / "w.h5", **config)
    reference, _, _ = load_reference(tmp_path / "w.h5")
    assert reference.samples is not None and reference.samples.shape == (12, 60, 17)
    torch.testing.assert_close(
        reference.samples.double().mean(1), reference.mean[:, ::2], rtol=1e-4, atol=1e-5
    )
    assert (reference.floor_w2 > 0).all()
    weights = TOY.training_grid()[0].quadrature()
    same = wasserstein2(reference.samples[0], reference.samples[0].flip(0), weights)
    assert same < 1e-3 < float(reference.floor_w2[0])


def test_without_wasserstein_no_samples_are_stored(toy_files):
    reference, fields, noise_std = load_reference(toy_files.test)
    assert reference.samples is None and reference.floor_w2 is None
    assert fields == TOY.fields and noise_std == toy_files.noise_std
    assert reference.function.tolist() == [0, 1, 2, 3] * 3
    assert reference.observations.counts.tolist() == [1] * 4 + [2] * 4 + [4] * 4


def test_more_sets_leave_the_observations_of_the_first_unchanged(toy_files, tmp_path):
    again(toy_files, tmp_path / "six.h5", sets=6, reference_samples=50)
    six, four = (load_reference(p)[0] for p in (tmp_path / "six.h5", toy_files.test))
    rows = [0, 1, 2, 3, 6, 7, 8, 9, 12, 13, 14, 15]
    torch.testing.assert_close(six.observations.values[rows], four.observations.values)
    torch.testing.assert_close(six.observations.locations[rows], four.observations.locations)


@pytest.mark.parametrize("field", ["sets", "reference_samples"])
def test_evaluations_without_sets_or_spread_are_refused(field):
    with pytest.raises(ValueError, match=field):
        EvaluationConfig(**({"sets": 1, "reference_samples": 2, "model_samples": 2} | {field: 0}))

"""Reference posteriors: closed form in the linear case, limits, identical bytes."""

import torch
from scipy.stats import norm

from uqsonet.files import file_digest
from uqsonet_study.distances import wasserstein2
from uqsonet_study.problems import get_problem
from uqsonet_study.reference.files import load_reference
from uqsonet_study.references import compute_reference

TOY = get_problem("toy_linear")
POINTS = TOY.grid.points()


def test_monte_carlo_equals_the_closed_form_within_standard_errors(toy_files):
    reference, _, noise_std = load_reference(toy_files.test)
    o, size = reference.observations, toy_files.evaluation.samples
    inside, v = slice(1, -1), reference.mode_vectors
    assert len(o.values) == 12
    # mean and std of a two-dimensional law: correlated points, bounded as if independent
    bound = norm.isf(1e-3 / (2 * 12 * 31))
    for s in range(12):
        keep = o.mask[s]
        mean, covariance = TOY.exact_posterior(
            o.locations[s][keep], o.values[s][keep], noise_std, POINTS
        )
        std = covariance.diagonal().sqrt()
        for found in (reference.mean[s], reference.repeat_mean[s]):
            assert ((found - mean) / (std / size**0.5))[inside].abs().max() < bound
        z = ((reference.std[s] / std - 1) * (2 * size) ** 0.5)[inside]
        assert z.abs().max() < bound
        assert not torch.equal(reference.repeat_mean[s], reference.mean[s])
        # Moments of modes are those of the projected law.
        projected = v.T @ covariance @ v
        error = (projected.diagonal().clamp_min(0) / size).sqrt()
        assert ((reference.mode_mean[s] - v.T @ mean).abs() <= 4.5 * error + 1e-6).all()
        difference = (reference.mode_covariance[s] - projected).abs().max()
        assert difference < 6 * projected.diagonal().amax() / size**0.5
    inner = (v / TOY.grid.quadrature().sqrt()[:, None]).T
    torch.testing.assert_close(inner @ inner.T, torch.eye(len(inner)).double(), rtol=0, atol=1e-10)


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
    config = {"samples": 60, "wasserstein": True}
    again(toy_files, tmp_path / "w.h5", **config)
    reference, _, _ = load_reference(tmp_path / "w.h5")
    assert load_reference(toy_files.test)[0].samples is None
    assert reference.samples is not None and reference.samples.shape == (12, 60, 17)
    torch.testing.assert_close(
        reference.samples.double().mean(1), reference.mean[:, ::2], rtol=1e-4, atol=1e-5
    )
    assert (reference.floor_w2 > 0).all()
    weights = TOY.training_grid()[0].quadrature()
    same = wasserstein2(reference.samples[0], reference.samples[0].flip(0), weights)
    assert same < 1e-3 < float(reference.floor_w2[0])

"""References of reduced variance on disk: read back, identical bytes, honest about their error."""

import pytest
import torch
from scipy.stats import f

from tests.reference import coarse  # noqa: F401  (registers the problem)
from uqsonet.errors import ConfigError
from uqsonet.files import file_digest
from uqsonet_study.layouts import generate_layouts
from uqsonet_study.parts import SETS, PartStore
from uqsonet_study.problems import get_problem
from uqsonet_study.reference.files import Reference, load_reference, load_sets
from uqsonet_study.references import compute_reference
from uqsonet_study.settings import Layout, ReferenceConfig, Sizes
from uqsonet_study.simulation import simulate

NAMES = ["diffusion1d", "elliptic_sde1d", "poisson2d", "toy_sde2d"]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Compute a reference of a problem: two sets at each of two counts."""
    folder = tmp_path_factory.mktemp("references")

    def compute(name, noise_std=0.0, seed=0, size=32, estimator="reduced"):
        functions, sensors = folder / f"{name}.h5", folder / f"{name}.sensors.h5"
        if not functions.exists():
            sizes = Sizes(training=2, validation=1, test=20, shard=20)
            simulate(name, sizes, 3, functions)
            generate_layouts(name, Layout(counts=[2, 5], pool=2), 3, 1, 20, sensors)
        config = ReferenceConfig(sets=2, samples=size, estimator=estimator)
        path = folder / f"{name}-{noise_std}-{seed}-{size}-{estimator}.h5"
        compute_reference(functions, sensors, "test", "precise", config, noise_std, seed, path)
        return path

    return compute


@pytest.mark.parametrize("name", NAMES)
def test_a_reduced_reference_is_written_and_read_back(reference, name):
    found, fields, noise_std = load_reference(reference(name, 0.2))
    assert fields.name == name and noise_std == 0.2
    assert found.samples is None and found.floor_w2 is None
    assert found.observations.counts.tolist() == [2, 2, 5, 5]
    inside = fields.boundary_factor(fields.output.grid.points()) > 0
    assert (found.std[:, inside] > 0).all() and found.mean.isfinite().all()
    expected = found.mean @ found.mode_vectors
    torch.testing.assert_close(found.mode_mean, expected, rtol=0, atol=1e-6)
    exact = name == "poisson2d"  # in closed form there is no error to state
    assert torch.equal(found.repeat_mean, found.mean) == exact
    assert torch.equal(found.repeat_std, found.std) == exact


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_bytes_in_any_number_of_processes(reference, tmp_path, name):
    for estimator in ("reduced", "monte_carlo"):
        single = reference(name, 0.2, seed=1, estimator=estimator)
        config = ReferenceConfig(sets=2, samples=32, estimator=estimator)
        source = (
            *(single.parent / f"{name}{end}.h5" for end in ("", ".sensors")),
            *("test", "precise", config),
        )
        again, other = tmp_path / "again.h5", tmp_path / "other.h5"
        compute_reference(*source, 0.2, 1, again, workers=2 if name == "diffusion1d" else 1)
        compute_reference(*source, 0.2, 2, other)
        assert file_digest(again) == file_digest(single) != file_digest(other)
        assert sorted(tmp_path.iterdir()) == [again, other]


@pytest.mark.parametrize("name", ["diffusion1d", "toy_sde2d"])
def test_the_stated_error_is_of_the_size_of_the_true_one(reference, name):
    """Half the difference of the halves and the error of their mean have the same law."""
    seeds, large = 8, {"diffusion1d": 6000, "toy_sde2d": 800}[name]
    truth, fields, _ = load_reference(reference(name, seed=99, size=large))
    inside = fields.boundary_factor(fields.output.grid.points()) > 0
    found = [load_reference(reference(name, seed=seed))[0] for seed in range(seeds)]
    bound = f.isf(0.0005, seeds, seeds)  # at least one degree of freedom a seed
    for key in ("mean", "std"):
        scale = truth.std[:, inside]
        stated, true = (
            torch.stack([(getattr(one, a) - b)[:, inside] / scale for one, b in pairs])
            for a, pairs in (
                (f"repeat_{key}", [(one, getattr(one, key)) for one in found]),
                (key, [(one, getattr(truth, key)) for one in found]),
            )
        )
        ratio = float(stated.square().mean() / true.square().mean())
        assert 1 / bound < ratio < bound
        assert 0.01 < true.square().mean() ** 0.5 < 0.3  # in standard deviations, of 32 samples


def row(s: int) -> dict[str, torch.Tensor]:
    return {"mean": torch.full((3,), float(s)), "floor": torch.tensor(s / 7, dtype=torch.float64)}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_reference_computes_only_what_is_missing(tmp_path, workers, caplog):
    def dies(s: int) -> dict[str, torch.Tensor]:
        if s >= 2 * SETS:
            raise KeyboardInterrupt
        return row(s)

    with pytest.raises(KeyboardInterrupt):
        PartStore(tmp_path, {"a": 1}).rows(3 * SETS, dies)
    first, second = sorted(tmp_path.glob("sets_*.h5"))
    second.write_bytes(second.read_bytes()[:-100])  # damaged: made again

    def counted(s: int) -> dict[str, torch.Tensor]:
        (tmp_path / f"made-{s}").touch()
        return row(s)

    store = PartStore(tmp_path, {"a": 1}, workers)
    found = store.rows(3 * SETS, counted)
    made = sorted(int(path.name[5:]) for path in tmp_path.glob("made-*"))
    assert made == list(range(SETS, 3 * SETS))
    for s, one in enumerate(found):
        assert torch.equal(one["mean"], row(s)["mean"]) and one["floor"] == row(s)["floor"]
    assert "a part is made again" in caplog.text and second.name in caplog.text
    again = PartStore(tmp_path, {"a": 2}).rows(2, row)  # parts of another run are not used
    assert "of another run: a, kept, size changed" in caplog.text
    assert len(again) == 2 and first.exists()
    store.remove()
    assert not list(tmp_path.glob("sets_*.h5"))


@pytest.mark.parametrize("name", ["binary1d", "student1d"])
def test_a_law_that_is_not_gaussian_has_quantiles_and_their_floor(reference, name):
    found, fields, _ = load_reference(reference(name, size=400, estimator="monte_carlo"))
    _, kept = fields.training_grid()
    quantiles, floor = found.quantiles, found.floor_w1
    assert quantiles.shape == (4, 40, 101) and quantiles.dtype == torch.float32
    assert (quantiles.diff(dim=1) >= 0).all()
    mean, std = found.mean[:, kept], found.std[:, kept]
    torch.testing.assert_close(quantiles.double().mean(1), mean, rtol=0, atol=1e-5)
    spread = quantiles.double().std(1, correction=0)
    assert (spread <= std + 1e-6).all() and (spread[:, 1:-1] > 0.7 * std[:, 1:-1]).all()
    # W1 of two samples of n is of the order of 1 / sqrt(n) in standard deviations
    assert ((floor > 0.2 / 400**0.5) & (floor < 3 / 400**0.5)).all()


def test_what_a_law_or_an_estimator_does_not_allow_is_refused(reference, monkeypatch):
    with pytest.raises(ValueError, match="wasserstein needs plain samples"):
        ReferenceConfig(sets=1, samples=2, wasserstein=True, estimator="reduced")
    with pytest.raises(ConfigError, match=r"evaluations\.precise\.estimator is reduced.*binary1d"):
        reference("binary1d")
    prior = type(get_problem("binary1d").prior)
    monkeypatch.setattr(prior, "posterior", lambda *_: None)
    with pytest.raises(ConfigError, match="binary1d: its input has no posterior"):
        reference("binary1d", seed=7, estimator="monte_carlo")
    # It has observation sets alone.
    found, _, _ = load_sets(reference("binary1d", seed=7, estimator="none"))
    assert not isinstance(found, Reference) and len(found.function) == 4

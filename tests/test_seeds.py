"""The seed tree: independent paths, repeatable bytes, prefixes of data sets."""

import itertools

import numpy as np
import pytest
import torch

from uqsonet.data import load_functions
from uqsonet.problems import get_problem
from uqsonet.seeds import numpy_generator, torch_generator
from uqsonet.storage.files import file_digest
from uqsonet_study.config import ProblemConfig
from uqsonet_study.simulation import simulate, simulate_shard

PATHS = [
    ("toy", "training", "functions", 0),
    ("toy", "training", "functions", 1),
    ("toy", "training", "functions", "1"),
    ("toy", "test", "functions", 0),
    ("toy", "training", "functions"),
    ("training", "toy", "functions", 0),
    (),
]


def test_the_same_path_gives_the_same_stream():
    a, b = numpy_generator(7, "x", 1), numpy_generator(7, "x", 1)
    assert a.bytes(64) == b.bytes(64)
    first, second = (torch.randn(8, generator=torch_generator(7, "x", 1)) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(PATHS, 2)))
def test_different_paths_give_uncorrelated_streams(first, second):
    size = 20_000
    a = numpy_generator(7, *first).standard_normal(size)
    b = numpy_generator(7, *second).standard_normal(size)
    assert abs(np.corrcoef(a, b)[0, 1]) * size**0.5 < 4.5
    x = torch.randn(size, generator=torch_generator(7, *first)).numpy()
    y = torch.randn(size, generator=torch_generator(7, *second)).numpy()
    assert abs(np.corrcoef(x, y)[0, 1]) * size**0.5 < 4.5


def test_different_roots_give_different_streams():
    assert numpy_generator(7, "x").bytes(16) != numpy_generator(8, "x").bytes(16)


def test_the_stream_is_pinned():
    """A change of the seed tree would silently change every published number."""
    assert numpy_generator(2026, "diffusion1d", "training", "functions", 0).integers(
        0, 2**32, 3
    ).tolist() == [96696741, 4123579137, 3194069127]


def test_the_first_pairs_of_a_larger_set_are_the_smaller_set(tmp_path):
    sizes = {"small": (5, 3, 2), "large": (11, 7, 6)}
    found = {}
    for name, (training, validation, test) in sizes.items():
        config = ProblemConfig(training=training, validation=validation, test=test, shard=4)
        simulate("toy_linear", config, 3, tmp_path / f"{name}.h5")
        found[name] = {
            split: load_functions(tmp_path / f"{name}.h5", split)
            for split in ("training", "validation", "test")
        }
    for split, small in found["small"].items():
        large = found["large"][split]
        assert torch.equal(large.kappa[: small.size], small.kappa)
        assert torch.equal(large.u[: small.size], small.u)


def test_any_shard_can_be_made_alone(tmp_path):
    config = ProblemConfig(training=10, validation=1, test=1, shard=4)
    simulate("toy_linear", config, 3, tmp_path / "all.h5")
    everything = load_functions(tmp_path / "all.h5", "training")
    problem = get_problem("toy_linear")
    kappa, u = simulate_shard(problem, 3, "training", 1, 4)
    assert torch.equal(everything.kappa[4:8], kappa.float())
    assert torch.equal(everything.u[4:8], u[:, ::2].float())


def test_splits_share_no_function(tmp_path):
    config = ProblemConfig(training=20, validation=20, test=20, shard=20)
    simulate("toy_linear", config, 3, tmp_path / "f.h5")
    kappa = [load_functions(tmp_path / "f.h5", s).kappa for s in ("training", "validation", "test")]
    assert len(torch.unique(torch.cat(kappa), dim=0)) == 60


@pytest.mark.parametrize("problem", ["toy_linear", "diffusion1d"])
def test_the_functions_file_written_twice_has_the_same_digest(tmp_path, problem):
    config = ProblemConfig(training=6, validation=2, test=2, shard=4)
    digests = set()
    for name in ("a.h5", "b.h5"):
        simulate(problem, config, 5, tmp_path / name)
        digests.add(file_digest(tmp_path / name))
    assert len(digests) == 1
    simulate(problem, config, 6, tmp_path / "c.h5")
    assert file_digest(tmp_path / "c.h5") not in digests


def test_stored_functions_solve_the_equation(tmp_path):
    simulate("diffusion1d", ProblemConfig(training=4, validation=2, test=2), 5, tmp_path / "f.h5")
    problem = get_problem("diffusion1d")
    test = load_functions(tmp_path / "f.h5", "test")
    torch.testing.assert_close(
        problem.solve(test.kappa.double()).float(), test.u, rtol=1e-4, atol=1e-4
    )
    training = load_functions(tmp_path / "f.h5", "training")
    assert training.u.shape == (4, 101) and training.kappa.shape == (4, 401)
    expected = problem.solve(training.kappa.double())[:, ::4].float()
    torch.testing.assert_close(expected, training.u, rtol=1e-4, atol=1e-4)

"""The seed tree: independent paths, repeatable bytes, prefixes of data sets."""

import itertools

import numpy as np
import torch

from uqsonet.files import file_digest
from uqsonet.gauss.seeds import numpy_generator, torch_generator
from uqsonet_study.problems import get_problem
from uqsonet_study.settings import Sizes
from uqsonet_study.simulation import simulate, simulate_shard
from uqsonet_study.storage import load_functions

PATHS = [
    ("toy", "training", "functions", 0),
    ("toy", "training", "functions", 1),
    ("toy", "training", "functions", "1"),
    ("toy", "test", "functions", 0),
    ("toy", "training", "functions"),
    ("training", "toy", "functions", 0),
    (),
]
SPLITS = "training", "validation", "test"


def test_different_paths_give_uncorrelated_streams():
    size = 20_000
    numpy = [numpy_generator(7, *path).standard_normal(size) for path in PATHS]
    torches = [torch.randn(size, generator=torch_generator(7, *path)).numpy() for path in PATHS]
    for streams in (numpy, torches):
        for a, b in itertools.combinations(streams, 2):
            assert abs(np.corrcoef(a, b)[0, 1]) * size**0.5 < 4.5


def test_the_stream_is_pinned():
    """A change of the seed tree would silently change every published number."""
    path = "diffusion1d", "training", "functions", 0
    found = numpy_generator(2026, *path).integers(0, 2**32, 3).tolist()
    assert found == [96696741, 4123579137, 3194069127]


def made(folder, problem, seed, *sizes):
    """Return the digest of a file of functions, and the functions by split."""
    config = Sizes(**dict(zip(SPLITS, sizes, strict=True)), shard=4)
    path = folder / f"{seed}_{sizes[0]}.h5"
    simulate(problem, config, seed, path)
    return file_digest(path), [load_functions(path, split) for split in SPLITS]


def test_the_first_pairs_of_a_larger_set_are_the_smaller_set(tmp_path):
    (_, smaller), (_, larger) = (
        made(tmp_path, "toy_linear", 3, *sizes) for sizes in ((5, 3, 2), (11, 7, 6))
    )
    for small, large in zip(smaller, larger, strict=True):
        assert torch.equal(large.kappa[: small.size], small.kappa)
        assert torch.equal(large.u[: small.size], small.u)
    kappa = torch.cat([functions.kappa for functions in larger])
    assert len(torch.unique(kappa, dim=0)) == 24  # splits share no function
    # Any shard can be made alone.
    kappa, u = simulate_shard(get_problem("toy_linear"), 3, "training", 1, 4)
    assert torch.equal(larger[0].kappa[4:8], kappa.float())
    assert torch.equal(larger[0].u[4:8], u[:, ::2].float())


def test_stored_functions_solve_the_equation_and_repeat(tmp_path):
    problem = get_problem("diffusion1d")
    first, (training, _, test) = made(tmp_path, "diffusion1d", 5, 4, 2, 2)
    again, other = (made(tmp_path, "diffusion1d", seed, 4, 2, 2)[0] for seed in (5, 6))
    assert first == again != other
    assert training.u.shape == (4, 101) and training.kappa.shape == (4, 401)
    for functions, stride in ((training, 4), (test, 1)):
        expected = problem.solve(functions.kappa.double())[:, ::stride].float()
        torch.testing.assert_close(expected, functions.u, rtol=1e-4, atol=1e-4)

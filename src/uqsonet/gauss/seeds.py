"""One tree of seeds for the whole project.

Every random number descends from the configured root seed through a path of words and numbers,
for example ``("diffusion1d", "training", "prior", 3)``. Streams of different paths are
independent, so adding a trial, a split or a shard never shifts another stream, and the order in
which jobs run does not matter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from uqsonet.errors import ConfigError

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

RNG = int | np.integer[Any] | np.random.SeedSequence | np.random.Generator
"""What callers may give as ``rng`` (Scientific Python SPEC 7), except a `torch.Generator`."""

MAX_SEED = 2**62


def _word(key: str | int) -> int:
    """Map a path element to 32 bits; text is hashed because `hash()` changes between runs."""
    text = f"{type(key).__name__}:{key}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")


def root_of(rng: object) -> int:
    """Return the root of a seed tree that a caller's `rng` stands for.

    Parameters
    ----------
    rng : int, numpy.random.SeedSequence, numpy.random.Generator or torch.Generator
        A whole number and a sequence give the same root each time, a generator another one.

    Raises
    ------
    ConfigError
        If it is none of these, or a number below 0 or from 2^62 on.
    """
    if isinstance(rng, np.random.SeedSequence):
        return int(rng.generate_state(1, np.uint64)[0]) % MAX_SEED
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(MAX_SEED))
    import torch  # deferred: the workflow imports this module and has no use for torch

    if isinstance(rng, torch.Generator):
        return int(torch.randint(MAX_SEED, (), generator=rng, device=rng.device))
    if isinstance(rng, bool) or not isinstance(rng, int | np.integer) or not 0 <= rng < MAX_SEED:
        raise ConfigError(
            "the seed (rng) must be a whole number from 0 to 2^62, a SeedSequence or a Generator, "
            f"found {rng!r}"
        )
    return int(rng)


def seed_sequence(root: int, *path: str | int) -> np.random.SeedSequence:
    """Return the node of the seed tree at `path`, from the general to the special.

    If the root seed is no whole number, or negative, a `ConfigError` says so.
    """
    if isinstance(root, bool) or not isinstance(root, int | np.integer) or root < 0:
        raise ConfigError(f"seed must be a whole number, 0 or more, found {root!r}")
    return np.random.SeedSequence(root, spawn_key=tuple(_word(key) for key in path))


def numpy_generator(root: int, *path: str | int) -> np.random.Generator:
    """Return a NumPy generator (PCG64) for the stream at `path`."""
    return np.random.default_rng(seed_sequence(root, *path))


def torch_generator(
    root: int, *path: str | int, device: torch.device | str = "cpu"
) -> torch.Generator:
    """Return a torch generator on `device` for the stream at `path`."""
    import torch  # deferred: the workflow imports this module and has no use for torch

    state = seed_sequence(root, *path).generate_state(2, np.uint32)
    seed = int(state[0]) | (int(state[1]) << 31)  # 63 bits: torch takes a signed 64-bit seed
    return torch.Generator(device=device).manual_seed(seed)


def restarted(generator: torch.Generator, sets: Iterable[T]) -> Iterator[T]:
    """Yield sets one after another; the random numbers of each are those that the first takes.

    A set has the same samples in any company.
    """
    state = generator.get_state()
    for one in sets:
        generator.set_state(state)
        yield one

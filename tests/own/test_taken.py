"""One rule says which candidate is taken: a lower CRPS, or bands that hold what they promise."""

import torch
from torch import Tensor

from uqsonet.fitting.held_out import taken


def candidate(crps: float, held: tuple[float, float], spread: float = 0.1) -> Tensor:
    """Return scores (3, 200) of runs: all candidates find the same runs hard."""
    noise = torch.randn(3, 200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return torch.tensor([crps, *held])[:, None] + spread * (noise - noise.mean(1, keepdim=True))


GOOD, NARROW = (0.5, 0.9), (0.3, 0.7)


def test_a_lower_crps_counts_if_it_is_so_by_more_than_chance_and_by_a_share() -> None:
    first, lower = candidate(1.0, GOOD), candidate(0.95, GOOD)
    assert taken([first, lower], 2.0) == (1, "crps")
    assert taken([first, lower], 2.0, least=0.1) == (0, "")
    noisy = lower.clone()
    noisy[0] += torch.randn(200, generator=torch.Generator().manual_seed(1)).double()
    assert taken([first, noisy], 2.0) == (0, "")


def test_bands_decide_where_crps_agree() -> None:
    narrow, good, better = candidate(1, NARROW), candidate(1, GOOD), candidate(1, (0.49, 0.9))
    assert taken([narrow, good], 2.0) == (1, "bands")
    assert taken([better, good], 2.0) == (0, "")  # a difference of chance
    worse = candidate(1.1, GOOD)
    assert taken([narrow, worse], 2.0) == (0, "")  # honest, and off
    assert taken([narrow[:1], good[:1]], 2.0) == (0, "")  # no bands were counted


def test_the_first_is_taken_that_nothing_is_preferable_to() -> None:
    wrong, lowest, honest = candidate(2, GOOD), candidate(1, NARROW), candidate(1.001, GOOD)
    assert taken([wrong, lowest, honest], 2.0, least=0.02) == (2, "crps")

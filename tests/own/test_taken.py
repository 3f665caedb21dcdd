"""One rule says which candidate is taken: a lower CRPS, or bands that hold what they promise."""

import pytest
import torch
from torch import Tensor

from uqsonet.fitting.comparison import Comparison, first_not_worse, preferable, standard_error
from uqsonet.fitting.held_out import HeldOut

ALONE = torch.arange(200)
"""Each run has a layout of its own."""

GOOD, NARROW = (0.5, 0.9), (0.3, 0.7)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def candidate(crps: float, held: tuple[float, float], spread: float = 0.1) -> Tensor:
    """Return scores (3, 200) of runs: all candidates find the same runs hard."""
    found = noise(3, 200)
    return torch.tensor([crps, *held])[:, None] + spread * (found - found.mean(1, keepdim=True))


def test_a_lower_crps_counts_if_it_is_so_by_more_than_is_tolerated() -> None:
    first = candidate(1.0, GOOD)
    assert first_not_worse([first, candidate(0.95, GOOD)], ALONE) == (1, "crps")
    assert first_not_worse([first, candidate(0.997, GOOD)], ALONE) == (0, "")  # surely, but little
    unsure = candidate(0.985, GOOD)
    unsure[0] += 0.5 * (noise(200, seed=1) - noise(200, seed=1).mean())
    assert first_not_worse([first, unsure], ALONE) == (0, "")


def test_the_less_is_known_no_more_is_lost() -> None:
    """Within two standard errors, a CRPS that is a tenth higher had counted as equal."""
    first, lower = candidate(1.0, GOOD), candidate(0.9, GOOD)
    lower[0] += 2 * (noise(200, seed=1) - noise(200, seed=1).mean())
    gain = first[0] - lower[0]
    assert float(gain.mean()) < standard_error(gain, ALONE)
    assert first_not_worse([first, lower], ALONE) == (1, "crps")


def test_bands_decide_where_crps_agree() -> None:
    narrow, good, better = candidate(1, NARROW), candidate(1, GOOD), candidate(1, (0.49, 0.9))
    assert first_not_worse([narrow, good], ALONE) == (1, "bands")
    assert first_not_worse([better, good], ALONE) == (0, "")  # a difference of chance
    worse = candidate(1.1, GOOD)
    assert first_not_worse([narrow, worse], ALONE) == (0, "")  # honest, and off
    assert first_not_worse([narrow[:1], good[:1]], ALONE) == (0, "")  # no bands were counted


def test_the_first_is_taken_that_nothing_is_preferable_to() -> None:
    wrong, lowest, honest = candidate(2, GOOD), candidate(1, NARROW), candidate(1.001, GOOD)
    assert first_not_worse([wrong, lowest, honest], ALONE) == (2, "crps")


def test_runs_that_share_a_layout_count_as_one() -> None:
    """Where all that differs is the layout, many runs know no more than the layouts."""
    groups = torch.arange(200) // 40
    means = noise(5)
    values = means[groups]
    assert standard_error(values, groups) == pytest.approx(float(means.std()) / 5**0.5)
    assert standard_error(values, groups) > 5 * standard_error(values, ALONE)
    alone = noise(200)
    assert standard_error(alone, ALONE) == pytest.approx(float(alone.std()) / 200**0.5)
    # Bands differ by more than chance among runs, by less among layouts.
    off = torch.stack([torch.ones(200), 0.5 + 0.2 * values, torch.full((200,), 0.9)]).double()
    on = torch.stack([torch.ones(200), torch.full((200,), 0.5), torch.full((200,), 0.9)]).double()
    off[1] += 0.13 - (off[1] - 0.5).mean()
    assert preferable(on, off, ALONE) == "bands" and preferable(on, off, groups) == ""


def test_answers_that_are_as_good_as_exact_decide_nothing() -> None:
    """Many sensors know a smooth field: which answer knows it better is rounding."""
    truth = noise(200, 8)
    held = HeldOut({2: [], 6: []}, [(torch.zeros(8, 1), truth)], groups=ALONE)
    compared = Comparison([held], 0)
    usual = held.usual()[0] * torch.tensor([0.5, 1e-5])[:, None].expand(2, 200).double()
    shares = torch.tensor([0.5, 0.9])[:, None, None].expand(2, 2, 200)
    for name, factors in (("first", (1.0, 1.0)), ("other", (0.9, 2.0))):
        crps = usual * torch.tensor(factors)[:, None]
        compared.scores[name] = torch.cat([crps[None], shares])
    assert compared.taken() == ("other", "crps")
    assert compared.above("first", "other")[0] == pytest.approx(0.11, abs=0.01)

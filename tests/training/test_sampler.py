"""How functions and sensors meet in training, by protocol."""

import numpy as np
import pytest
import torch

from uqsonet.networks.settings import TrainingConfig
from uqsonet_study.layouts import uniform_layouts
from uqsonet_study.problems import get_problem
from uqsonet_study.trainer import BatchSampler

TOY = get_problem("toy_linear")
SIZE, N = 10, 100
KAPPA = torch.randn(N, 33, generator=torch.Generator().manual_seed(0))
TARGETS = {"u": torch.arange(float(N))[:, None].expand(N, 17)}
COUNTS = list(range(1, 11))
LAYOUTS = {
    m: torch.from_numpy(uniform_layouts(np.random.default_rng(m), 33, m, 60)).long() for m in COUNTS
}


def sampler(protocol="redraw", stream=0, noise_std=0.0, layouts=LAYOUTS, latent_dim=2, seed=5):
    config = TrainingConfig(iterations=1, batch_size=SIZE, protocol=protocol)
    generator = torch.Generator().manual_seed(stream)
    return BatchSampler(
        TOY.fields, config, KAPPA, TARGETS, layouts, noise_std, latent_dim, seed, generator
    )


def rows_of(batch):
    return batch["u"][..., 0].long()


def indices_of(batch):
    """Grid indices of the sensors (B, m)."""
    return ((batch["locations"][..., 0] + 1) * 16).round().long()


@pytest.mark.parametrize("protocol", ["fixed_batches", "batch_shared", "redraw"])
def test_values_are_those_of_the_functions_at_distinct_sensors(protocol):
    drawn = sampler(protocol)
    for _ in range(20):
        batch, normals = drawn.draw()
        assert normals.shape == (SIZE, 2)
        mask, index = batch["mask"], indices_of(batch)
        expected = KAPPA[rows_of(batch)].gather(1, index)
        assert torch.equal(batch["values"][mask], expected[mask])
        for row, keep in zip(index, mask, strict=True):
            assert len(set(row[keep].tolist())) == int(keep.sum()) > 0


def test_fixed_batches_cover_every_count_once_and_are_the_same_for_every_trial():
    """Noise included; each function has a layout of its own."""

    def cut(stream):
        drawn, batches = sampler("fixed_batches", stream, noise_std=0.3), {}
        for _ in range(150):
            batch, _ = drawn.draw()
            rows, index = rows_of(batch), indices_of(batch)
            first = int(rows[0])
            assert rows.tolist() == list(range(first, first + SIZE)) and first % SIZE == 0
            counts = batch["mask"].sum(1)
            assert (counts == counts[0]).all()
            assert counts[0] < 4 or len(index.unique(dim=0)) == SIZE
            key = (int(counts[0]), index.tolist(), batch["values"].tolist())
            assert batches.setdefault(first // SIZE, key) == key  # the same every time it comes
        return batches

    found = cut(1)
    assert sorted(found) == list(range(10)) and found == cut(2)
    assert sorted(count for count, _, _ in found.values()) == COUNTS


def test_batch_shared_has_one_count_and_one_layout_which_vary_between_batches():
    drawn = sampler("batch_shared")
    counts, layouts = set(), set()
    for _ in range(200):
        batch, _ = drawn.draw()
        assert batch["mask"].all()
        index = indices_of(batch)
        assert (index == index[0]).all()
        counts.add(index.shape[1])
        layouts.add(tuple(index[0].tolist()))
        assert len(set(rows_of(batch).tolist())) > 3
    assert counts == set(COUNTS) and len(layouts) > 100


def test_redraw_gives_the_same_function_different_sensors_and_new_noise():
    drawn = sampler("redraw", noise_std=0.7)
    counts, seen, errors = torch.zeros(11), {}, []
    for _ in range(300):
        batch, _ = drawn.draw()
        number = batch["mask"].sum(1)
        clean = KAPPA[rows_of(batch)].gather(1, indices_of(batch))
        errors.append((batch["values"] - clean)[batch["mask"]])
        counts += torch.bincount(number, minlength=11)
        for row, index, keep in zip(
            rows_of(batch).tolist(), indices_of(batch), batch["mask"], strict=True
        ):
            seen.setdefault(row, set()).add(tuple(index[keep].tolist()))
    assert len(seen) == N and min(len(layouts) for layouts in seen.values()) > 5
    # 3000 draws over ten equally likely counts
    assert counts[0] == 0 and ((counts[1:] - 300).abs() < 4.5 * 270**0.5).all()
    errors = torch.cat(errors)
    assert abs(errors.std() / 0.7 - 1) < 4 / (2 * len(errors)) ** 0.5
    assert abs(errors.mean()) < 4 * 0.7 / len(errors) ** 0.5

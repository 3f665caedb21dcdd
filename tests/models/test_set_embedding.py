"""h(O) is a function of a set: order, padding and batch mates have no influence."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from uqsonet.models.set_embedding import SetEmbedding
from uqsonet_study.config import AttentionNetwork

SMALL = {
    "embedding_dim": 3,
    "heads": 2,
    "head_width": 5,
    "location_embedding": [7],
    "value_embedding": [6, 6],
    "attention": [8, 8],
}


def embedding(dim: int = 1, **changes) -> SetEmbedding:
    torch.manual_seed(0)
    return SetEmbedding(dim, AttentionNetwork(**(SMALL | changes))).double()


def draw(seed: int, b: int, m: int, dim: int = 1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(b, m, dim, generator=generator, dtype=torch.float64) * 2 - 1
    return x, torch.randn(b, m, generator=generator, dtype=torch.float64)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), m=st.integers(1, 12), extra=st.integers(0, 5))
@pytest.mark.parametrize("count_feature", [False, True])
@torch.no_grad()
def test_order_and_padding_have_no_influence(count_feature, seed, m, extra):
    model = embedding(count_feature=count_feature)
    x, y = draw(seed, 2, m)
    alone = model(x, y, torch.ones(2, m).bool())
    order = torch.randperm(m + extra, generator=torch.Generator().manual_seed(seed))
    junk_x, junk_y = draw(seed + 1, 2, extra)
    mask = (torch.arange(m + extra) < m).expand(2, -1)
    mixed_x, mixed_y = torch.cat([x, 9 * junk_x], 1), torch.cat([y, 1e3 * junk_y], 1)
    mixed = model(mixed_x[:, order], mixed_y[:, order], mask[:, order])
    torch.testing.assert_close(mixed, alone, rtol=0, atol=1e-12)


@torch.no_grad()
def test_values_and_places_do_have_influence():
    model, mask = embedding(), torch.ones(1, 4).bool()
    x, y = draw(1, 1, 4)
    h = model(x, y, mask)
    assert (model(x + 0.1, y, mask) - h).abs().max() > 1e-4
    assert (model(x, y + 0.1, mask) - h).abs().max() > 1e-4
    assert (model(x, y.flip(1), mask) - h).abs().max() > 1e-6  # pairs matter, not two sets


@torch.no_grad()
def test_h_equals_the_papers_formula_written_as_loops():
    """(eq:pooling), (eq:set): softmax over sensors of w_l / sqrt(d_emb), averaged v_l."""
    model = embedding(dim=2)
    x, y = draw(2, 1, 5, dim=2)
    tokens = [model.location(x[0, i]) + model.value(y[0, i : i + 1]) for i in range(5)]
    parts = []
    for head in range(2):
        w = torch.stack([model.score(t[None])[head, 0, 0] for t in tokens])
        v = torch.stack([model.projection(t[None])[head, 0] for t in tokens])
        weights = torch.exp(w / 3**0.5) / torch.exp(w / 3**0.5).sum()
        parts.append((weights[:, None] * v).sum(0))
    found = model(x, y, torch.ones(1, 5).bool())
    torch.testing.assert_close(found[0], torch.cat(parts))


@torch.no_grad()
def test_with_one_sensor_the_softmax_weight_is_one():
    model = embedding()
    x, y = draw(3, 4, 1)
    tokens = (model.location(x) + model.value(y[..., None]))[:, 0]
    expected = model.projection(tokens).permute(1, 0, 2).reshape(4, -1)
    torch.testing.assert_close(model(x, y, torch.ones(4, 1).bool()), expected)


@torch.no_grad()
def test_a_repeated_sensor_cannot_be_told_from_one_except_by_the_count_feature():
    x, y = draw(4, 1, 1)
    once, thrice = torch.ones(1, 1).bool(), torch.ones(1, 3).bool()
    plain, counting = embedding(), embedding(count_feature=True)
    repeated = x.expand(1, 3, 1), y.expand(1, 3), thrice
    torch.testing.assert_close(plain(x, y, once), plain(*repeated))
    assert float(counting(x, y, once)[0, -1]) == 1.0
    assert float(counting(*repeated)[0, -1]) == pytest.approx(1 / 3)


@torch.no_grad()
def test_large_scores_do_not_overflow():
    model = embedding()
    x, y = draw(5, 2, 4)
    for weight in model.score.weights:
        weight.mul_(1e4)
    assert model(x, 1e6 * y, torch.ones(2, 4).bool()).isfinite().all()


def test_gradients_do_not_pass_through_padding():
    model = embedding()
    x, y = draw(6, 1, 4)
    y.requires_grad_()
    model(x, y, torch.tensor([[True, True, False, False]])).sum().backward()
    assert (y.grad[0, 2:] == 0).all() and (y.grad[0, :2] != 0).all()

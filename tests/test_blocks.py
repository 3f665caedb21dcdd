"""Row blocks, and what is computed from them: column moments and empirical modes."""

import pytest
import torch

from uqsonet.errors import ConfigError
from uqsonet.gauss import blocks, principal_components
from uqsonet.gauss.blocks import RowBlocks, RunningMoments, column_moments, least_squares
from uqsonet.gauss.principal_components import empirical_modes


def fields(size: int, points: int, decay: float) -> torch.Tensor:
    """Random functions with mean far from zero and std of mode k falling as k^-decay."""
    generator = torch.Generator().manual_seed(3)
    basis = torch.linalg.qr(torch.randn(points, points, generator=generator).double()).Q
    std = torch.arange(1, points + 1).double() ** -decay
    draws = torch.randn(size, points, generator=generator).double()
    return (5 + (draws * std) @ basis.T).float()


def test_blocks_whole_and_map_agree_in_memory_and_as_a_stream():
    matrix = torch.arange(30.0).reshape(10, 3)
    passes = []

    def open_blocks(rows: int):
        passes.append(rows)
        return iter(matrix.split(rows))

    stream = RowBlocks((10, 3), open_blocks)
    for found in (RowBlocks.of(matrix), stream):
        assert [len(b) for b in found.blocks(4)] == [4, 4, 2] and len(found) == 10
        assert torch.equal(torch.cat(list(found.map(torch.square).blocks(3))), matrix**2)
        assert torch.equal(found.whole(), matrix)
    before = len(passes)
    assert torch.equal(torch.cat(list(stream.blocks(4))), matrix) and stream.whole() is not matrix
    assert len(passes) == before  # read once and kept
    assert RowBlocks.of(stream) is stream


@pytest.mark.parametrize("rows", [1, 7, 200])
def test_moments_of_blocks_are_those_of_the_whole(monkeypatch, rows):
    monkeypatch.setattr(blocks, "BLOCK_VALUES", rows * 7)
    matrix = fields(200, 7, 1.0)
    mean, std = column_moments(RowBlocks.of(matrix))
    torch.testing.assert_close(mean, matrix.double().mean(0), rtol=1e-13, atol=0)
    torch.testing.assert_close(std, matrix.double().std(0), rtol=1e-12, atol=0)
    if rows == 200:  # one block
        assert torch.equal(mean, matrix.double().mean(0))
    matrix += 1e4  # a mean much larger than the spread
    moments = RunningMoments(lambda centred: centred.T @ centred)
    moments.add_all(matrix.split(rows))
    expected = torch.cov(matrix.double().T)
    torch.testing.assert_close(moments.covariance, expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(moments.variance, expected.diagonal(), rtol=1e-9, atol=0)
    torch.testing.assert_close(moments.mean, matrix.double().mean(0), rtol=1e-14, atol=0)


@pytest.mark.parametrize("rows", [30, 200])
def test_least_squares_of_blocks_is_that_of_the_whole(rows):
    inputs, outputs = torch.randn(2, 200, 5, generator=torch.Generator().manual_seed(0)).double()
    inputs[:, 3] = 0  # carries nothing and gets no weight
    found = least_squares(zip(inputs.split(rows), outputs.split(rows), strict=True))
    expected = torch.linalg.pinv(inputs) @ outputs
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert found[3].abs().max() < 1e-15


def exact_modes(matrix: torch.Tensor, count: int):
    centred = matrix.double() - matrix.double().mean(0)
    _, singular, right = torch.linalg.svd(centred, full_matrices=False)
    std = singular / (len(matrix) - 1) ** 0.5
    return std[:count], right[:count].T, float((std[count:] ** 2).sum() / matrix.shape[1]) ** 0.5


@pytest.mark.parametrize("values", [700, 100_000])
def test_summed_covariance_gives_the_principal_components(monkeypatch, values):
    monkeypatch.setattr(blocks, "BLOCK_VALUES", values)
    matrix = fields(300, 20, 0.7)
    std, vectors, remainder = exact_modes(matrix, 6)
    found = empirical_modes(RowBlocks.of(matrix), 6, "modes")
    torch.testing.assert_close(found.std, std, rtol=1e-11, atol=0)
    torch.testing.assert_close(found.mean, matrix.double().mean(0), rtol=1e-13, atol=0)
    cosines = (found.vectors * vectors).sum(0).abs()
    torch.testing.assert_close(cosines, torch.ones(6).double(), rtol=0, atol=1e-10)
    assert found.remainder == pytest.approx(remainder, rel=1e-11)


@pytest.mark.parametrize(("decay", "values"), [(1.0, 20_000), (2.0, 10_000_000)])
def test_randomised_modes_are_close_to_the_exact_ones(monkeypatch, decay, values):
    monkeypatch.setattr(blocks, "BLOCK_VALUES", values)
    monkeypatch.setattr(principal_components, "EXACT_POINTS", 100)
    matrix, count, leading = fields(1000, 300, decay), 60, 30
    std, vectors, remainder = exact_modes(matrix, count)
    found = empirical_modes(RowBlocks.of(matrix), count, "modes")
    identity = torch.eye(count).double()
    torch.testing.assert_close(found.vectors.T @ found.vectors, identity, rtol=0, atol=1e-12)
    assert (found.std[:leading] / std[:leading] - 1).abs().max() < 1e-4
    assert (found.std / std - 1).abs().max() < 2e-2
    # Sine of the largest angle between the leading subspace and what was found.
    outside = vectors[:, :leading] - found.vectors @ (found.vectors.T @ vectors[:, :leading])
    assert torch.linalg.matrix_norm(outside, 2) < 2e-2
    # The remainder is that of the vectors returned: no modes leave out less than the exact ones.
    centred = matrix.double() - found.mean
    left = centred - centred @ found.vectors @ found.vectors.T
    actual = float((left.square().sum() / (len(matrix) - 1) / matrix.shape[1]).sqrt())
    assert found.remainder == pytest.approx(actual, rel=1e-9)
    assert remainder <= found.remainder < 1.01 * remainder


def test_more_modes_than_samples_or_points_are_refused():
    for shape, most in (((5, 9), 4), ((9, 5), 5)):
        with pytest.raises(ConfigError, match=rf"here.x = 7.*at most {most} modes"):
            empirical_modes(RowBlocks.of(torch.randn(shape)), 7, "here.x")

"""Empirical Karhunen-Loeve (principal component) bases of functions on a grid.

Functions come in blocks and are never held as a whole. On few points their covariance is summed
and decomposed. Of few functions on many points the products of all pairs are (the method of
snapshots: Sirovich, Q. Appl. Math. 45, 1987). Of many functions on many points the leading
eigenvectors of the covariance are found by randomised subspace iteration: it is applied to `count`
and some more random directions, `PASSES` times.
Eigenvalue k then has a relative error of about (lambda_l / lambda_k)^(2 PASSES), l the number of
directions: rounding for leading modes of a smooth field, per cents for the last ones of a rough
one. `std` and `remainder` belong to the vectors returned and have no such error.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from uqsonet.errors import ConfigError
from uqsonet.gauss.blocks import RowBlocks, RunningMoments, projected

LOG = logging.getLogger("uqsonet")

EXACT_POINTS = 2000  # or functions, whose products are formed, at most (32 MB, seconds)
STD_ROUNDING = 1e-6  # components of few functions of smaller std, relative to the largest, are this
MAX_SPECTRUM = 400  # components of many functions on many points whose variances are worked out
PASSES = 2  # power iterations of the randomised method


@dataclass(frozen=True)
class Modes:
    """Leading principal components of a sample of functions, float64."""

    mean: Tensor  # (n,)
    vectors: Tensor  # (n, k), orthonormal columns, by falling variance
    std: Tensor  # (k,), of each coefficient
    remainder: float  # root mean square, over points and samples, of what k modes leave out

    def coefficients(self, functions: Tensor) -> Tensor:
        """Project functions (N, n) to coefficients (N, k)."""
        return (functions.double() - self.mean) @ self.vectors


def empirical_modes(
    functions: RowBlocks, count: int, key: str, weights: Tensor | None = None
) -> Modes:
    """Return the leading `count` principal components of functions (N, n).

    With weights (n,) of the points, one on average, products of functions are weighted sums:
    vectors are orthonormal in that sense, and do not follow the refinement of a mesh.

    It raises `ConfigError` if more modes are asked for than samples or points can give; `key` names
    the setting.
    """
    if weights is not None:
        root = weights.sqrt()
        found = empirical_modes(functions.times(root), count, key)
        return replace(found, mean=found.mean / root, vectors=found.vectors / root[:, None])
    size, points = functions.shape
    most = min(size - 1, points)
    if count > most:
        raise ConfigError(
            f"{key} = {count}: {size} functions on {points} points give at most {most} modes"
        )
    if points <= EXACT_POINTS:
        return _exact(functions, count)
    if _as_snapshots(functions):
        return _of_snapshots(functions, count)
    return _randomised(functions, count)


def _snapshots(functions: RowBlocks) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean (n,), variances (N,) and coefficients (N, N) of few functions on many points.

    They come from the products of all pairs. Variances fall; coefficients are over their standard
    deviation, with a column for each component.
    """
    if "snapshots" not in functions.kept:
        size, points = functions.shape
        LOG.log(15, "products of %d functions on %d points", size, points)
        mean = torch.empty(points, dtype=torch.float64)
        products = torch.zeros(size, size, dtype=torch.float64)
        for part, values in functions.column_blocks():
            centred = values.double()
            mean[part] = centred.mean(0)
            centred = centred - mean[part]
            products += centred @ centred.T
        variance, vectors = torch.linalg.eigh(products / (size - 1))
        turned = vectors.flip(1) * (size - 1) ** 0.5
        functions.kept["snapshots"] = mean, variance.flip(0).clamp_min(0), turned
    return functions.kept["snapshots"]


def _of_snapshots(functions: RowBlocks, count: int) -> Modes:
    """Return components of few functions on many points; those that are rounding are zero."""
    mean, variance, coefficients = _snapshots(functions)
    points, std = len(mean), variance[:count].sqrt()
    seen = std > STD_ROUNDING * std[0]
    combined = coefficients[:, :count] / (torch.where(seen, std, torch.inf) * (len(functions) - 1))
    LOG.log(15, "%d modes on %d points", count, points)
    vectors = torch.empty(points, count, dtype=torch.float64)
    for part, values in functions.column_blocks():
        vectors[part] = (values.double() - mean[part]).T @ combined
    return Modes(mean, vectors, std, float((variance[count:].sum() / points).sqrt()))


def spectrum(functions: RowBlocks, weights: Tensor | None = None) -> tuple[Tensor, float, Tensor]:
    """Return variances (k,) of functions (N, n) along their principal components, without these.

    They fall, and are of all components, or of the leading `MAX_SPECTRUM` of many functions on many
    points. Then the variance of all, and coefficients (N, 10) of the functions, over their standard
    deviation; fewer where there are fewer. Weights (n,) are those of `empirical_modes`.
    """
    functions = functions if weights is None else functions.times(weights.sqrt())
    size, points = functions.shape
    if _as_snapshots(functions):
        _, every, coefficients = _snapshots(functions)
        variance = every[: size - 1]
        return variance, float(variance.sum()), coefficients[:, :10]
    count = min(size - 1, points, points if points <= EXACT_POINTS else MAX_SPECTRUM)
    modes = empirical_modes(functions, count, "modes")
    variance = modes.std.square()
    total = float(variance.sum() + points * modes.remainder**2)
    leading = projected(functions, modes.mean, modes.vectors[:, :10])
    return variance, total, leading / modes.std[:10].clamp_min(1e-300)


def _as_snapshots(functions: RowBlocks) -> bool:
    """Return whether functions are few, their points many, and columns easy to read."""
    size, points = functions.shape
    return points > EXACT_POINTS >= size and functions.by_columns


def _exact(functions: RowBlocks, count: int) -> Modes:
    """Decompose the covariance, summed over blocks."""
    moments = RunningMoments(lambda rows: rows.T @ rows).add_all(functions.blocks())
    values, vectors = torch.linalg.eigh(moments.covariance)
    vectors, values = vectors.flip(1), values.flip(0).clamp_min(0)
    remainder = float((values[count:].sum() / functions.shape[1]).sqrt())
    return Modes(moments.mean, vectors[:, :count].contiguous(), values[:count].sqrt(), remainder)


def _randomised(functions: RowBlocks, count: int) -> Modes:
    """Find the leading eigenvectors of the covariance without forming it.

    Products with blocks are in float32 and summed in float64: they only turn the subspace. The
    last pass, which gives variances, is in float64 throughout.
    """
    size, points = functions.shape
    width = min(points, count + max(32, count // 4))
    # Part of the method and no random input: the same directions for every seed.
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(points, width, generator=generator, dtype=torch.float64)
    moments = RunningMoments()
    for _ in range(PASSES):
        narrow = directions.float()
        moments = RunningMoments(lambda rows, to=narrow: rows.float().T @ (rows.float() @ to))
        moments.add_all(functions.blocks())
        directions = torch.linalg.qr(moments.covariance).Q
    mean, gram = moments.mean, torch.zeros(width, width, dtype=torch.float64)
    for block in functions.blocks():
        coefficients = (block.double() - mean) @ directions
        gram += coefficients.T @ coefficients
    values, turn = torch.linalg.eigh(gram / (size - 1))
    values, turn = values.flip(0)[:count].clamp_min(0), turn.flip(1)[:, :count]
    # Of the vectors returned, exactly.
    left = (moments.variance.sum() - values.sum()).clamp_min(0)
    return Modes(mean, directions @ turn, values.sqrt(), float((left / points).sqrt()))

"""What is fitted to pairs in closed form: bases, the linear operator, and the law of the rest.

What is left over of held-out pairs (`widen_band`) is part of the law of u. Residuals of training
pairs are too small for that, by as much as the branch has fitted them.

Where the operator itself is random (sections 4.3, 4.4), the law of u given the whole of kappa is
``u = W a + r`` with input coefficients a ~ N(0, I) and a residual r that is random given a. Its
covariance depends on kappa: where k is small, an unseen source moves u more. To first order
``C(a) = C_0 + sum_j a_j S_j``, and ``S_j = E[a_j r r^T]`` because the coefficients are orthonormal.
Given an observation set, C is linear in a, so ``E[C(a) | O] = C(E[a | O])`` needs no sampling.

The shape of r need not be Gaussian: the solution of 4.4 is skewed and has heavy tails, as its
coefficient is lognormal. So r is drawn as in a residual bootstrap (Efron, Ann. Statist. 7, 1979):
residuals of training pairs are standardised and kept, and a root of C gives one of them, picked at
random, the covariance that the observations ask for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import isotonic_regression
from torch import Tensor

from uqsonet.gauss.blocks import least_squares, projected
from uqsonet.gauss.gaussian import covariance_root
from uqsonet.gauss.given import spread
from uqsonet.gauss.principal_components import empirical_modes
from uqsonet.laws.bases import KarhunenLoeveBases
from uqsonet.operator.config import KEPT
from uqsonet.runs.functions import Functions

Model = Any  # a `KarhunenLoeveModel`, whose methods call this file

BUFFERS = "residual_covariance", "residuals", "bases.input_remainder", "output_remainder"
"""Buffers of a model that depend on its trained branch."""

INPUT_MODES, OUTPUT_MODES = 256, 64  # maximum numbers of modes of predictors without networks
PRODUCT_ROWS = 2048  # pairs in one batch of outer products
LEFT_OVER = 32  # held-out functions whose parts outside the modes are kept
NEGLIGIBLE_STD = 1e-6  # directions with a smaller std, relative to the largest, are rounding


def sized_bases(
    functions: Functions, input_modes: int = INPUT_MODES, output_modes: int = OUTPUT_MODES
) -> KarhunenLoeveBases:
    """Return bases that are not fitted yet, of at most so many modes; of few pairs they are fewer.

    Modes below the rounding of the data are always left out.
    """
    most = functions.size - 1
    return KarhunenLoeveBases(
        functions.fields,
        min(input_modes, most, functions.kappa_rows.shape[1]),
        min(output_modes, most, functions.u_rows.shape[1]),
    )


def fit_bases(bases: KarhunenLoeveBases, functions: Functions, linear: bool = True) -> None:
    """Set both bases from training data and, if asked for, the least-squares operator."""
    if functions.keeper is None:
        fit_anew(bases, functions, linear)
    else:
        functions.keeper(fit_anew, bases, functions, linear)


@torch.no_grad()
def fit_anew(bases: KarhunenLoeveBases, functions: Functions, linear: bool) -> None:
    """Set both bases, and the operator, without looking whether they are kept in a file."""
    r, p = bases.input_factor.shape[1], bases.output_modes.shape[1]
    inputs, weights = functions.transformed_inputs(), bases.input_weights
    modes = empirical_modes(inputs, r, "network.input_modes", weights)
    bases.input_mean.copy_(modes.mean)
    # Modes below the rounding of stored data carry nothing and must not be divided by.
    seen = modes.std > 1e-6 * modes.std[0]
    bases.to_coefficients.copy_(modes.vectors).div_(modes.std.clamp_min(1e-300)).mul_(seen)
    if weights is not None:
        bases.to_coefficients.mul_(weights[:, None])
    bases.input_factor.copy_(modes.vectors.mul_(modes.std).mul_(seen))
    bases.input_remainder.fill_(modes.remainder)
    del modes  # as large as the bases
    modes = empirical_modes(functions.u_rows, p, "network.output_modes", bases.output_weights)
    bases.output_mean.copy_(modes.mean)
    bases.output_modes.copy_(modes.vectors)
    bases.output_scale.fill_(float(modes.std.norm()))
    if linear:
        # Standardised coefficients are uncorrelated: normal equations lose no accuracy.
        bases.linear_weight.copy_(least_squares(_keeping(bases, functions)).T)


def coefficients(
    bases: KarhunenLoeveBases, functions: Functions
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield standardised coefficients of inputs (B, r) and outputs (B, p), float64."""
    if functions.u_rows.wide:
        a = projected(functions.transformed_inputs(), bases.input_mean, bases.to_coefficients)
        c = projected(functions.u_rows, bases.output_mean, bases.output_projection())
        yield a, c / bases.output_scale
        return
    modes, forward = bases.output_projection().double(), bases.fields.input.transform.forward
    for kappa, u in functions.blocks():
        a = (forward(kappa.double()) - bases.input_mean) @ bases.to_coefficients
        yield a, (u.double() - bases.output_mean) @ modes / bases.output_scale


def _keeping(bases: KarhunenLoeveBases, functions: Functions) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield `coefficients` and keep them for `targets`: a pass over the data takes long."""
    kept = []
    for left, right in coefficients(bases, functions):
        kept.append((left.float(), right.float()))
        yield left, right
    a, c = (torch.cat(part) for part in zip(*kept, strict=True))
    functions.keep(bases.to_coefficients, {"a": a, "c": c})


def targets(bases: KarhunenLoeveBases, functions: Functions) -> dict[str, Tensor]:
    """Return standardised coefficients: of inputs `a` (N, r), of outputs `c` (N, p)."""
    if functions.kept(bases.to_coefficients) is None:
        for _ in _keeping(bases, functions):
            pass
    return dict(functions.kept(bases.to_coefficients) or {})


@torch.no_grad()
def fit_constants(model: Model, functions: Functions) -> None:
    """Set the bases of a model, its linear branch, and the law of a random operator's rest."""
    fit_bases(model.bases, functions, model.config.linear_skip)
    if model.fields.random_operator:
        kept = targets(model.bases, functions)
        left = unexplained(kept["a"], kept["c"], model.bases.linear_weight)
        model.residual_covariance.copy_(residual_covariance(left))
        model.residual_slopes.copy_(residual_slopes(kept["a"], left))
        model.residuals.copy_(standardised_residuals(left))


Splits = Sequence[tuple[Functions, Model]]  # held-out pairs, and an operator new to them


@torch.no_grad()
def held_out_std(splits: Splits) -> Tensor:
    """Return the std (r,) of held-out inputs in modes whose fitted runs have 1; at most 1.

    Modes of few rough runs carry what these runs happen to hold, and other runs have less there.
    Mean squares are made to rise or to fall with the mode. Modes that share a level are taken
    together, and count as they would two standard errors above: chance alone changes nothing.
    """
    known = []
    for pairs, model in splits:
        bases = model.bases
        known.append(projected(pairs.transformed_inputs(), bases.input_mean, bases.to_coefficients))
    found = torch.cat(known).square().numpy()
    squares = found.mean(0)
    both = [isotonic_regression(squares, increasing=rising) for rising in (True, False)]
    nearest = min(both, key=lambda one: float(np.square(one.x - squares).sum()))
    raised = np.ones(len(squares))
    for start, end in pairwise(nearest.blocks):
        level = found[:, start:end].mean(1)
        raised[start:end] = level.mean() + 2 * level.std() / len(level) ** 0.5
    return torch.from_numpy(np.minimum(raised, 1)).sqrt()


@torch.no_grad()
def scale_modes(bases: KarhunenLoeveBases, std: Tensor) -> None:
    """Multiply modes of inputs by stds (k,); modes beyond these by the last one."""
    std = std[torch.arange(bases.input_factor.shape[1]).clamp_max(len(std) - 1)]
    for buffer in (bases.input_factor, bases.linear_weight, bases.mode_std):
        buffer.mul_(std)
    bases.to_coefficients.div_(std)


@torch.no_grad()
def widen_band(model: Model, splits: Splits) -> tuple[Tensor, Tensor]:
    """Make what operators leave unexplained of held-out pairs part of a model's law.

    Outputs are on the training grid. Returned are roots (n, q) and (M, q) of the covariance of what
    lies outside the span of the modes, of inputs and of outputs: functions that held-out pairs
    leave over, scaled so that the variance at each point is that of all pairs.
    """
    found = [_left_over(model, held, source) for held, source in splits]
    coefficients, inputs, outputs = zip(*found, strict=True)
    c = torch.cat(coefficients)
    shares = torch.tensor([len(one) for one in coefficients], dtype=torch.float64) / len(c)
    roots, sizes = [], []
    for side in (inputs, outputs):
        square = torch.stack([one.square for one in side], 1) @ shares
        some = torch.cat([one.some[:, : math.ceil(LEFT_OVER / len(side))] for one in side], 1)
        roots.append(scaled_root(some, square))
        sizes.append(float(square.mean().sqrt()))
    set_residuals(model, (c / model.bases.output_scale.double()).float(), *sizes)
    return roots[0], roots[1]


def scaled_root(functions: Tensor, square: Tensor) -> Tensor:
    """Return functions (M, q), scaled at each point so that their squares sum to `square` (M,)."""
    size = functions.square().sum(1).clamp_min(1e-300)
    return (functions * (square / size).sqrt()[:, None]).float()


class Outside(NamedTuple):
    """What modes leave out of held-out functions: mean square (M,), and of some all (M, q)."""

    square: Tensor
    some: Tensor


def _left_over(model: Model, held: Functions, source: Model) -> tuple[Tensor, Outside, Outside]:
    """Return what an operator leaves of held-out pairs, in a model's output modes and beyond.

    These are coefficients (V, p) of residuals, and what modes leave out of inputs and outputs.
    """
    bases, modes, inputs = source.bases, model.bases.output_modes, held.transformed_inputs()
    a = projected(inputs, bases.input_mean, bases.to_coefficients)
    answers = source.answers_to(held, a).double()
    few = slice(0, LEFT_OVER)

    def left_inputs() -> Iterator[tuple[slice, Tensor]]:
        for part, values in inputs.column_blocks():
            seen = bases.input_mean[part] + a @ bases.input_factor[part].double().T
            yield part, values.double() - seen

    def residuals() -> Iterator[tuple[slice, Tensor]]:
        for part, u in held.u_rows.column_blocks():
            known = bases.output_modes[part].double() * bases.output_scale.double()
            yield part, u.double() - (bases.output_mean[part] + answers @ known.T)

    c = torch.zeros(held.size, modes.shape[1], dtype=torch.float64)
    onto = model.bases.output_projection()
    for part, left in residuals():
        c += left @ onto[part].double()
    beyond = ((part, left - c @ modes[part].double().T) for part, left in residuals())
    found = []
    for blocks in (left_inputs(), beyond):
        rows = [(left.square().mean(0), left[few].T) for _, left in blocks]
        found.append(Outside(*(torch.cat(one) for one in zip(*rows, strict=True))))
    return c, *found


@torch.no_grad()
def set_residuals(model: Model, c: Tensor, input_remainder: float, output_remainder: float) -> None:
    """Set a model's law of residuals; of hundreds of pairs it is the same for all inputs.

    `c` (V, p) are their scaled coefficients, and remainders the root mean square of what the modes
    leave out of inputs and outputs.
    """
    model.residual_covariance.copy_(residual_covariance(c))
    model.residuals.copy_(standardised_residuals(c))
    model.bases.input_remainder.fill_(input_remainder)
    model.output_remainder.fill_(output_remainder)


def left_over_std(model: Model) -> Tensor:
    """Return the std (M,), float64, of what an operator leaves over at points of the output."""
    modes = model.bases.output_modes.double() * model.bases.output_scale.double()
    inside = spread(modes, model.residual_covariance[None])[0]
    return (inside.square() + model.output_remainder.square()).sqrt()


def unexplained(
    a: Float[Tensor, "N r"], c: Float[Tensor, "N p"], weight: Float[Tensor, "p r"]
) -> Float[Tensor, "N p"]:
    """Return what a linear operator leaves of coefficients of outputs, float64."""
    return c.double() - a.double() @ weight.double().T


def with_left_over(
    weight: Float[Tensor, "p r"], pairs: Mapping[str, Tensor]
) -> Float[Tensor, "p rp"]:
    """Return a linear operator, and beside it a root (p, p) of the covariance that it leaves."""
    left = unexplained(pairs["a"], pairs["c"], weight)
    return torch.cat([weight.double(), covariance_root(residual_covariance(left))], 1)


def residual_covariance(residuals: Float[Tensor, "N p"]) -> Float[Tensor, "p p"]:
    """Return the covariance C_0 of residuals, float64."""
    residuals = residuals.double()
    return residuals.T @ residuals / len(residuals)


def residual_slopes(
    a: Float[Tensor, "N r"], residuals: Float[Tensor, "N p"]
) -> Float[Tensor, "r p p"]:
    """Return the slopes S_j of the residual's covariance along the input coefficients, float64.

    Each is an average over N pairs and shrunk by the share of its squared norm that is not
    sampling noise, down to zero where all of it may be.
    """
    r, p = a.shape[1], residuals.shape[1]
    slopes = torch.zeros(r, p * p, dtype=torch.float64)
    noise = torch.zeros(r, dtype=torch.float64)
    for inputs, left in zip(a.split(PRODUCT_ROWS), residuals.split(PRODUCT_ROWS), strict=True):
        inputs, left = inputs.double(), left.double()
        slopes += inputs.T @ (left[:, :, None] * left[:, None, :]).flatten(1)
        # The variance of one pair's a_j r r^T, summed over its entries.
        noise += inputs.square().T @ left.square().sum(1).square()
    slopes, noise = slopes / len(a), noise / len(a) ** 2
    share = 1 - noise / slopes.square().sum(1).clamp_min(1e-300)
    return (slopes * share.clamp_min(0)[:, None]).view(r, p, p)


def standardised_residuals(residuals: Float[Tensor, "N p"]) -> Float[Tensor, "k p"]:
    """Return `KEPT` residuals of the first pairs, with mean zero and covariance I, float64.

    Each is multiplied by the inverse of the symmetric root of their covariance. Of all roots this
    one changes them least. So a residual that is multiplied by the root of a similar covariance
    comes out close to what it was. Directions in which nothing is left open stay zero.
    """
    r = residuals[:KEPT].double()
    repeated = torch.arange(KEPT) % len(r)
    share = repeated.bincount()[:, None] / KEPT
    r = r - (share * r).sum(0)
    values, vectors = torch.linalg.eigh(r.T @ (share * r))
    seen = values > NEGLIGIBLE_STD**2 * values[-1]
    scaled = r @ vectors * torch.where(seen, values, torch.inf).rsqrt()
    return (scaled @ vectors.T)[repeated]

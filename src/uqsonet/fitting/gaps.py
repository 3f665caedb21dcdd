"""`fit` on runs of which only some values were read: stations, clouds, a few stored probes.

Inputs and outputs stand side by side, and a joint Gaussian law of all of them is learned from the
readings (`uqsonet.gauss.incomplete`, `uqsonet.fitting.gap_recipes`). It becomes an ordinary model:
modes of each side, the linear operator between their coefficients, what it leaves over, and what
modes leave out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uqsonet.emulator.calibration import CalibrationRuns, calibration_runs
from uqsonet.emulator.emulator import Emulator
from uqsonet.fields.stacked import point_weights
from uqsonet.fitting.card import limits
from uqsonet.fitting.gap_recipes import START, Learner, Recipe, Seen, choose_recipe, scores
from uqsonet.fitting.held_out import LEVELS
from uqsonet.gauss.blocks import RowBlocks
from uqsonet.gauss.incomplete import Factors
from uqsonet.gauss.seeds import torch_generator
from uqsonet.operator.closed_form import scaled_root, standardised_residuals
from uqsonet.operator.config import KEPT, KarhunenLoeveNetwork
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.runs.gaps import gaps_of
from uqsonet.runs.runs import Runs
from uqsonet.runs.soundness import warn_if_alike

LOG = logging.getLogger("uqsonet")

SCORED_RUNS = 200  # runs that recipes are compared on, at most
LEAST_MODE = 1e-6  # smaller modes, over the largest, are rounding
ROOT = 32  # functions behind what modes leave out


def model_of(data: Seen, law: Factors, unsure: Tensor) -> tuple[KarhunenLoeveModel, Any]:
    """Return the model that a joint law is, and roots of what its modes leave out.

    With input modes ``W_in = U S V^T`` of the common factors a, the input's coefficients are V^T a.
    What the other directions of a say of the output is what the operator leaves over.

    Parameters
    ----------
    data : Seen
    law : Factors
    unsure : Tensor, shape (P,)
        Variance that errors of the law add to values at each point.
    """
    ins, outs = data.columns
    sides = data.fields
    left = (law.variance - data.noise.square()).clamp_min(0)
    input_weights, output_weights = (_weights(one.grid) for one in (sides.input, sides.output))
    u, s, v = _modes(law.factor[ins], input_weights)
    modes, size, turn = _modes(law.factor[outs], output_weights)
    network = KarhunenLoeveNetwork(
        input_modes=len(s), output_modes=len(size), branch=[], held_out_residuals=True
    )
    model = KarhunenLoeveModel(sides, network, 0.0).eval()
    bases, scale = model.bases, float(size.norm())
    answers = size[:, None] * turn.T / scale  # (p, r), of all factors
    bases.input_mean.copy_(law.mean[ins])
    bases.input_factor.copy_(u * s)
    bases.to_coefficients.copy_(u / s.clamp_min(1e-300) * input_weights[:, None])
    bases.input_remainder.fill_(float(left[ins].mean().sqrt()))
    bases.output_mean.copy_(law.mean[outs])
    bases.output_modes.copy_(modes)
    bases.output_scale.fill_(scale)
    bases.linear_weight.copy_(answers @ v)
    rest = answers - answers @ v @ v.T
    model.residual_covariance.copy_(rest @ rest.T)
    generator = torch_generator(data.seed, "gaps", "rest")
    normals = torch.randn(KEPT, len(size), generator=generator)
    model.residuals.copy_(standardised_residuals(normals))
    model.output_remainder.fill_(float(left[outs].mean().sqrt()))
    roots = []
    for side in (ins, outs):
        some = torch.randn(len(side), ROOT, generator=generator, dtype=torch.float64)
        roots.append(scaled_root(some, left[side] + unsure[side]))
    return model, tuple(roots)


def _weights(domain: Any) -> Tensor:
    """Return the weights (n,) of points, ones where they count alike."""
    weights = point_weights(domain)
    return torch.ones(domain.size, dtype=torch.float64) if weights is None else weights


def _modes(factor: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``factor = u s v^T`` (n, k), (k,), (r, k), with u orthonormal under weights (n,).

    Directions that are rounding are left out.
    """
    root = weights.sqrt()[:, None]
    u, s, v = torch.linalg.svd(root * factor, full_matrices=False)
    kept = s >= LEAST_MODE * s[0].clamp_min(LEAST_MODE)
    kept[0] = True
    return u[:, kept] / root, s[kept], v[kept].T


def fit_gaps(runs: Runs, sensors: object, noise_std: Mapping[str, float], seed: int) -> Emulator:
    """Return the model of runs with gaps (`uqsonet.fit`)."""
    warn_if_alike(runs)
    data, splits = Seen.of(runs, sensors, noise_std, seed), runs.splits(seed)
    counts = range(len(data.plan.counts))
    held = []
    for split in splits:
        some = split.validation[:SCORED_RUNS]
        read = [data.held_out(some, count, "validation") for count in counts]
        held.append((Learner(data, split.training), read))
    recipe, tried = choose_recipe(held)
    LOG.info("chosen: %s", recipe)
    in_turn = len(splits) > 1
    every = [np.concatenate([one.training, one.validation]) for one in splits[:1]]
    final, law = _emulator(data, Learner(data, every[0]), recipe, noise_std)
    calibration, judged = [], []
    for split, (learner, _) in zip(splits, held, strict=True):
        one, own = _emulator(data, learner, recipe, noise_std) if in_turn else (final, law)
        calibration.append(_calibration(data, split.calibration, one if in_turn else None))
        judged.append((own, split.calibration))
    sizes = {
        "training": len(every[0]) if in_turn else len(splits[0].training),
        "validation": sum(len(one.validation) for one in splits),
        "calibration": sum(map(len, calibration)),
    }
    fields = {f.name: f for f in data.inputs + data.outputs}
    stored = {**runs.inputs, **runs.outputs}
    card: dict[str, Any] = {"title": runs.name, "data": {"runs": len(runs), **sizes}}
    card["recipe"] = {
        "branch": "linear",
        "law": "gaussian",
        "factors": law.factor.shape[1],
        "transforms": {name: f.transform.name for name, f in fields.items()},
        "sensors": data.plan.stated,
        "seed": seed,
        "gaps": {name: str(gaps_of(one)) for name, one in stored.items()},
        "learned_by": recipe.kind,
        "tried": tried,
    }
    card["scores"] = list(_rows(data, judged))
    kept = [one for one in calibration if len(one)]
    found = replace(final, calibration=CalibrationRuns(tuple(kept)), card=card)
    card["limits"] = limits(found, runs, card)
    return found


def _emulator(
    data: Seen, learner: Learner, recipe: Recipe, noise_std: Mapping[str, float]
) -> tuple[Emulator, Factors]:
    """Return the model that a recipe learns, and the law that it is."""
    law = learner.law(recipe)
    weight = START if recipe.steps else recipe.weight
    unsure = law.unsure(learner.rows, weight, learner.kernel(recipe.width))
    unsure = unsure + learner.moments.unsure * (learner.moments.counts == 0)
    model, roots = model_of(data, law, unsure)
    found = Emulator(model, data.inputs, data.outputs, noise_std=dict(noise_std), remainder=roots)
    return found, replace(law, variance=law.variance + unsure)


def _calibration(data: Seen, runs: np.ndarray, emulator: Emulator | None) -> Any:
    """Return what is kept of calibration runs; NaN where nothing was read."""
    rows = data.rows[runs].float()
    inputs, outputs = (RowBlocks.of(rows[:, columns]) for columns in data.columns)
    return calibration_runs(inputs, outputs, data.seed, emulator)


def _rows(data: Seen, judged: Sequence[tuple[Factors, np.ndarray]]) -> Iterator[dict[str, Any]]:
    """Yield scores on hidden readings of calibration runs, by output and number of sensors."""
    first = 0
    for field in data.outputs:
        own = data.columns[1][first : first + field.domain.size]
        first += field.domain.size
        for number, count in enumerate(data.plan.counts):
            parts = []
            for law, runs in judged:
                seen, truth = data.held_out(runs, number, "calibration")
                alone = torch.full_like(truth, torch.nan)
                alone[:, own] = truth[:, own]
                free = torch.full_like(seen, torch.nan)
                parts.append(torch.stack([scores(law, seen, alone), scores(law, free, alone)]))
            found = torch.cat(parts, 2)
            found = found[:, :, ~found[0, 0].isnan()]
            for method, one in zip(("uqsonet", "sensor_free"), found, strict=True):
                crps, *shares = one.mean(1).tolist()
                row = {"method": method, "field": field.name, "sensors": count}
                row |= {"runs": one.shape[1], "crps": float(f"{crps * field.scale:.5g}")}
                bands = zip(LEVELS, shares, strict=True)
                yield row | {f"plain_{100 * q:.0f}": round(share, 4) for q, share in bands}

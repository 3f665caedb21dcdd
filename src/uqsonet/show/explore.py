"""A page to play with a model: its law, and the program that conditions it, in one HTML file.

The page computes in the browser what `Emulator.condition` computes here, from the same weights and
for the same draws of z. Its program is written in TypeScript (folder ``explore`` of the sources)
and lies built in ``uqsonet/show/web``.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uqsonet import __version__
from uqsonet.errors import ConfigError
from uqsonet.fields.cloud import Scattered
from uqsonet.fields.field import Transform, part_columns
from uqsonet.fields.grid import Grid
from uqsonet.fields.layout import as_base64
from uqsonet.fields.stacked import JointDomain, domain_as_dict
from uqsonet.files import path_of, write_text
from uqsonet.gauss.given import MOMENT_SAMPLES, MOMENT_SEED, sobol_engine
from uqsonet.operator.model import KarhunenLoeveModel

SMALL = 1 << 20  # arrays of up to this many numbers are written as they are
TUCKER_ERROR = 1e-6  # of a factored array, at most, over the largest norm of its columns
ROUNDED_LEVELS = 32767  # on each side of zero, to which columns of large arrays are rounded
SHOWN = {1: 201, 2: 64}  # points along an axis that a page shows, by dimension (field.ts)
RESIDUALS = 64  # standardised residuals behind sample functions
MAX_BYTES = 10_000_000  # of a page; a larger one is too much for a phone or a mail


def write_page(
    emulator: Any, path: Path | str, name: str, exact: dict[str, Any] | None = None
) -> int:
    """Write a page (``.html``) to explore a model with; return its size in bytes.

    `name` is what the page calls a model whose card has no title; `exact` is as for `page`.

    It raises `ConfigError` if the page cannot show the model (`page`), would be larger than
    `MAX_BYTES`, or the path has another ending.
    """
    if Path(path).suffix != ".html":
        raise ConfigError(f"{path}: pages are written as .html")
    text = page(emulator, name, exact)
    size = len(text.encode())
    if size > MAX_BYTES:
        fields = ", ".join(
            f"{one.name} ({one.domain.size:,} points)" for one in emulator.inputs + emulator.outputs
        )
        raise ConfigError(
            f"{path}: the page of {name} would have {size / 1e6:.1f} MB, at most "
            f"{MAX_BYTES / 1e6:.3g} MB are allowed; nearly all of it are modes on the points of "
            f"{fields}: fit the model to runs on fewer points, every second one for example"
        )
    write_text(path_of(path), text)
    return size


def page(emulator: Any, name: str, exact: dict[str, Any] | None = None) -> str:
    """Return the page of a model as HTML.

    With `exact` the page draws the exact posterior beside the model's own: ``mean`` (n,) and
    ``factor`` (n, r) of a Gaussian input, ``source`` (n,) and ``coefficient`` of the equation
    -coefficient (k u')' = source, zero at both ends.

    It raises `ConfigError` if the model is no Karhunen-Loeve model with a Gaussian law, or has a
    field of three dimensions.
    """
    whole, style, script = (
        (resources.files("uqsonet.show") / "web" / f"explore.{kind}").read_text(encoding="utf-8")
        for kind in ("html", "css", "js")
    )
    title = str(emulator.card.get("title") or name)
    described = {
        "title": title,
        "name": name,
        "version": __version__,
        **description(emulator, exact),
    }
    return Template(whole).substitute(
        title=html.escape(title),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        model=json.dumps(described, allow_nan=False).replace("<", "\\u003c"),
        note=_note(emulator),
    )


def _note(emulator: Any) -> str:
    """Return what stands above the page of a model that does not answer all sensors."""
    others = [
        ", ".join(one.name for one in getattr(emulator, side))
        for side in ("inputs", "outputs")
        if getattr(emulator, f"given_{side}") is not None
    ]
    if not others:
        return ""
    text = (
        f"This page shows the model alone. For sensors of {' and of '.join(others)} a plainer "
        "answer had better scores on held-out runs; uqsonet predict gives that one."
    )
    return f'<aside class="panel"><p class="refused">{html.escape(text)}</p></aside>'


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def description(emulator: Any, exact: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what the page has to know of a model, ready for JSON.

    It raises `ConfigError`, see `page`.
    """
    _require_shown(emulator)
    model = emulator.operator
    straight, offset = model.straight()
    network: dict[str, Any] | None = None
    if model.config.kernel:
        scale, centres, weights = model.network.buffers()
        rest = weights - weights.float().double()  # of sums that cancel: single is not enough
        arrays = {"scale": scale, "centres": centres, "weights": weights, "rest": rest}
        network = {"kernel": {name: in_single(array) for name, array in arrays.items()}}
    elif model.network is not None:
        values = [packed(value) for value in model.network.parameters()]
        pairs = zip(values[::2], values[1::2], strict=True)
        layers = [{"weight": weight, "bias": bias} for weight, bias in pairs]
        network = {"activation": model.config.activation, "layers": layers}
    return {
        "seed": MOMENT_SEED,
        "draws": MOMENT_SAMPLES,
        "sobol": network and _sobol(len(straight.T)),
        "straight": {"weight": packed(straight), "offset": packed(offset)},
        "network": network,
        "residual": _residual(model),
        "conformal": bool(emulator.calibration),
        "reference": exact
        and {k: packed(v) if isinstance(v, Tensor) else v for k, v in exact.items()},
        "fields": [_field(emulator, model, k) for k in range(len(emulator.named_fields))],
    }


def _sobol(dimension: int) -> dict[str, Any]:
    """Return what a page makes the draws behind moments of (`uqsonet.gauss.given.even_normals`)."""
    engine = sobol_engine(dimension)
    return {"directions": engine.sobolstate.tolist(), "first": engine.shift.tolist()}


def _require_shown(emulator: Any) -> None:
    """Refuse a model with something that a page does not compute."""
    model = emulator.operator
    if not isinstance(model, KarhunenLoeveModel):
        name = getattr(model, "method", type(model).__name__)
        raise ConfigError(f"{name} cannot be explored: only Karhunen-Loeve models are")
    if model.config.architecture != "karhunen_loeve":
        raise ConfigError(
            f"the architecture {model.config.architecture!r} cannot be explored: pages compute "
            "with a perceptron ('karhunen_loeve')"
        )
    if model.law.name != "gaussian":
        raise ConfigError(
            f"the law {model.law.name!r} cannot be explored: only 'gaussian' has a closed form "
            "for a page (uqsonet fit --law gaussian)"
        )
    if model.config.nearest:
        raise ConfigError(
            "a model whose rest depends on its answer (fronts, for example) cannot be explored: "
            "pages compute with one law of what the operator leaves over"
        )
    for one in emulator.named_fields:
        if one.domain.dim > 2:
            raise ConfigError(
                f"{one.name} has {one.domain.dim} dimensions: pages show one or two of them"
            )
        if not one.transform.linear and one.transform != Transform("log"):
            raise ConfigError(
                f"{one.name} cannot be explored under {one.transform.name}, or where it has ends: "
                "pages know the logarithm alone"
            )


def _residual(model: KarhunenLoeveModel) -> dict[str, Any] | None:
    """Return the law of what the operator leaves over, None where that is nothing."""
    if model.config.held_out_residuals:
        covariance, slopes = model.residual_covariance, None
    elif model.fields.random_operator:
        covariance, all_slopes = model._residual_law()
        upper = torch.triu_indices(len(covariance), len(covariance))
        slopes = packed(all_slopes[:, upper[0], upper[1]])
    else:
        return None
    draws = packed(model.residuals[:RESIDUALS])
    return {"covariance": in_single(covariance), "slopes": slopes, "draws": draws}


def _field(emulator: Any, model: KarhunenLoeveModel, k: int) -> dict[str, Any]:
    """Return one field: where it lives, and its mean and modes there."""
    bases, fields = model.bases, emulator.inputs + emulator.outputs
    one, number, is_input = fields[k], k, k < len(emulator.inputs)
    if is_input:
        joint, mean, factor = emulator.fields.input.grid, bases.input_mean, bases.input_factor
        left, remainder = float(bases.input_remainder), None
    else:
        number = k - len(emulator.inputs)
        joint, mean = bases._training_grid, bases.output_mean
        factor = bases.output_modes * bases.output_scale.double()
        left, remainder = model.output_error(), None
    domain = joint.parts[number] if isinstance(joint, JointDomain) else joint
    rows = part_columns(emulator.inputs if is_input else emulator.outputs, number)
    if emulator.remainder is not None:
        remainder = packed(emulator.remainder_at(k, domain.points()).norm(dim=1) / one.scale)
    target = None
    if not is_input:  # rows on the modes whose variances sum to the field's mean variance
        _, modes = bases.output_basis(emulator.locations(k, one.domain.points()))
        share = one.domain.quadrature() / one.domain.quadrature().sum()
        values, vectors = torch.linalg.eigh(modes.T @ (share[:, None] * modes))
        target = packed(values.clamp_min(0).sqrt()[:, None] * vectors.T)
    whole, dim, where = one.domain, one.domain.dim, domain_as_dict(domain)
    inside = whole.holds(Grid(whole.lower, whole.upper, (SHOWN[dim],) * dim).points())
    if isinstance(domain, Scattered):
        points = domain.points()
        lower, upper = points.amin(0), points.amax(0)  # large coordinates have no digits left
        where = {"cloud": packed(points - lower), "lower": lower.tolist(), "upper": upper.tolist()}
    return {
        "name": one.name,
        "units": one.units,
        "axes": list(one.axis_labels),
        "input": is_input,
        "log": one.transform.positive,
        "scale": one.scale,
        "domain": {**where, "dim": dim, "box": [whole.lower, whole.upper]},
        "inside": None if inside.all() else packed(inside.double()),
        "mean": packed(mean[rows]),
        "factor": packed(factor[rows], domain.shape),
        "least": left,
        "remainder": remainder,
        "noise": emulator.default_noise(k),
        "target": target,
        "range": [x if math.isfinite(x) else None for x in (one.lowest, one.highest)],
    }


def in_single(array: Tensor) -> dict[str, Any]:
    """Return an array for JSON in single precision."""
    return {"shape": list(array.shape), "float32": as_base64(array.cpu().numpy().astype("<f4"))}


def packed(array: Tensor, axes: tuple[int, ...] = ()) -> dict[str, Any]:
    """Return an array (n,) or (n, k) for JSON: as it is, factored (Tucker's form), or in 16 bits.

    `axes` are numbers of points along each axis of a grid of n points.
    """
    values = array.detach().cpu().double().numpy()
    shape = list(values.shape)
    if values.size <= SMALL:
        return in_single(array.detach())
    if len(axes) == 2:
        core, factors = values.reshape(*axes, -1), []
        error = (TUCKER_ERROR * np.linalg.norm(values, axis=0).max()) ** 2
        for axis in range(2):
            unfolded = np.moveaxis(core, axis, 0).reshape(core.shape[axis], -1)
            vectors, sizes, _ = np.linalg.svd(unfolded, full_matrices=False)
            left = np.append(np.cumsum(sizes[::-1] ** 2)[::-1], 0.0)
            vectors = vectors[:, : max(1, int((left > error).sum()))]
            core = np.moveaxis(np.tensordot(vectors.T, core, (1, axis)), 0, axis)
            factors.append(vectors)
        if 4 * core.size < values.size:
            parts = [as_base64(part.astype("<f4")) for part in (core, *factors)]
            return {"shape": shape, "tucker": parts, "axes": list(axes), "core": list(core.shape)}
    scale = np.atleast_1d(np.abs(values).max(0) / ROUNDED_LEVELS)
    scale[scale == 0] = 1.0
    rounded = np.rint(values / scale).astype("<i2")
    return {"shape": shape, "int16": as_base64(rounded), "step": as_base64(scale.astype("<f4"))}

"""The schematic of the model (fig:setonet): set transformer embedding, encoder and decoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from uqsonet_study.report.figures.diagram import Box, Diagram, centres
from uqsonet_study.report.figures.posterior_1d import INPUT, SENSORS
from uqsonet_study.report.figures.style import BLACK, BLUE, RED, save, styled

HEIGHT = 4.35
"""Inches."""

NETWORK, OPERATION, LAW = "#B3D4EC", "#F2F2F2", "#F5C26B"
TINT, INNER = "#FAFAFA", "#FFFFFF"
BOTH: dict[str, Any] = {"color": BLACK}
TRAINING: dict[str, Any] = {"color": RED, "linestyle": (0, (4, 1.5)), "linewidth": 1.3}
INFERENCE: dict[str, Any] = {"color": BLUE, "linestyle": (0, (1, 1)), "linewidth": 1.6}
O = r"\mathcal{O}"  # noqa: E741 -- the paper's symbol
LINE = 0.32
"""Height of a box with one line of text."""


def schematic_figure(scale: str, out_pdf: Path, out_png: Path) -> None:
    """Draw the schematic of UQ-SONet with the symbols of section 3.

    Parameters
    ----------
    scale : {"full", "smoke"}
    out_pdf, out_png : Path
    """
    with styled():
        save(draw_schematic(), scale, out_pdf, out_png)


def draw_schematic() -> Figure:
    """Return the schematic; open `styled` first."""
    return build().figure


def build() -> Diagram:
    """Return the schematic with what it consists of."""
    diagram = Diagram(HEIGHT)
    _draw_embedding(diagram)
    _draw_model(diagram)
    handles = [
        Line2D([], [], label="training and inference", linewidth=1.0, **BOTH),
        Patch(facecolor=NETWORK, edgecolor=BLACK, linewidth=0.8, label="network"),
        Line2D([], [], label=rf"training only: $z \sim q_E(z \mid {O}, \bar{{u}})$", **TRAINING),
        Patch(facecolor=OPERATION, edgecolor=BLACK, linewidth=0.8, label="operation"),
        Line2D([], [], label=r"inference only: $z \sim p(z)$", **INFERENCE),
        Patch(facecolor=LAW, edgecolor=BLACK, linewidth=0.8, label="distribution"),
    ]
    legend: dict[str, Any] = {"loc": "lower center", "ncols": 3, "borderpad": 0, "handlelength": 3}
    diagram.axes.legend(handles=handles, borderaxespad=0.2, **legend)
    return diagram


def _draw_embedding(diagram: Diagram) -> None:
    """Draw how a set of sensors becomes one vector, eq. (pooling) and (set)."""
    up, middle, low = 3.76, 3.39, 3.02
    widths = [1.06, 0.8, 0.24, 0.32, 1.1, 0.34, 0.27, 0.48]
    x = centres(0.1, widths, [0.18, 0.16, 0.46, 0.12, 0.14, 0.64, 0.16])
    diagram.frame((0.02, 2.57), (6.68, 4.33), "Set transformer embedding", TINT)
    diagram.frame(
        (x[3] - 0.24, low - 0.28), (x[5] + 0.25, up + 0.4), "head $l = 1, \\ldots, H$", INNER, 3, 1
    )
    sensors = diagram.box(x[0], middle + 0.08, widths[0], 0.74, "")
    _sketch(diagram, sensors)
    observed = rf"${O} = \{{(x_i, \kappa(x_i))\}}_{{i=1}}^m$"
    diagram.word(x[0], low - 0.12, observed, fontsize=7)
    places = diagram.box(x[1], up, widths[1], LINE, r"$\Lambda_x(x_i)$", NETWORK)
    values = diagram.box(x[1], low, widths[1], LINE, r"$\Lambda_{\kappa}(\kappa(x_i))$", NETWORK)
    added = diagram.box(x[2], middle, widths[2], widths[2], "$+$", OPERATION)
    weight = diagram.box(x[3], up, widths[3], LINE, "$w_l$", NETWORK)
    value = diagram.box(x[3], low, widths[3], LINE, "$v_l$", NETWORK)
    scaled = "softmax over $i$ of\n" + r"$w_l(\Lambda_i)/\sqrt{d_{\mathrm{emb}}}$"
    softmax = diagram.box(x[4], up, widths[4], 0.44, scaled, OPERATION)
    pooled = diagram.box(x[5], middle, widths[5], up - low + 0.44, r"$\sum_{i}$", OPERATION)
    joined = diagram.box(x[6], middle, widths[6], 1.1, "", OPERATION)
    joined.text.set(text="concatenation", rotation=90)
    result = diagram.box(x[7], middle, widths[7], LINE, f"$h({O})$")

    step = (sensors.side("right")[0] + places.side("left")[0]) / 2
    turn = weight.side("left")[0] - 0.14
    start, fork = sensors.side("right", -0.08), added.side("right")
    for network in (places, values):
        diagram.arrow(start, (step, start[1]), (step, network.y), network.side("left"))
    for network, side in ((places, "top"), (values, "bottom")):
        diagram.arrow(network.side("right"), (added.x, network.y), added.side(side))
    for network in (weight, value):
        diagram.arrow(fork, (turn, fork[1]), (turn, network.y), network.side("left"))
    diagram.word((fork[0] + turn) / 2 - 0.03, middle + 0.11, r"$\Lambda_i$")
    diagram.arrow(weight.side("right"), softmax.side("left"))
    diagram.arrow(softmax.side("right"), pooled.side("left", up - middle))
    diagram.arrow(value.side("right"), pooled.side("left", low - middle))
    diagram.word(softmax.x, low + 0.12, r"$v_l(\Lambda_i)$")
    diagram.arrow(pooled.side("right"), joined.side("left"))
    diagram.word(joined.side("left")[0] - 0.22, middle + 0.13, f"$h^{{(l)}}({O})$")
    diagram.arrow(joined.side("right"), result.side("left"))


def _sketch(diagram: Diagram, box: Box) -> None:
    """Draw an input function and its sensors inside a box."""
    x = np.linspace(-0.5, 0.5, 200)
    seen = np.array([-0.36, -0.08, 0.16, 0.4])

    def curve(x: np.ndarray) -> np.ndarray:
        wave = 0.5 * np.sin(7 * x + 0.4) + 0.3 * np.cos(13 * x)
        return box.y + 0.42 * box.height * wave

    for place, style in ((x, INPUT), (seen, SENSORS)):
        look: dict[str, Any] = style | {"zorder": 4}
        diagram.axes.plot(box.x + 0.9 * box.width * place, curve(place), **look)


def _draw_model(diagram: Diagram) -> None:
    """Draw the conditional autoencoder, section 3.2, with the hard boundary factor of section 4."""
    bus, middle, low = 2.07, 1.48, 0.84
    widths = [0.5, 0.8, 0.4, 0.34, 1.0, 0.78, 0.66, 0.44]
    x = centres(0.1, widths, [0.24, 0.16, 0.27, 0.35, 0.18, 0.18, 0.2])
    for first, last, name in ((1, 2, "Encoder"), (4, 6, "Decoder")):
        left, right = x[first] - widths[first] / 2, x[last] + widths[last] / 2
        diagram.frame((left - 0.08, 0.5), (right + 0.08, 2.46), name, TINT)
    embedded = diagram.box(x[0], bus, widths[0], LINE, f"$h({O})$")
    output = diagram.box(x[0], middle, widths[0], LINE, r"$\bar{u}$")
    encoder = diagram.box(
        x[1], middle, widths[1], 0.5, rf"$\mathcal{{E}}(h({O}), \bar{{u}})$", NETWORK
    )
    mean = diagram.box(x[2], middle + 0.18, widths[2], 0.28, r"$\mu_z$")
    covariance = diagram.box(x[2], middle - 0.18, widths[2], 0.28, r"$\Sigma_z$")
    divergence = diagram.box(
        (encoder.side("left")[0] + mean.side("right")[0]) / 2,
        low,
        1.24,
        LINE,
        r"$D_{\mathrm{KL}}(q_E \,\Vert\, p(z))$",
        OPERATION,
    )
    latent = diagram.box(x[3], middle, widths[3], LINE, "$z$")
    prior = diagram.box(x[3], low, 0.66, 0.44, "$p(z) =$\n$\\mathcal{N}(0, I)$", LAW)
    branch = diagram.box(x[4], middle, widths[4], 0.5, f"branch\n$b^n(h({O}), z)$", NETWORK)
    point = diagram.box(branch.side("left")[0] + 0.14, low, 0.28, LINE, "$y$")
    trunk = diagram.box(branch.side("right")[0] - 0.28, low, 0.56, 0.44, "trunk\n$t^n(y)$", NETWORK)
    product = diagram.box(x[5], middle, widths[5], 0.5, r"$\sum_{n=1}^{p} b^n t^n$", OPERATION)
    factor = diagram.box(x[6], middle, widths[6], 0.62, "hard\nboundary\nfactor", OPERATION)
    solution = diagram.box(x[7], middle, widths[7], LINE, "$u(y)$")

    diagram.arrow(embedded.side("right"), (branch.x, bus), branch.side("top"))
    diagram.arrow((encoder.x, bus), encoder.side("top"), **TRAINING)
    diagram.arrow(output.side("right"), encoder.side("left"), **TRAINING)
    for moment in (mean, covariance):
        shift = moment.y - middle
        diagram.arrow(encoder.side("right", shift), moment.side("left"), **TRAINING)
        turn = (moment.side("right")[0] + latent.side("left")[0]) / 2
        bend = ((turn, moment.y), (turn, middle))
        diagram.arrow(moment.side("right"), *bend, latent.side("left"), **TRAINING)
    diagram.arrow(covariance.side("bottom"), (covariance.x, divergence.side("top")[1]), **TRAINING)
    diagram.arrow(prior.side("left"), divergence.side("right"), **TRAINING)
    diagram.arrow(prior.side("top"), latent.side("bottom"), **INFERENCE)
    diagram.arrow(latent.side("right"), branch.side("left"))
    diagram.arrow(point.side("right"), trunk.side("left"))
    diagram.arrow(branch.side("right"), product.side("left"))
    diagram.arrow(trunk.side("right"), (product.x, low), product.side("bottom"))
    diagram.arrow(product.side("right"), factor.side("left"))
    diagram.arrow(factor.side("right"), solution.side("left"))

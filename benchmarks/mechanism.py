"""What the parts of the paper's network know of u: the latent variable z, the embedding h(O).

    python -m benchmarks.mechanism letter=WEIGHTS.safetensors base=OTHERS.safetensors --out rows.csv

Weights are of method `uqsonet`, architecture `attention` (others are passed over), each with a name
for its rows; a row is a trial at a number of sensors. Numbers belong to pairs that no training saw:
fresh ones of the problem's law, or with ``--functions`` the file's validation split. Regressions
are fitted to other fresh pairs, or to the file's training pairs. Layouts are uniform, or with
``--sensors`` the file's own for training.

A share is ``1 - E|u - v|^2 / E|u - E u|^2``, means over the training grid and the pairs: 1 is
perfect, 0 as good as the mean of u. Of the decoder's output v for

- `share_encoder`: z drawn from q(z | O, u); `share_wrong_h`: the same z, h of another function;
- `share_prior`: the mean over z of the prior, the prediction from sensors; `share_zero`: z = 0.

Of v predicted from h by ridge regression, linear (`share_linear`) or also on random Fourier
features (`share_features`), and from the sensors by cokriging, linear in the transformed readings
(`share_cokriging`). `nats_*` is the information about u that these predictions prove, in nats:
``1/2 log(det C / det R)``, C and R the covariances of `FEW` leading coefficients of u and of their
errors. It is a lower bound of I(h; u) if these coefficients are jointly Gaussian: then C gives
their entropy, and given h they have at most that of a Gaussian with covariance R. If they are not,
their negentropy has to be subtracted.

`kl` (nats) and `active_units` are the encoder's. The variance of the output over h of the pairs and
z of the prior is split into what h does on average over z (`effect_h`), z on average over h
(`effect_z`) and both together (`effect_both`), parts of 1. `h_at_zero` and `z_at_mean` are the
variances at z = 0 and at the mean h over the same total, `spread` is that total over the variance
of u. `attended` is exp(entropy) of the attention weights, an effective number of sensors: a mean
over heads and pairs.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor

from uqsonet.gauss.blocks import RowBlocks
from uqsonet.gauss.modes import Modes, empirical_modes
from uqsonet.gauss.posterior import even_normals
from uqsonet.gauss.seeds import numpy_generator, torch_generator
from uqsonet.networks.attention import ACTIVE_NATS, AttentionModel, gaussian_kl
from uqsonet.operator.baselines import Cokriging
from uqsonet.runs.functions import Functions
from uqsonet.sensors.sensors import checked_sensors
from uqsonet_study.ensemble import load_trials
from uqsonet_study.layouts import load_layouts, uniform_layouts
from uqsonet_study.problems import get_problem
from uqsonet_study.storage import load_functions

COUNTS = (1, 4, 10)
FIT, HELD = 8000, 2000
DRAWS, CROSSED = 256, 128
"""Draws of z for a mean, and values of h that they are crossed with."""
MODES, FEW = 20, 5
FEATURES = 500
WHITENINGS, LENGTHS = (0.0, 0.5, 1.0), (0.3, 1.0, 3.0, 10.0)
"""How far directions of h are brought to one size; lengths of the features over the size of h."""
RIDGES = tuple(10.0**-k for k in range(2, 15, 2))
"""Relative to the largest eigenvalue."""
SEED = 2026


@dataclass(frozen=True)
class Pairs:
    """Pairs to fit to and pairs to measure on, with what does not depend on a network.

    Attributes
    ----------
    kappa, u : Tensor, shapes (n, points of the input) and (n, M)
        On the training grid of u; the first `fit` rows are for fits, the others are measured on.
    fit : int
    modes : Modes
        Of u.
    cokriging : Cokriging
    """

    kappa: Tensor
    u: Tensor
    fit: int
    modes: Modes
    cokriging: Cokriging


@cache
def pairs_of(problem: str, file: Path | None) -> Pairs:
    """Return pairs of a problem: fresh ones, or a file's (validation is repeated up to `HELD`)."""
    if file is None:
        made = get_problem(problem)
        kappa, u = made.sample(numpy_generator(SEED, problem, "mechanism"), FIT + HELD)
        fields, fit, u = made.fields, FIT, u[:, made.training_grid()[1]]
    else:
        first, held = load_functions(file, "training"), load_functions(file, "validation")
        fields, fit = first.fields, min(FIT, first.size)
        repeats = -(-HELD // held.size)
        kept = fields.training_grid()[1]
        kappa = torch.cat([first.kappa[:fit], held.kappa.repeat(repeats, 1)]).double()
        u = torch.cat([first.u[:fit], held.u[:, kept].repeat(repeats, 1)]).double()
    modes = empirical_modes(RowBlocks.of(u[:fit]), MODES, "modes")
    functions = Functions(fields, "training", kappa[:fit].float(), u[:fit].float())
    return Pairs(kappa, u, fit, modes, Cokriging(functions, 0.0))


@cache
def sensors_of(
    problem: str, file: Path | None, sensors: Path | None, m: int, noise_std: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return locations (n, m, d) and values (n, m) of all pairs, and cokriging's means of u."""
    pairs = pairs_of(problem, file)
    given, n = pairs.cokriging.fields.input, len(pairs.u)
    if sensors is None:
        generator = numpy_generator(SEED, problem, "mechanism", "sensors", m)
        index = torch.from_numpy(uniform_layouts(generator, given.grid.size, m, n)).long()
    else:
        pool = load_layouts(sensors, "training")[m]
        index = pool[torch.arange(n) % len(pool)]
    source = torch_generator(SEED, problem, "mechanism", "noise", m)
    noise = noise_std * torch.randn(n, m, generator=source, dtype=torch.float64)
    x, y = given.read(pairs.kappa, index, noise)
    points = pairs.cokriging.fields.training_grid()[0].points()
    held = zip(x[pairs.fit :].split(250), y[pairs.fit :].split(250), strict=True)
    means = [pairs.cokriging.condition(*one, noise_std=noise_std).mean(points) for one in held]
    return x, y, torch.cat(means)


def share(u: Tensor, predicted: Tensor) -> float:
    """Return ``1 - E|u - predicted|^2 / E|u - E u|^2`` of functions (n, M)."""
    return 1 - float((u - predicted).square().mean() / u.var(0, correction=0).mean())


def information(c: Tensor, errors: Tensor) -> float:
    """Return ``1/2 log(det C / det R)`` (nats), the covariances of c (n, k) and errors (n, k)."""
    return 0.5 * float(torch.logdet(c.T.cov()) - torch.logdet(errors.T.cov()))


def regressed(candidates: list[Tensor], c: Tensor, fit: int) -> Tensor:
    """Return ridge predictions of c (n, k) in the rows from `fit` on.

    Parameters
    ----------
    candidates : list of Tensor, shape (n, d)
        Features: those, and the ridge, with the least error in the last quarter of the first `fit`
        rows are taken. Weights come from the rows before.
    """
    first, best, found = 3 * fit // 4, torch.inf, c[fit:]
    for x in candidates:
        x = torch.cat([x, torch.ones_like(x[:, :1])], dim=1)
        values, vectors = torch.linalg.eigh(x[:first].T @ x[:first])
        turned = vectors.T @ (x[:first].T @ c[:first])
        for ridge in RIDGES:
            weight = vectors @ (turned / (values.clamp_min(0) + ridge * values[-1])[:, None])
            error = float((x[first:fit] @ weight - c[first:fit]).square().sum())
            if error < best:
                best, found = error, x[fit:] @ weight
    return found


def features(h: Tensor, generator: torch.Generator) -> list[Tensor]:
    """Return candidates for `regressed`: h (n, d) alone, and with random Fourier features of it."""
    values, directions = torch.linalg.eigh(h.T.cov())
    seen = values > 1e-12 * values[-1]
    scores, std = (h - h.mean(0)) @ directions[:, seen], values[seen].sqrt()
    shape = scores.shape[1], FEATURES
    normals = torch.randn(shape, generator=generator, dtype=torch.float64)
    phase = 2 * torch.pi * torch.rand(FEATURES, generator=generator, dtype=torch.float64)
    found = [scores]
    for power in WHITENINGS:
        scaled = scores / std**power
        scaled = scaled / scaled.square().sum(1).mean().sqrt()
        found += [torch.cat([scaled, (scaled @ normals / a + phase).cos()], 1) for a in LENGTHS]
    return found


def effects(values: Tensor) -> dict[str, float]:
    """Split the variance of values (K, L, M) into those of either axis and both (two-way ANOVA)."""
    (k, size, _), rows, columns = values.shape, values.mean(1), values.mean(0)
    rest = values - rows[:, None] - columns + rows.mean(0)
    both = float(rest.square().sum()) / ((k - 1) * (size - 1))
    h, z = float(rows.var(0).sum()) - both / size, float(columns.var(0).sum()) - both / k
    return {"h": h, "z": z, "both": both}


def attended(model: AttentionModel, x: Tensor, y: Tensor) -> float:
    """Return the effective number of sensors (of m) that a head attends to, a mean."""
    parts = model.embedding
    placed, values = (
        parts.location(model._scaled(x)),
        parts.value(model._standardised(y)[..., None]),
    )
    scores = parts.score((placed + values).flatten(0, 1)).reshape(-1, *y.shape) * parts.scale
    weights = scores.softmax(-1)
    return float(torch.special.entr(weights).sum(-1).exp().mean())


@torch.no_grad()
def measure(
    model: AttentionModel, pairs: Pairs, x: Tensor, y: Tensor, kriged: Tensor
) -> dict[str, float]:
    """Return the numbers of a row, for sensors x (n, m, d), y (n, m) and cokriging's means of u."""
    generator = torch_generator(SEED, "mechanism", "draws")
    model, fit, u = model.double(), pairs.fit, pairs.u[pairs.fit :]
    embedded = model.embed_observations(checked_sensors(model.fields.input, x, y))
    trunk, h = model.trunk_on_grid(), embedded[fit:]
    mean, log_variance = model.encode(h, u)

    def decoded(h: Tensor, z: Tensor) -> Tensor:
        every = torch.broadcast_shapes(h.shape[:-1], z.shape[:-1])
        pair = torch.cat([h.expand(*every, -1), z.expand(*every, -1)], dim=-1)
        return model.branch(pair) @ trunk.T

    kl, prior = gaussian_kl(mean, log_variance).mean(0), even_normals(DRAWS, model.z_dim).double()
    normals = torch.randn(mean.shape, generator=generator, dtype=torch.float64)
    z, zero = mean + normals * (0.5 * log_variance).exp(), torch.zeros_like(prior[0])
    found = {
        "share_encoder": share(u, decoded(h, z)),
        "share_wrong_h": share(u, decoded(h.roll(1, 0), z)),
        "share_prior": share(
            u, sum((decoded(h, one) for one in prior), torch.zeros_like(u)) / DRAWS
        ),
        "share_zero": share(u, decoded(h, zero)),
        "kl": float(kl.sum()),
        "active_units": int((kl > ACTIVE_NATS).sum()),
    }
    c = pairs.modes.coefficients(pairs.u)
    answers = {
        "linear": regressed([embedded - embedded.mean(0)], c, fit),
        "features": regressed(features(embedded, generator), c, fit),
        "cokriging": pairs.modes.coefficients(kriged),
    }
    for name, predicted in answers.items():
        found[f"share_{name}"] = share(u, pairs.modes.mean + predicted @ pairs.modes.vectors.T)
        found[f"nats_{name}"] = information(c[fit:, :FEW], (c[fit:] - predicted)[:, :FEW])
    parts = effects(decoded(h[:CROSSED, None], prior))
    total = sum(parts.values())
    found |= {f"effect_{name}": part / total for name, part in parts.items()}
    found["h_at_zero"] = float(decoded(h, zero).var(0).sum()) / total
    found["z_at_mean"] = float(decoded(h.mean(0), prior).var(0).sum()) / total
    found["spread"] = total / float(u.var(0).sum())
    return found | {"attended": attended(model, x[fit:], y[fit:])}


def main(
    weights: Annotated[list[str], typer.Argument(help="Names and weight files, NAME=FILE.")],
    out: Annotated[Path, typer.Option(help="CSV.")],
    functions: Annotated[Path | None, typer.Option(help="A functions file of the study.")] = None,
    sensors: Annotated[Path | None, typer.Option(help="A file of layouts of the study.")] = None,
) -> None:
    """Measure what z, h and the branch know of u, and write a row for each trial and count."""
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    for label, _, path in (one.partition("=") for one in weights):
        for trial, model in load_trials([Path(path)]):
            if not isinstance(model, AttentionModel):
                print(f"{path}: passed over, not UQ-SONet of architecture attention", flush=True)
                continue
            name = model.fields.name
            for m in COUNTS:
                given = sensors_of(name, functions, sensors, m, model.noise_std)
                values = measure(model, pairs_of(name, functions), *given)
                cells = {key: f"{value:.4g}" for key, value in values.items()}
                row: dict[str, object] = {"recipe": label, "trial": trial, "sensors": m}
                rows.append(row | cells)
                print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    if not rows:
        raise typer.BadParameter("no weights of architecture attention")
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    typer.run(main)

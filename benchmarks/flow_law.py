"""Is a learned law of the input worth its place beside those in closed form?

A conditional flow (Lipman et al., ICLR 2023) moves samples of the best closed form given the
sensors, Gaussian or mixture, to the true law, along straight paths between the coefficients of the
output. Its velocity reads the sensors as a set: self-attention over tokens (location, value,
noise), and one more token that collects them. It is zero at the start, so the flow starts as the
closed form. Coefficients are standardised by the closed form's own mean and spread given the
sensors, and errors are weighted by what a mode does to u.

    python -m benchmarks.flow_law binary1d --minutes 10

Errors are means over sets, in percent: of the mean, of the standard deviation, and W1 at single
points over the mean standard deviation, against exact references of 10,000 draws. `floor` is what
exact samples score.
"""

from __future__ import annotations

import csv
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from torch import Tensor, nn

from benchmarks.workloads import functions
from uqsonet.fitting.choose_law import equip
from uqsonet.gauss.metrics import ascending, relative_error
from uqsonet.laws.base import InputLaw
from uqsonet.operator.base import build_model
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.operator.train import Optimiser, set_weights
from uqsonet.runs.functions import Functions
from uqsonet_study.cli import read_config
from uqsonet_study.distances import marginal_w1, quantile_bins
from uqsonet_study.layouts import uniform_layouts
from uqsonet_study.problems import get_problem

ROOT = Path(__file__).parents[1]
LAWS = {
    "binary1d": ("gaussian", "mixture", "thresholded", "analogue"),
    "mixture1d": ("gaussian", "mixture", "analogue"),
    "student1d": ("gaussian", "mixture", "analogue"),
}
COUNTS, MOST_SENSORS = (1, 4, 10), 10
PAIRS, HELD, SETS = 10_000, 100, 40
REFERENCE, DRAWS, BINS = 10_000, 2000, 200
WIDTH, BLOCKS, TOKEN, HEADS, LAYERS = 256, 4, 64, 4, 2
HEUN_STEPS = 8
SETS_OF_CHUNK, PASSES, SETS_OF_STEP, TIMES = 4000, 2, 128, 8
"""Sets drawn at a time, uses of each, sets in a step, and times (and starts) for each set."""
RATE, DECAY, CLIP = 1e-3, 1e-2, 1.0
LEAST_SPREAD = 0.03
"""Of a mode given sensors, over its spread before: linear theory may take it as known."""


@dataclass
class Sets:
    """Observation sets of training functions, with samples of the closed form.

    Attributes
    ----------
    tokens : Tensor, shape (B, m, f)
        What the velocity reads of each sensor.
    mask : Tensor of bool, shape (B, m)
    centre, spread : Tensor, shape (B, p)
        Of the output's coefficients, by the closed form.
    start : Tensor, shape (B, k, p)
        Samples of the closed form.
    """

    tokens: Tensor
    mask: Tensor
    centre: Tensor
    spread: Tensor
    start: Tensor


class Velocity(nn.Module):
    """Velocity of standardised coefficients (B, k, p) at times (B, k) given sets of sensors."""

    def __init__(self, modes: int, features: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            TOKEN, HEADS, 2 * TOKEN, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.lift = nn.Linear(features, TOKEN)
        self.attention = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.collector = nn.Parameter(0.02 * torch.randn(TOKEN))
        self.given = nn.Linear(TOKEN + 2 * modes, WIDTH)
        self.first = nn.Linear(modes + 7, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(BLOCKS))
        self.shifts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(BLOCKS))
        self.inner = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(BLOCKS))
        self.outer = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(BLOCKS))
        self.last = nn.Linear(WIDTH, modes)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def embed(self, sets: Sets, scale: Tensor) -> list[Tensor]:
        """Return what a set of sensors adds to each block, (B, 1, width)."""
        tokens = self.lift(sets.tokens)
        tokens = torch.cat([self.collector.expand(len(tokens), 1, -1), tokens], 1)
        padding = nn.functional.pad(~sets.mask, (1, 0))
        seen = self.attention(tokens, src_key_padding_mask=padding)[:, 0]
        closed = sets.centre / scale, (sets.spread / scale).log()
        h = nn.functional.silu(self.given(torch.cat([seen, *closed], 1)))
        return [shift(h)[:, None] for shift in self.shifts]

    def forward(self, x: Tensor, t: Tensor, shifts: list[Tensor]) -> Tensor:
        """Return the velocity (B, k, p)."""
        waves = [f(math.pi * k * t) for k in (1, 2, 4) for f in (torch.sin, torch.cos)]
        x = self.first(torch.cat([x, torch.stack([t, *waves], -1)], -1))
        for norm, inner, outer, shift in zip(
            self.norms, self.inner, self.outer, shifts, strict=True
        ):
            x = x + outer(nn.functional.silu(inner(norm(x)) + shift))
        return self.last(x)


class Flow:
    """The conditional flow on top of a model whose law is the closed form."""

    def __init__(self, model: KarhunenLoeveModel, source: InputLaw | None, data: Functions) -> None:
        self.model, self.source, self.data = model, source, data
        self.targets = model.targets(data)["c"]
        self.scale = self.targets.std(0).clamp_min(1e-6)
        self.level = float(model.bases.input_factor.square().sum(1).mean().sqrt())
        points = model.fields.input.grid.points()
        self.ends = points.amin(0), points.amax(0)
        torch.manual_seed(0)
        self.velocity = Velocity(len(self.scale), 2 + 9 * points.shape[1])

    @torch.no_grad()
    def sets(self, x: Tensor, y: Tensor, size: int, generator: torch.Generator) -> Sets:
        """Return sets of sensors at x (B, m, d) with values y (B, m), padded, and samples."""
        bases, count = self.model.bases, y.shape[1]
        self.model.law = self.source
        given = self.model.input_posterior(x, y)
        start = self.model.branch(given.sample(size, generator))
        moments = given.linear_moments(bases.linear_weight.double())
        assert moments is not None
        spread = moments[1].diagonal(dim1=1, dim2=2).clamp_min(0).sqrt().float()
        spread = (spread.square() + (LEAST_SPREAD * self.scale).square()).sqrt()
        mask = torch.ones_like(y, dtype=torch.bool)
        observed = (self.model.fields.input.transform.forward(y.double())).float()
        mean = self.model.fields.input.grid.interpolate(bases.input_mean[:, None], x.double())
        low, high = self.ends
        place = (2 * (x - low) / (high - low) - 1).float()
        waves = [f(math.pi * k * place) for k in (1, 2, 4, 8) for f in (torch.sin, torch.cos)]
        value = (observed - mean[..., 0].float())[..., None] / self.level
        noise = torch.full_like(value, self.model.noise_std / self.level)
        tokens = torch.cat([place, *waves, value, noise], -1)
        width = MOST_SENSORS - count
        tokens = nn.functional.pad(tokens, (0, 0, 0, width))
        centre = self.model.branch(given.mean.float())
        return Sets(tokens, nn.functional.pad(mask, (0, width)), centre, spread, start)

    def chunk(
        self, data: Functions, targets: Tensor, number: int, generator: np.random.Generator
    ) -> tuple[Sets, Tensor]:
        """Return random sets of 1 to `MOST_SENSORS` sensors, and the true coefficients (B, p)."""
        draws = torch.Generator().manual_seed(int(generator.integers(2**62)))
        parts, truths = [], []
        for m in range(1, MOST_SENSORS + 1):
            rows = torch.from_numpy(generator.integers(data.size, size=number // MOST_SENSORS))
            points = self.model.fields.input.grid.size
            places = torch.from_numpy(uniform_layouts(generator, points, m, len(rows))).long()
            x, y = self.model.fields.input.read(data.kappa[rows].double(), places)
            parts.append(vars(self.sets(x, y, TIMES, draws)).values())
            truths.append(targets[rows])
        return Sets(*(torch.cat(p) for p in zip(*parts, strict=True))), torch.cat(truths)

    def loss(self, sets: Sets, truth: Tensor, t: Tensor) -> Tensor:
        """Return the error of the velocity (B,), relative to the closed form's spread of u."""
        spread, centre = sets.spread[:, None], sets.centre[:, None]
        start, end = (sets.start - centre) / spread, ((truth[:, None]) - centre) / spread
        x = torch.lerp(start, end.expand_as(start), t[..., None])
        found = self.velocity(x, t, self.velocity.embed(sets, self.scale))
        weight = sets.spread.pow(1.5)
        weight = weight / weight.sum(1, keepdim=True)
        return ((found - (end - start)).square().mean(1) * weight).sum(1)

    def fit(self, minutes: float, held: Functions, held_targets: Tensor) -> None:
        """Train for so many minutes of one core."""
        generator, times = np.random.default_rng(1), torch.Generator().manual_seed(1)
        adam = torch.optim.AdamW(self.velocity.parameters(), RATE, weight_decay=DECAY)
        begin, told, step, sum_, count = time.process_time(), 0.0, 0, 0.0, 0
        past = 0.0
        check = self.chunk(held, held_targets, 2000, np.random.default_rng(2))
        while past < 1:
            sets, truth = self.chunk(self.data, self.targets, SETS_OF_CHUNK, generator)
            for rows in (
                r
                for _ in range(PASSES)
                for r in torch.randperm(len(truth), generator=times).split(SETS_OF_STEP)
            ):
                past = (time.process_time() - begin) / (60 * minutes)
                if past >= 1:
                    break
                for group in adam.param_groups:
                    group["lr"] = RATE * min(step / 200, 1) * (1 + math.cos(math.pi * past)) / 2
                one = Sets(*(value[rows] for value in vars(sets).values()))
                t = torch.rand(len(rows), TIMES, generator=times)
                loss = self.loss(one, truth[rows], t).mean()
                adam.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.velocity.parameters(), CLIP)
                adam.step()
                step, sum_, count = step + 1, sum_ + float(loss.detach()), count + 1
            if past >= told or past >= 1:
                told += 0.1
                with torch.no_grad():
                    t = torch.rand(len(check[1]), TIMES, generator=torch.Generator().manual_seed(3))
                    other = float(self.loss(*check, t).mean())
                print(
                    f"flow: step {step}, loss {sum_ / max(count, 1):.4f}, held out {other:.4f}",
                    flush=True,
                )
                sum_, count = 0.0, 0

    @torch.no_grad()
    def sample(self, x: Tensor, y: Tensor, size: int, generator: torch.Generator) -> Tensor:
        """Return scaled coefficients of the output (size, p) for one set, by Heun's method."""
        sets = self.sets(x[None], y[None], size, generator)
        shifts = self.velocity.embed(sets, self.scale)
        z, dt = (sets.start - sets.centre[:, None]) / sets.spread[:, None], 1 / HEUN_STEPS
        for k in range(HEUN_STEPS):
            t = torch.full(z.shape[:2], k * dt)
            first = self.velocity(z, t, shifts)
            second = self.velocity(z + dt * first, t + dt, shifts)
            z = z + dt / 2 * (first + second)
        return (sets.centre[:, None] + sets.spread[:, None] * z)[0].double()


def trained_operator(name: str, data: Functions, iterations: int) -> KarhunenLoeveModel:
    """Return the operator of the study's recipe, trained for so many iterations."""
    config = read_config([ROOT / "config.yaml", ROOT / "config" / "any_law.yaml"])
    method = config.method_of(name, "uqsonet")
    training = method.training.model_copy(update={"iterations": iterations})
    torch.manual_seed(0)
    model = build_model("uqsonet", data.fields, method.network, 0.0)
    assert isinstance(model, KarhunenLoeveModel)
    with torch.no_grad():
        model.fit_constants(data)
    targets, generator = model.targets(data), torch.Generator().manual_seed(0)
    optimiser = Optimiser(model, training)
    for iteration in range(iterations):
        rows = torch.randint(data.size, (training.batch_size,), generator=generator)
        batch = {key: value[rows] for key, value in targets.items()}
        optimiser.step(iteration, batch, torch.zeros(training.batch_size, 0))
    set_weights(model, optimiser.weights())
    return model


@dataclass
class Case:
    """One set of sensors, and the law of u given it.

    Attributes
    ----------
    x, y : Tensor, shape (m, d), (m,)
    mean, std : Tensor, shape (M,)
    bins : Tensor, shape (bins, M)
    """

    x: Tensor
    y: Tensor
    mean: Tensor
    std: Tensor
    bins: Tensor

    def errors(self, u: Tensor) -> list[float]:
        """Return errors of samples (n, M) of u in percent: mean, std, W1."""
        moments = (u.mean(0), self.mean), (u.std(0), self.std)
        w1 = marginal_w1(quantile_bins(ascending(u), BINS), self.bins, self.std)
        return [100 * float(relative_error(*pair)) for pair in moments] + [100 * w1]


def cases(name: str, sets: int) -> tuple[dict[int, list[Case]], dict[int, list[list[float]]]]:
    """Return test cases by number of sensors, and the errors of exact samples."""
    problem, generator = get_problem(name), np.random.default_rng(5)
    kept = problem.training_grid()[1]
    kappa = problem.sample(generator, sets)[0].float().double()
    found: dict[int, list[Case]] = {}
    floor: dict[int, list[list[float]]] = {}
    for m in COUNTS:
        places = torch.from_numpy(uniform_layouts(generator, problem.grid.size, m, sets)).long()
        found[m], floor[m] = [], []
        for x, y in zip(*problem.fields.input.read(kappa, places), strict=True):
            law = problem.prior.posterior(x, problem.transform.forward(y), 0.0)  # type: ignore[union-attr]
            assert law is not None
            u, other = (
                problem.outcomes(law.draw(generator, size))[1][:, kept]
                for size in (REFERENCE, DRAWS)
            )
            bins = quantile_bins(ascending(u), BINS)
            found[m].append(Case(x, y, u.mean(0), u.std(0), bins))
            floor[m].append(found[m][-1].errors(other))
    return found, floor


def main(
    name: Annotated[str, typer.Argument(metavar="PROBLEM", help=", ".join(LAWS))] = "binary1d",
    minutes: Annotated[float, typer.Option(help="Of one core, to fit the flow.")] = 10.0,
    laws: Annotated[str, typer.Option(help="Others, by commas; by default all of them.")] = "",
    iterations: Annotated[int, typer.Option(help="Of the operator's training.")] = 3000,
    sets: Annotated[int, typer.Option(help="Test sets at each number of sensors.")] = SETS,
    out: Annotated[Path, typer.Option(help="CSV; rows of other problems stay.")] = Path(
        "results/flow.csv"
    ),
) -> None:
    """Fit the flow and the laws there are to one problem, and score them on the same sets."""
    torch.set_num_threads(1)
    data, problem = functions(name, PAIRS), get_problem(name)
    kappa, u = problem.sample(np.random.default_rng(9), HELD)
    kept = problem.training_grid()[1]
    held = Functions(problem.fields, "training", kappa.float(), u[:, kept].float())
    model = trained_operator(name, data, iterations)
    print(f"operator trained, {time.process_time():.0f} s", flush=True)
    tests, floor = cases(name, sets)
    print(f"references drawn, {time.process_time():.0f} s", flush=True)
    offset, basis = model.bases.output_basis(problem.training_grid()[0].points())
    rows: list[dict[str, object]] = []

    def note(law: str, errors: dict[int, list[list[float]]], spent: float) -> None:
        for m, found in errors.items():
            means = np.mean(found, 0)
            named = zip(("err_mean", "err_std", "w1"), means, strict=True)
            rows.append({"problem": name, "law": law, "sensors": m})
            rows[-1] |= {key: f"{value:.3f}" for key, value in named}
            rows[-1]["minutes"] = f"{spent:.2f}"
            print(", ".join(f"{k} {v}" for k, v in rows[-1].items()), flush=True)
        _write(out, name, rows)

    note("floor", floor, 0.0)
    generator = np.random.default_rng(7)
    points = problem.grid.size
    layouts = {
        m: torch.from_numpy(uniform_layouts(generator, points, m, HELD)).long() for m in COUNTS
    }
    closed: dict[str, tuple[float, InputLaw | None]] = {}
    for law in laws.split(",") if laws else LAWS[name]:
        begin = time.process_time()
        (row,) = equip(model, law, data, held, layouts=layouts)
        spent = (time.process_time() - begin) / 60
        if law in ("gaussian", "mixture"):
            closed[law] = sum(row[f"crps_{m}"] for m in COUNTS), model.law
        draws, errors = torch.Generator().manual_seed(3), {}
        for m in COUNTS:
            errors[m] = []
            for case in tests[m]:
                answer = model.condition(case.x[None], case.y[None])
                c = answer.coefficient_samples(DRAWS, draws)[0].double()
                errors[m].append(case.errors(offset + c @ basis.T))
        note(law, errors, spent)
    source = min(closed, key=lambda law: closed[law][0])
    print(f"the flow starts from the law {source}", flush=True)
    flow = Flow(model, closed[source][1], data)
    flow.fit(minutes, held, model.targets(held)["c"])
    draws, errors = torch.Generator().manual_seed(3), {}
    for m in COUNTS:
        errors[m] = [
            case.errors(offset + flow.sample(case.x, case.y, DRAWS, draws) @ basis.T)
            for case in tests[m]
        ]
    note("flow", errors, minutes)


def _write(out: Path, name: str, rows: list[dict[str, object]]) -> None:
    """Write rows, after those of other problems that the file has."""
    others: list[dict[str, object]] = []
    if out.exists():
        with out.open(newline="") as file:
            others = [dict(row) for row in csv.DictReader(file) if row["problem"] != name]
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(others + rows)


if __name__ == "__main__":
    typer.run(main)

"""The operators that come with the library: small weight files, each with a card.

Modes on a grid of two axes and slopes are stored factored, to `TOLERANCE`. What random operators
leave open is known from samples only: residuals and the core of slopes are in half precision. What
this changes in answers is measured and stands in the card, beside what the operator is (from the
configuration and the header of the weights) and how good it is (from the published summaries).
"""

from __future__ import annotations

import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any, SupportsFloat

import pandas as pd
import torch
import yaml
from torch import Tensor

from uqsonet.errors import DataError
from uqsonet.files import file_digest
from uqsonet.operator.base import OperatorModel
from uqsonet.operator.weight_files import load, read_weights, write_weights
from uqsonet_study.cases import Row, Study
from uqsonet_study.problems import Problem, get_problem

METHOD = "uqsonet"
TOLERANCE = 1e-5  # of a factored tensor: norm of what is left out, relative to the tensor's own
SMALLER = 0.75  # share of a tensor's size above which factors of it are not worth it
LARGEST_HALF = 1e4  # largest number of a core in half precision, where small ones keep their digits
INPUTS = 200  # functions that show what values an input has, and that sensors are compared on
SETS, MOST_SENSORS, SAMPLES = 100, 10, 8
"""Of a comparison: sets of sensors of each kind, sensors in the largest, samples of each set."""

CLUSTER = 0.05  # half the width of a cluster of sensors, relative to the box
SEEN = 0.01  # points whose std is below this share of the largest are left out: u is fixed there


Operator = dict[str, Any]
OPERATORS: dict[str, Operator] = yaml.safe_load(
    files("uqsonet_study").joinpath("operators.yaml").read_text(encoding="utf-8")
)
WHO = {"": METHOD, "no_sensors_": "sensor_free"} | {f"{b}_": b for b in ("cokriging", "regression")}
SCORES = {f"{prefix}{e}": (WHO[prefix], e) for prefix in WHO for e in ("err_mean", "err_std")}
SCORES |= {f"coverage_{level}": (METHOD, f"coverage_{level}") for level in (50, 90, 95)}
"""Column of a card -> method and metric of a summary."""


def ship(study: Study, results: Path, published: Path, out: Path) -> list[Path]:
    """Write the small weights of all operators whose full ones are in a folder of results.

    Parameters
    ----------
    study : Study
        Its experiments are those of the trainings and scores.
    results : Path
        Has ``train/{problem}/...``.
    published : Path
        Its summaries are behind the cards.
    out : Path
        The library's folder of weights.

    Returns
    -------
    list of Path
        The files written. Those whose full weights are missing stay as they are.

    Raises
    ------
    DataError
        If no scores of an operator are published, its experiments do not share a training, or a
        file is not that training's.
    """
    done = []
    for name in OPERATORS:
        file = training_of(name, study)
        full, path = results / file, out / f"{name}.safetensors"
        if not full.is_file():
            continue
        tensors, meta = shrunk(full)
        _require_training(full, meta, study.of(OPERATORS[name]["experiments"])[0])
        meta["source"] = {"file": str(file), "sha256": file_digest(full)}
        about = card(name, study, published, meta)
        if not _is_published(meta, published):
            # The last validation skills of the repeated training and of the published one.
            paths = (folder / file for folder in (results, published))
            logs = [pd.read_csv(log.with_suffix(".csv")).iloc[-1] for log in paths]
            skills = [str(key) for key in logs[0].index if str(key).startswith("skill_")]
            about["repeated"] = {key: [rounded(log[key], 4) for log in logs] for key in skills}
        with tempfile.TemporaryDirectory() as folder:
            small = Path(folder) / path.name
            write_weights(small, tensors, meta)
            about |= compared(load(full), load(small), get_problem(name))
        write_weights(path, tensors, meta | {"card": about})
        done.append(path)
    return done


def _require_training(path: Path, meta: dict[str, Any], case: Row) -> None:
    found = meta["fields"]["name"], meta["method"], meta["training"]
    if found != (wanted := (case.problem, METHOD, case.N)):
        raise DataError(f"{path}: of a training of {found}, expected {wanted}")


def training_of(name: str, study: Study) -> Path:
    """Return where a folder of results has the first training behind an operator."""
    experiments = OPERATORS[name]["experiments"]
    found = {study.weights(case, METHOD, 1)[0] for case in study.of(experiments)}
    if len(found) != 1:
        raise DataError(f"{', '.join(experiments)}: several trainings of UQ-SONet, not one")
    return Path(found.pop()).relative_to(study.config.results)


def card(name: str, study: Study, published: Path, meta: dict[str, Any]) -> dict[str, Any]:
    """Return the card of an operator, from published scores and the header of its weights.

    Raises
    ------
    DataError
        If the scores of the operator are not published.
    """
    operator, problem = OPERATORS[name], get_problem(name)
    scores = _scores(operator["experiments"], published)
    return {
        "title": problem.title,
        "data": f"{operator['equation']}. Input: {operator['law']}. {meta['training']:,} training "
        f"pairs, seed {meta['seed']}.",
        "recipe": _recipe(study.config.recipe, meta, scores[0]["trials"])
        + (
            "the first of them." if _is_published(meta, published) else "a repetition of the first."
        ),
        "scores": scores,
        "limits": _limits(problem, operator, study),
    }


def _is_published(meta: dict[str, Any], published: Path) -> bool:
    """Return whether a published run made the very file that weights come from."""
    digests = pd.read_csv(published / "weights_sha256.csv")["sha256"]
    return meta["source"]["sha256"] in set(digests)


def _recipe(recipe: str, meta: dict[str, Any], trials: float) -> str:
    network, training = meta["config"]["network"], meta["config"]["training"]
    widths = "-".join(map(str, network["branch"]))
    return (
        f"Recipe {recipe}: Karhunen-Loeve model with {network['input_modes']} input modes, "
        f"{network['output_modes']} output modes, a linear map and a perceptron {widths}; "
        f"{training['iterations']:,} steps with batches of {training['batch_size']:,}. The scores "
        f"are averages over {trials} published trainings. This is "
    )


def _limits(problem: Problem, operator: Operator, study: Study) -> list[str]:
    """Return what an operator is for and was tested with, in words."""
    grid, symbol, cases = problem.grid, problem.input_symbol, study.of(operator["experiments"])
    box = " x ".join(f"[{a:g}, {b:g}]" for a, b in zip(grid.lower, grid.upper, strict=True))
    positive = problem.transform.positive
    sensors, levels = study.config.layouts[cases[0].layout], [f"{case.noise:g}" for case in cases]
    places = "on grid points drawn at random"
    if sensors.distances:
        apart = ", ".join(f"{d:g} ({m} sensors)" for m, d in sensors.distances.items())
        places = f"on grid points, {sensors.margin:g} or more from the boundary, and from each "
        places += f"other at least {apart}"
    found = [
        f"Domain: {box}{', periodic' if grid.periodic else ''}. Sensors read {symbol}"
        + (f", which must be positive; the model works with log {symbol}." if positive else "."),
        "Noise: Gaussian, independent between sensors, of any known standard deviation, on "
        f"{'log ' * positive}{symbol}. Tested with {', '.join(levels)}.",
        f"Sensors: tested with {sensors.counts[0]} to {sensors.counts[-1]} of them {places}.",
        f"Input: the model assumes that {operator['law']}. For inputs of another law its answers "
        "are biased, or too sure.",
        "Calibration: there is no calibration part, so there is no conformal band.",
    ]
    if problem.unobserved is not None:
        found.append("What no sensor sees has its stated law, too. The band contains its effect.")
    return found


def _scores(experiments: list[str], published: Path) -> list[dict[str, float]]:
    """Return a row for each noise level and sensor count: errors in percent, coverage as shares."""
    rows = []
    for path in (published / "summary" / f"{experiment}.csv" for experiment in experiments):
        try:
            precise = pd.read_csv(path).query("evaluation == 'precise'")
            for _, part in precise.groupby(["noise_std", "sensors"]):
                found, where = part.set_index(["method", "metric"]), part.iloc[0]
                row = {"sensors": int(where["sensors"]), "noise_std": float(where["noise_std"])}
                for column, key in SCORES.items():
                    unit = 100 if "err" in column else 1
                    row[column] = rounded(unit * found.loc[key, "value"], 4)
                counts = found.loc[METHOD, "err_mean"]
                rows.append(row | {key: int(counts[key]) for key in ("sets", "trials")})
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path}: no complete scores for a card ({error!r})") from None
    return rows


def rounded(value: SupportsFloat, digits: int) -> float:
    """Return a number with so many digits that count."""
    return float(f"{float(value):.{digits}g}")


def shrunk(source: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors and header of a weight file in its small form."""
    tensors, meta = read_weights(source)
    fields = meta["fields"]
    inputs, outputs = (fields[side]["grid"]["shape"] for side in ("input", "output"))
    views = {
        "buffer/bases.input_factor": [*inputs, -1],
        "buffer/bases.output_modes": [*(-(-n // fields["output_stride"]) for n in outputs), -1],
        "buffer/residual_slopes": [*tensors.get("buffer/residual_slopes", torch.empty(0)).shape],
    }
    small, factored = {}, {}
    for name, tensor in tensors.items():
        parts = _factors(tensor.view(views[name])) if name in views else {}
        if parts and sum(part.numel() for part in parts.values()) < SMALLER * tensor.numel():
            if name == "buffer/residual_slopes":
                # Its core is brought to half precision; the scale goes into the first factor.
                scale = LARGEST_HALF / parts["core"].abs().max()
                first = next(part for part in parts if part != "core")
                parts["core"] = (parts["core"] * scale).half()
                parts[first] = parts[first] / scale
            small |= {f"{name}/{part}": value for part, value in parts.items()}
            factored[name] = list(tensor.shape)
        else:
            small[name] = tensor.half() if name == "buffer/residuals" else tensor
    return small, meta | {"factored": factored}


def _factors(tensor: Tensor) -> dict[str, Tensor]:
    """Return a core and factors of orthonormal columns (Tucker's form), to `TOLERANCE`.

    Axis by axis, the leading left singular vectors that leave out no more than its share. An axis
    that needs all of them stays as it is.
    """
    core, factors = tensor.double(), {}
    allowed = TOLERANCE * core.norm() / core.ndim**0.5
    for axis, size in enumerate(tensor.shape):
        rows = core.movedim(axis, 0)
        vectors, values, _ = torch.linalg.svd(rows.flatten(1), full_matrices=False)
        left = values.square().flip(0).cumsum(0).flip(0).sqrt()
        kept = vectors[:, : max(1, int((left > allowed).sum()))]
        if kept.shape[1] < size:
            factors[str(axis)] = kept.to(tensor.dtype)
            core = torch.tensordot(kept.T, rows, 1).movedim(0, axis)
    return {"core": core.to(tensor.dtype), **factors}


def compared(full: OperatorModel, small: OperatorModel, problem: Problem) -> dict[str, Any]:
    """Return what the law of the input gives: typical values, and how far answers are apart.

    Returns
    -------
    dict
        `typical_input`: the values of the input below which 5 % and 95 % of it are.
        `difference`: for `random` and `clustered` layouts, the median and the largest difference
        of `mean`, `std` and (for equal draws) `sample` over sets and points of the output's grid,
        in units of the posterior std there.
    """
    generator = torch.Generator().manual_seed(0)
    xi = torch.randn(INPUTS, problem.gaussian_prior.rank, generator=generator, dtype=torch.float64)
    inputs = problem.transform.inverse(problem.gaussian_prior.field(xi))
    ordered = inputs.flatten().sort().values
    ends = [ordered[int(level * len(ordered))] for level in (0.05, 0.95)]
    lower = torch.tensor(problem.grid.lower, dtype=torch.float64)
    width = torch.tensor(problem.grid.upper, dtype=torch.float64) - lower
    found: dict[str, Any] = {"sets": SETS, "sensors": [1, MOST_SENSORS]}
    for kind, functions in zip(("random", "clustered"), inputs.split(SETS)[:2], strict=True):
        away: list[list[Tensor]] = [[], [], []]
        for index, values in enumerate(functions):
            x = torch.rand(1 + index % MOST_SENSORS, len(width), generator=generator).double()
            if kind == "clustered":
                centre = torch.rand(len(width), generator=generator)
                x = (centre + CLUSTER * (2 * x - 1)).clamp(0, 1)
            x = lower + width * x
            field = problem.grid.interpolate(problem.transform.forward(values)[:, None], x)
            y = problem.transform.inverse(field[:, 0])
            theirs, ours = (model.condition(x, y) for model in (full, small))
            std = theirs.std()
            drawn = ours.sample(SAMPLES), theirs.sample(SAMPLES)
            pairs = (ours.mean(), theirs.mean()), (ours.std(), std), drawn
            for kept, (a, b) in zip(away, pairs, strict=True):
                kept.append(((a - b).abs() / std)[..., std > SEEN * std.max()].flatten())
        found[kind] = {
            what: {"median": rounded(values.median(), 2), "largest": rounded(values.max(), 2)}
            for what, values in zip(("mean", "std", "sample"), map(torch.cat, away), strict=True)
        }
    return {"typical_input": [rounded(end, 2) for end in ends], "difference": found}

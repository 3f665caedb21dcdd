"""The command line ``uqsonet``: describe, fit, predict, place, validate, explore, info.

Over time they are fit-dynamics and forecast.

Other packages add commands of their own (entry points of the group ``uqsonet.commands``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option, Typer
from typer.core import TyperGroup

from uqsonet import __version__
from uqsonet.errors import ConfigError
from uqsonet.files import require_picture, require_writable, write_text
from uqsonet.show.terminal import clear_errors, console, never_silent, show_log

if TYPE_CHECKING:
    from uqsonet.fields.field import Field
    from uqsonet.runs.runs import Runs

REMOVED = {
    "export": "differences of two answers say how a mean follows its readings (docs/hand-over.md)",
    "--avoid": "leave places where no sensor may stand out of --candidates",
    "--pairs": "uqsonet info has the scores of regression on the runs of fit",
}
"""Commands and options of earlier versions, and what there is in their place."""


class _Commands(TyperGroup):
    """Commands, of which earlier ones are refused with what there is in their place."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that words name."""
        for word in [args[0], *(word for word in args if word.startswith("--"))]:
            with clear_errors():
                if word in REMOVED:
                    raise ConfigError(f"there is no {word} any more: {REMOVED[word]}")
        return super().resolve_command(ctx, args)


app = Typer(cls=_Commands, add_completion=False, no_args_is_help=True)


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise Exit


@app.callback()
def _options(
    version: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """UQ-SONet: operators from sparse sensors, with the whole conditional distribution."""


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a function a command that says what it is at, and what a user can mend in one line."""

    @app.command()
    @wraps(function)
    def run(*arguments: Any, **options: Any) -> None:
        with clear_errors(), never_silent(function.__name__):
            function(*arguments, **options)

    return run


def _help(text: str, default: str | bool = True) -> Any:
    """Return an option with its help, and what is shown as its default."""
    return Option(help=text, show_default=default)


def _out(text: str, default: str | bool = True) -> Any:
    """Return the option ``-o`` with its help, and what is shown as its default."""
    return Option("-o", "--out", help=text, show_default=default)


FileOfRuns = Annotated[
    str, Argument(help="Pairs of functions: .npz, .h5, .nc, or a file for each run: run_*.vtu.")
]
Input = Annotated[str, _help("Name of the input field, or of several: k,f.")]
Output = Annotated[str, _help("Name of the output field, or of several: u,v.")]
Transforms = Annotated[
    list[str] | None,
    _help("Transform of one field: k=log, asinh or identity.", "what scores better"),
]
Missing = Annotated[
    str, _help("NaN: error, drop (the run), fill (interpolate), model (learn from readings).")
]
RunDimension = Annotated[str | None, _help("NetCDF dimension that counts the runs.")]
Periodic = Annotated[
    str | None, _help("Axes along which fields repeat beyond their grids: lon, or all.")
]
Merge = Annotated[bool, Option("--merge", help="Points that repeat become one.")]
Groups = Annotated[
    str | None, _help("Array of the file with a label for each run: labels go together.")
]
Model = Annotated[str, Argument(help="A file, or the name of an operator of the package.")]
Counts = Annotated[
    str | None,
    _help("Numbers of sensors to expect, or a CSV of their places: x[,y[,z]].", "3,10,30"),
]
Tried = Annotated[
    str | None,
    _help("Numbers of sensors to try, such as 5,12,50, or a CSV of places.", "the model's"),
]
Reads = Annotated[str | None, _help("Field that these sensors read; it may be an output.")]
Picture = Annotated[Path | None, _help("File for a picture: .png, .pdf or .svg.")]

Answered = Annotated[str | None, _help("Field to answer; it may be an input.", "the output")]
Noise = Annotated[
    str | None, _help("Noise of the sensors (std): 0.1, or by field k=0.1,u=5.", "the model's")
]


@command
def describe(
    file: FileOfRuns, input: Input | None = None, output: Output | None = None,
    transform: Transforms = None, missing: Missing = "error", run: RunDimension = None,
    periodic: Periodic = None, groups: Groups = None, merge: Merge = False,
    plot: Picture = None,
) -> None:  # fmt: skip
    """Say what is in a file of runs: shapes, ranges, modes, distance from a Gaussian law.

    Without --input and --output: the names of its fields, with shapes, units and ranges. --plot
    draws the first three runs.

    Example: uqsonet describe runs.nc --input k --output u --plot runs.png
    """
    require_writable(plot, read=[file])
    require_picture(plot)
    if input is None or output is None:
        from uqsonet.runs.files import contents

        if plot is not None:
            raise ConfigError("--plot: name the fields by --input and --output")
        print(contents(file))
        return
    runs = _runs(file, input, output, transform, missing, run, periodic, groups, merge)
    if plot is not None:
        runs.plot(plot)
    print(runs.describe())


@command
def fit(
    file: FileOfRuns,
    input: Input,
    output: Output,
    out: Annotated[Path, _out("File for the model: .safetensors.")],
    sensors: Counts = None,
    field: Reads = None,
    noise_std: Annotated[
        str, _help("Noise to expect (std; under log relative): 0.1, or by field k=0.1,u=5.")
    ] = "0",
    seed: Annotated[int, _help("Seed of the split and the layouts.")] = 0,
    transform: Transforms = None,
    missing: Missing = "error",
    run: RunDimension = None,
    periodic: Periodic = None,
    groups: Groups = None,
    merge: Merge = False,
    law: Annotated[str, _help("Law of the inputs; auto chooses by scores on held-out runs.")] = (
        "auto"
    ),
    drift: Annotated[bool, _help("New fields may have another level and variance.")] = False,
    minutes: Annotated[float | None, Option(hidden=True)] = None,
) -> None:
    """Learn the operator of some runs.

    Example: uqsonet fit runs.nc --input k --output u -o mine.safetensors
    """
    from uqsonet.fields.field import Field
    from uqsonet.fitting.fit import fit as learn

    show_log()
    if out.suffix != ".safetensors":
        raise ConfigError(f"{out}: models are saved as .safetensors")
    require_writable(out, read=[file, sensors])
    runs = _runs(file, input, output, transform, missing, run, periodic, groups, merge)
    every = {**runs.inputs, **runs.outputs}
    fields = [Field(name, one.domain, layout=one.layout) for name, one in every.items()]
    places = _places(sensors, field, fields, len(runs.inputs))
    noise = _noise(noise_std)
    model = learn(runs, minutes, sensors=places, noise_std=noise, rng=seed, law=law, drift=drift)
    model.save(out)
    print(model)
    _say_saved(out)


@command
def predict(
    model: Model,
    sensors: Annotated[Path, Argument(help="CSV: x[,y[,z]],value[,field][,noise_std][,set].")],
    out: Annotated[Path | None, _out("For the answer: .csv, .npz, .nc, .vtu.", "print")] = None,
    plot: Picture = None,
    points: Annotated[
        Path | None, _help("CSV of points to answer at: x[,y[,z]].", "the field's own points")
    ] = None,
    level: Annotated[float, _help("Level of the band.")] = 0.9,
    band: Annotated[
        str, _help("Kind of the band: conformal, plain or whole.", "conformal if calibrated")
    ] = "",
    samples: Annotated[int, Option(min=0, help="Number of sample functions to draw.")] = 0,
    noise_std: Noise = None,
    field: Answered = None,
) -> None:
    """Answer for a file of sensors: mean, standard deviation and band of a field.

    Example: uqsonet predict mine.safetensors sensors.csv -o field.nc --plot field.png
    """
    from uqsonet.emulator.emulator import load
    from uqsonet.sensors.tables import read_points
    from uqsonet.show.export import require_format

    require_writable(out, plot, read=[model, sensors, points])
    require_picture(plot)
    if out is not None:
        require_format(out)
    kinds: dict[str, dict[str, Any]] = {
        "": {}, "plain": {"kind": "plain"}, "conformal": {"kind": "conformal"},
        "whole": {"whole": True},
    }  # fmt: skip
    if band not in kinds:
        raise ConfigError(f"--band {band!r} is unknown; there are conformal, plain and whole")
    emulator = load(model)
    posterior = emulator.condition(sensors, noise_std=_noise(noise_std))
    if field is not None:
        posterior = posterior[field]
    elif len(emulator.outputs) > 1:
        names = ", ".join(one.name for one in emulator.outputs)
        raise ConfigError(f"{model} has several output fields: say --field, one of {names}")
    places = None if points is None else read_points(points, posterior.field)
    _hand_over(posterior, out, plot, level, places, samples, **kinds[band])


@command
def fit_dynamics(
    file: Annotated[str, Argument(help="Runs over time: .nc or .zarr.")],
    fields: Annotated[str, _help("Name of the field over time, or of several: u,v.")],
    out: Annotated[Path, _out("File for the model: .safetensors.")],
    constants: Annotated[
        str, _help("What differs from run to run and stays the same in each: nu.", "nothing")
    ] = "",
    time: Annotated[str | None, _help("Dimension that counts instants.", "that of time")] = None,
    run: RunDimension = None,
    noise_std: Annotated[str, _help("Noise to expect (std): 0.1, or by field u=0.1,v=5.")] = "0",
    transform: Transforms = None,
    periodic: Periodic = None,
    seed: Annotated[int, _help("Seed of the split and of a network's training.")] = 0,
) -> None:
    """Learn from runs how fields go on from one instant to the next.

    Example: uqsonet fit-dynamics runs.nc --fields u --constants nu -o mine.safetensors
    """
    from uqsonet.dynamics.fit import fit_dynamics as learn
    from uqsonet.dynamics.trajectories import open_trajectories

    show_log()
    if out.suffix != ".safetensors":
        raise ConfigError(f"{out}: models are saved as .safetensors")
    require_writable(out, read=[file])
    runs = open_trajectories(
        file, fields, constants, time, run, transform=_transforms(transform),
        periodic=True if periodic == "all" else periodic or False,
    )  # fmt: skip
    noise: Any = _noise(noise_std)
    model = learn(runs, noise, seed)
    model.save(out)
    print(model)
    _say_saved(out)


@command
def forecast(
    model: Annotated[str, Argument(help="A file of fit-dynamics.")],
    sensors: Annotated[Path, Argument(help="CSV: time,x[,y[,z]],value[,field][,noise_std].")],
    until: Annotated[str | None, _help("Last time of the answer.", "the last reading's")] = None,
    out: Annotated[Path | None, _out("For the answer: .csv, .npz or .nc.", "print")] = None,
    plot: Picture = None,
    level: Annotated[float, _help("Level of the band.")] = 0.9,
    filter: Annotated[
        bool, Option("--filter", help="Each instant knows of readings until then alone.")
    ] = False,
    noise_std: Noise = None,
    field: Answered = None,
) -> None:
    """Answer for readings over time: mean, standard deviation and band at each instant.

    Example: uqsonet forecast mine.safetensors sensors.csv --until 12 -o answer.nc
    """
    from uqsonet.dynamics.dynamics import Dynamics
    from uqsonet.show.export import require_format

    require_writable(out, plot, read=[model, sensors])
    require_picture(plot)
    if out is not None:
        require_format(out)
    dynamics = Dynamics.load(model)
    answer = dynamics.condition(
        sensors, noise_std=_noise(noise_std), until=until, smooth=not filter
    )[field or dynamics.fields[0].name]  # fmt: skip
    _hand_over(answer, out, plot, level)


@command
def place(
    model: Model,
    n: Annotated[int, Option("--n", help="Number of sensors to place.")] = 1,
    candidates: Annotated[
        Path | None, _help("CSV of places to choose from: x[,y[,z]][,cost].", "the field's points")
    ] = None,
    given: Annotated[
        Path | None, _help("CSV of sensors that are there already, as for predict.")
    ] = None,
    field: Annotated[str | None, _help("Field that the new sensors read.", "the input")] = None,
    target: Annotated[str | None, _help("Field whose variance is to fall.", "the output")] = None,
    noise_std: Annotated[
        float | None, _help("Noise of the new sensors (std).", "the model's")
    ] = None,
    distance: Annotated[float, Option(help="Least distance between two sensors.")] = 0.0,
    budget: Annotated[float | None, _help("What the new sensors may cost.", "no limit")] = None,
    out: Annotated[Path | None, _out("File for the places: .csv.", "print")] = None,
    plot: Annotated[Path | None, _help("File for the map: .png, .pdf or .svg.")] = None,
) -> None:
    """Say where the next sensors belong: places that leave the least variance of the output.

    Example: uqsonet place mine.safetensors --n 4 --given sensors.csv -o places.csv --plot map.png
    """
    from uqsonet.emulator.emulator import load
    from uqsonet.sensors.sensors import field_number
    from uqsonet.sensors.tables import read_candidates
    from uqsonet.show.export import csv_text, placement_lines

    require_writable(out, plot, read=[model, given, candidates])
    require_picture(plot)
    if out is not None and out.suffix.lower() != ".csv":
        raise ConfigError(f"{out}: places are written to .csv")
    emulator = load(model)
    fields = emulator.named_fields
    number = 0 if field is None else field_number(fields, field, "--field")
    places, cost = None, None
    if candidates is not None:
        places, cost = read_candidates(candidates, fields[number])
    placement = emulator.place(
        n, places, field=field, given=given, noise_std=noise_std, target=target,
        distance=distance, cost=cost, budget=budget,
    )  # fmt: skip
    if plot is not None:
        placement.plot(plot)
    text = csv_text(placement_lines(placement, fields))
    if out is not None:
        write_text(out, text)
    else:
        print(text, end="")
    _say_saved(out, plot)


@command
def validate(
    model: Model,
    file: FileOfRuns,
    sensors: Tried = None,
    out: Annotated[Path | None, _out("File for a page with pictures: .html.")] = None,
    csv: Annotated[Path | None, Option("--csv", help="File for the table: .csv.")] = None,
    field: Reads = None,
    noise_std: Noise = None,
    seed: Annotated[int, _help("Seed of the layouts and of the noise.")] = 0,
    missing: Missing = "error",
    run: RunDimension = None,
) -> None:
    """Score a model on runs that it has not seen, beside no sensors and cokriging.

    Example: uqsonet validate mine.safetensors more_runs.nc --sensors 5,12,50 -o report.html
    """
    from uqsonet.emulator.emulator import load
    from uqsonet.show.export import csv_text

    require_writable(out, csv, read=[model, file, sensors])
    emulator = load(model)
    ins, outs = (",".join(f.name for f in side) for side in (emulator.inputs, emulator.outputs))
    runs = _runs(file, ins, outs, None, missing, run)
    places = _places(sensors, field, emulator.named_fields, len(emulator.inputs))
    report = emulator.validate(runs, places, noise_std=_noise(noise_std), rng=seed)
    if out is not None:
        report.save(out)
    if csv is not None:
        rows = report.rows()
        names = list(dict.fromkeys(name for row in rows for name in row))
        lines = ([str(row.get(name, "")) for name in names] for row in rows)
        write_text(csv, csv_text(iter([names, *lines])))
    print(report)
    _say_saved(out, csv)


@command
def explore(
    model: Model, out: Annotated[Path, _out("File for the page: .html.")] = Path("page.html")
) -> None:
    """Write a page to explore a model with: move sensors, see mean, band and samples move along.

    Example: uqsonet explore mine.safetensors -o mine.html
    """
    from uqsonet.emulator.emulator import load
    from uqsonet.show.explore import write_page

    require_writable(out)
    size = write_page(load(model), out, Path(model).stem)
    console.print(f"saved: {out} ({size / 1e6:.1f} MB)", markup=False, highlight=False)


@command
def info(model: Model) -> None:
    """Say what a model is: fields, data, recipe, scores, limits.

    Example: uqsonet info mine.safetensors
    """
    from uqsonet.emulator.emulator import load

    print(load(model))


def _runs(
    file: str, input: str, output: str, transform: list[str] | None, missing: Any,
    run: str | None, periodic: str | None = None, groups: str | None = None, merge: bool = False,
) -> Runs:  # fmt: skip
    from uqsonet.runs.field_runs import MISSING
    from uqsonet.runs.files import open_runs

    if missing not in MISSING:
        raise ConfigError(f"--missing {missing!r} is unknown; there are {', '.join(MISSING)}")
    return open_runs(
        file, input, output, transform=_transforms(transform), missing=missing, run=run,
        groups=groups, periodic=True if periodic == "all" else periodic or False, merge=merge,
    )  # fmt: skip


def _transforms(stated: list[str] | None) -> dict[str, str]:
    """Return transforms by field."""
    transforms = {}
    for text in stated or []:
        name, sign, kind = text.partition("=")
        if not sign:
            raise ConfigError(f"--transform: k=log expected, found {text!r}")
        transforms[name] = kind
    return transforms


def _hand_over(
    posterior: Any, out: Path | None, plot: Path | None, level: float, places: object = None,
    samples: int = 0, **band: Any,
) -> None:  # fmt: skip
    """Write an answer and its picture; print it where neither is asked for."""
    from uqsonet.show import export as exports

    if plot is not None:
        posterior.plot(plot, level, points=places)
    if out is not None or plot is None:
        arrays = exports.answer_arrays(posterior, level, places, samples, **band)
        if out is not None:
            exports.write_answer(posterior, out, arrays, level, places)
        else:
            print(exports.csv_text(exports.answer_lines(posterior, arrays, places)), end="")
    _say_saved(out, plot)


def _say_saved(*paths: Path | None) -> None:
    """Say which files were written, on the error stream."""
    for path in paths:
        if path is not None:
            console.print(f"saved: {path}", markup=False, highlight=False)


def _places(text: str | None, name: str | None, fields: Sequence[Field], inputs: int) -> object:
    """Return numbers of sensors that are separated by commas, or places from a CSV, by field.

    Fields are inputs first.
    """
    if text is None:
        if name is not None:
            raise ConfigError(f"--field {name}: how many sensors read it? Say so with --sensors")
        return None
    if text.lower().endswith(".csv"):
        from uqsonet.sensors.sensors import field_number
        from uqsonet.sensors.tables import read_points

        if name is None and inputs > 1:
            raise ConfigError(f"--sensors {text}: say with --field which field they read")
        number = 0 if name is None else field_number(fields, name)
        found: object = read_points(Path(text), fields[number])
    else:
        try:
            found = [int(part) for part in text.split(",")]
        except ValueError:
            raise ConfigError(
                f"--sensors: whole numbers such as 5,12,50, or a .csv, found {text!r}"
            ) from None
    return found if name is None else {name: found}


def _noise(text: str | None) -> object:
    """Return noise that is one number, or one by field: k=0.1,u=5."""
    if text is None:
        return None
    try:
        if "=" not in text:
            return float(text)
        pairs = [part.partition("=") for part in text.split(",")]
        return {name.strip(): float(level) for name, _, level in pairs}
    except ValueError:
        raise ConfigError(f"--noise-std: 0.1, or by field k=0.1,u=5, found {text!r}") from None


def main() -> None:
    """Run the command line, with the commands of every package that offers ``uqsonet.commands``."""
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch: large tensors on large pages
    for point in entry_points(group="uqsonet.commands"):
        try:
            app.registered_commands += point.load().registered_commands
        except ModuleNotFoundError as error:  # an extra that is not installed
            app.info.epilog = (
                f"More commands: pip install 'uqsonet\\[study]' (no {error.name} here)."
            )
    app()

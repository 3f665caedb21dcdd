"""How the mean of an answer follows its readings: gradients, and the map of a linear answer.

Differences of means are exact where the mean is linear in the (transformed) readings. Elsewhere
steps are small, with the same random numbers behind all means.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uqsonet.emulator.checks import require_usable
from uqsonet.emulator.field_law import Conditioned, FieldLaw
from uqsonet.emulator.named_operator import NamedOperator
from uqsonet.errors import DataError, ObservationError, ObservationWarning, library
from uqsonet.files import atomic_path
from uqsonet.operator.baselines import Cokriging, Unread
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.operator.regression import Regression
from uqsonet.sensors.sensors import Sensors
from uqsonet.sensors.tables import read_csv, read_table

SMALL_STEP = 1e-3  # small step of a transformed reading, in standard deviations of its field


@dataclass(frozen=True)
class LinearMap:
    """The mean ``matrix t(y) + offset`` of a field, and its spread, for one layout of sensors.

    Here t(y) are the readings, or their logarithms where the model takes these.

    Attributes
    ----------
    matrix, offset, std : ndarray, shapes (M, m), (M,) and (M,)
        In units of the field; the standard deviation is the same for all readings.
    points, places : ndarray, shapes (M, d) and (m, d)
        Where the field is answered, and where sensors stand.
    logarithm : ndarray of bool, shape (m,)
    field, read : str and list of str
        The field that is answered, and those that sensors read.
    """

    matrix: np.ndarray
    offset: np.ndarray
    std: np.ndarray
    points: np.ndarray
    places: np.ndarray
    logarithm: np.ndarray
    field: str
    read: list[str]

    def __call__(self, readings: Any) -> np.ndarray:
        """Return the mean (M,) or (B, M) for readings (m,) or (B, m)."""
        y = np.array(readings, dtype=np.float64)
        return np.log(y, where=self.logarithm, out=y) @ self.matrix.T + self.offset

    def save(self, path: Path | str) -> None:
        """Write ``.npz``, or ``.onnx``: readings (B, m) to mean (B, M) and std (M,), float64."""
        suffix = Path(path).suffix
        if suffix not in (".npz", ".onnx"):
            raise DataError(f"{path}: linear maps are written to .npz and .onnx")
        graph = _graph(self, library("onnx", "handover")) if suffix == ".onnx" else None
        with atomic_path(Path(path)) as part, part.open("wb") as file:
            np.savez(file, **vars(self)) if graph is None else file.write(graph)


def _graph(one: LinearMap, onnx: Any) -> bytes:
    """Return a map as a file of ONNX; logarithms that are not taken may be not a number."""
    size, count = one.matrix.shape
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 13]>
        linear_map (double[B, {count}] readings) => (double[B, {size}] mean, double[{size}] std) {{
          logarithms = Log (readings)
          t = Where (logarithm, logarithms, readings)
          mean = Gemm <transB = 1> (t, matrix, offset)
          std = Identity (spread)
        }}""")
    arrays = {"matrix": one.matrix, "offset": one.offset, "spread": one.std}
    for name, value in (arrays | {"logarithm": one.logarithm}).items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return model.SerializeToString()


def layout(operator: NamedOperator, path: Path, noise_std: float | None) -> Sensors:
    """Return sensors from a CSV file that needs no readings, as a map holds for any."""
    columns = read_csv(path)
    table = {"value": ["1"] * len(next(iter(columns.values()))), **columns}
    sets = read_table(operator.named_fields, table, noise_std, len(operator.inputs))
    require_usable(operator, sets)
    return sets


def linear_map(conditioned: Conditioned, number: int, x: Tensor) -> LinearMap:
    """Return what `FieldPosterior.linear_map` promises."""
    operator, sets = conditioned.operator, conditioned.sets
    if not sets.single:
        raise ObservationError(f"a map is of one layout of sensors, found {len(sets)} sets")
    sets, name = sets.alone(0), operator.named_fields[number].name
    for _, text in _obstacles(operator, sets, number, spread=True):
        raise ObservationError(
            f"the answer about {name} is not linear in these readings: {text}. Linear are answers "
            "by a gaussian law with a linear operator (fit(..., minutes=0, law='gaussian')), "
            "cokriging or regression, about a field without a transform, of readings as they are "
            "or under log"
        )
    matrix, law = _slopes(operator, sets, number, x, 1.0), FieldLaw(conditioned, number)
    logarithm, values = _logarithms(operator, sets), sets.values[0]
    offset = law.mean(x)[0] - matrix @ torch.where(logarithm, values.log(), values)
    parts = matrix, offset, law.std(x)[0], x, sets.locations[0], logarithm
    read = [operator.named_fields[k].name for k in sets.field[0].tolist()]
    return LinearMap(*(part.numpy() for part in parts), name, read)  # type: ignore[call-arg]


def gradient(conditioned: Conditioned, number: int, x: Tensor) -> Tensor:
    """Return what `FieldPosterior.gradient` promises, (B, M, m), with zeros on padding."""
    operator, every = conditioned.operator, conditioned.sets
    found = torch.zeros(len(every), len(x), every.mask.shape[1], dtype=torch.float64)
    for row in range(len(every)):
        sets, step, name = every.alone(row), 1.0, operator.named_fields[number].name
        for smooth, text in _obstacles(operator, sets, number):
            step = SMALL_STEP
            if not smooth:
                raise ObservationError(f"the mean of {name} has no gradient that is known: {text}")
        slopes = _slopes(operator, sets, number, x, step)
        slopes = torch.where(_logarithms(operator, sets), slopes / sets.values[0], slopes)
        found[row][:, every.mask[row]] = slopes
    return found


def _obstacles(
    operator: NamedOperator, sets: Sensors, number: int, spread: bool = False
) -> Iterator[tuple[bool, str]]:
    """Yield what keeps a mean (or a spread) from being linear, and whether it is still smooth."""
    fields, jointly = operator.named_fields, operator.reads_outputs(sets)
    side, count = "outputs" if jointly else "inputs", int(sets.counts[0])
    model: Any = operator.floor.answers(side, count) if operator.floor else operator.operator
    if not (one := fields[number]).transform.linear:
        yield False, f"{one.name} has the transform {one.transform.name}, or ends"
    for kind in {fields[k].transform.name for k in sets.field[0].tolist()} - {"identity", "log"}:
        yield False, f"sensors are read under {kind}"
    if type(model) not in (KarhunenLoeveModel, Cokriging, Unread, Regression):
        yield True, f"{type(model).__name__} answers {count} sensors"
    if type(model) is not KarhunenLoeveModel:
        return
    of_output = number >= len(operator.inputs)
    learned = model.network is not None and (of_output or jointly)
    if learned:
        yield not jointly, "the operator has a perceptron"
    if model.law is not None:
        eye, given = torch.eye(model.config.input_modes).double(), operator.encode(sets)
        closed = not (jointly or learned) and model.input_law_given(given).linear_moments(eye)
        yield bool(closed), f"the law of the input is {model.law.name}"
    if of_output and model.config.nearest and not jointly:
        yield False, "samples are outputs of held-out runs with near answers"
    if spread and of_output and model.fields.random_operator:
        yield False, "the spread of a random operator depends on them"


def _logarithms(operator: NamedOperator, sets: Sensors) -> Tensor:
    """Return which sensors (m,) of one set are read under a logarithm."""
    return torch.tensor([one.transform.positive for one in operator.named_fields])[sets.field[0]]


def _slopes(operator: NamedOperator, sets: Sensors, number: int, x: Tensor, step: float) -> Tensor:
    """Return how the mean at x (M, d) changes with each transformed reading of one set, (M, m)."""
    m, scales = sets.values.shape[1], [one.scale for one in operator.named_fields]
    steps = step * torch.tensor(scales, dtype=torch.float64)[sets.field[0]]
    moves = torch.cat([torch.diag(steps), -torch.diag(steps)])
    logarithm, values = _logarithms(operator, sets), sets.values
    values = torch.where(logarithm, values * moves.exp(), values + moves)
    every = sets.each(lambda t: t.expand(2 * m, *t.shape[1:]))
    moved = replace(every, values=values, labels=[str(k) for k in range(2 * m)], single=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ObservationWarning)  # moved readings may be improbable
        up, down = FieldLaw(Conditioned(operator, moved), number).mean(x).split(m)
    return ((up - down) / (2 * steps[:, None])).T

"""Rows of benchmarks.csv and their files."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

NOT_RUN = "not run"
COLUMNS = "name,hardware,value,unit,peer,peer_value,ratio,floor,fraction_of_floor".split(",")


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes
    ----------
    name : str
    hardware : str
    value : float or None
        None: no hardware allowed it, or what it needs is not installed.
    unit : str
    peer : str
        What it is compared with; for a row that was not run, the reason may stand here.
    peer_value : float or None
        The peer in the same unit.
    floor : float or None
        What the value could be at best, in the same unit.
    """

    name: str
    hardware: str
    value: float | None
    unit: str
    peer: str = ""
    peer_value: float | None = None
    floor: float | None = None

    @property
    def ratio(self) -> float | None:
        """How many times less than the peer's."""
        if self.value is None or self.peer_value is None:
            return None
        return self.peer_value / self.value

    @property
    def fraction_of_floor(self) -> float | None:
        """The floor as a share of the value: 1 is the best possible."""
        return None if self.value is None or self.floor is None else self.floor / self.value

    def cells(self) -> dict[str, Any]:
        """Return the row as it stands in the file."""
        found: dict[str, object] = asdict(self)
        found |= {"ratio": self.ratio, "fraction_of_floor": self.fraction_of_floor}
        found["value"] = NOT_RUN if self.value is None else self.value
        return {name: _text(found[name]) for name in COLUMNS}


def not_run(name: str, hardware: str, unit: str, reason: str = "") -> Row:
    """Return the row of something that could not be measured here."""
    return Row(name, hardware, None, unit, reason)


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def write(rows: list[Row], folder: Path) -> None:
    """Write benchmarks.csv and benchmarks.json."""
    folder.mkdir(parents=True, exist_ok=True)
    cells: list[dict[Any, Any]] = [row.cells() for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(cells)
    (folder / "benchmarks.csv").write_text(text.getvalue(), encoding="utf-8")
    values = [
        asdict(row) | {"ratio": row.ratio, "fraction_of_floor": row.fraction_of_floor}
        for row in rows
    ]
    (folder / "benchmarks.json").write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a benchmarks.csv as they stand there."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))

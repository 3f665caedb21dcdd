"""The results of a validation: scores of a method, and the report that shows them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from uqsonet.emulator.answer import FieldPosterior

Model = Any
"""An `uqsonet.Emulator`. Its methods call this room, which therefore does not import it."""

RANK_BINS = 10
"""Number of bins of the rank histogram."""


@dataclass(frozen=True)
class Score:
    """What one method scores on one output field with one number of sensors.

    Attributes
    ----------
    method : {"uqsonet", "cokriging", "regression", "sensor_free"}
    field : str
    sensors, runs : int
    err_mean, err_mean_se : float
        Relative L2 error of the mean against the truths, averaged over runs, and its standard
        error.
    crps, energy : float
        In the units of the field; averaged over points and runs. Energy in the norm of L2 over the
        domain, its volume taken as one.
    plain, conformal, whole : dict of float to float, or None
        Share of truths that the plain bands hold, and the conformal ones for single points and for
        whole functions, by level. None without calibration runs.
    ranks : list of float
        Share of points whose truth's rank among the samples is in each tenth.
    functional_ranks : list of float
        The rank of the truth's mean over the domain, run by run, in [0, 1]: uniform for a
        calibrated law (simulation-based calibration; Talts et al., arXiv 1804.06788).
    """

    method: str
    field: str
    sensors: int
    runs: int
    err_mean: float
    err_mean_se: float
    crps: float
    energy: float
    plain: dict[float, float]
    conformal: dict[float, float] | None
    whole: dict[float, float] | None
    ranks: list[float]
    functional_ranks: list[float]

    def row(self) -> dict[str, Any]:
        """Return the score as a flat row of a table; errors in percent, coverage as shares."""
        row: dict[str, Any] = {
            "method": self.method,
            "field": self.field,
            "sensors": self.sensors,
            "runs": self.runs,
            "err_mean": round(100 * self.err_mean, 3),
            "err_mean_se": round(100 * self.err_mean_se, 3),
            "crps": float(f"{self.crps:.5g}"),
            "energy": float(f"{self.energy:.5g}"),
        }
        for kind in ("plain", "conformal", "whole"):
            bands = getattr(self, kind)
            for level, share in (bands or {}).items():
                row[f"{kind}_{100 * level:.0f}"] = round(share, 4)
        return row

    def calibration_p(self) -> float:
        """Return the chance of functional ranks as uneven as these under a calibrated law."""
        bins = max(2, min(RANK_BINS, len(self.functional_ranks) // 5))
        counts = np.histogram(self.functional_ranks, bins=bins, range=(0, 1))[0]
        expected = len(self.functional_ranks) / bins
        statistic = float(((counts - expected) ** 2 / expected).sum())
        half = torch.tensor([(bins - 1) / 2, statistic / 2], dtype=torch.float64)
        return float(torch.special.gammaincc(half[0], half[1]))


@dataclass(frozen=True)
class Report:
    """Scores of a model beside those without networks, on runs that it has not seen.

    Attributes
    ----------
    emulator : Model
    scores : list of Score
    title : str
    example : FieldPosterior
        The answer to the first run with the middle number of sensors, for a picture.
    truth : Tensor
        What it should hold, at `points`.
    points : Tensor
    """

    emulator: Model
    scores: list[Score]
    title: str
    example: FieldPosterior
    truth: Tensor
    points: Tensor

    def rows(self) -> list[dict[str, Any]]:
        """Return the scores as rows of a table."""
        return [score.row() for score in self.scores]

    def __str__(self) -> str:
        return "\n".join([self.title, *table_lines(self.rows()), "", *self.remarks()])

    def remarks(self) -> list[str]:
        """Return in words what the scores say."""
        remarks = []
        for score in self.scores:
            if score.method != "uqsonet":
                continue
            where = f"{score.field}, {score.sensors} sensors"
            others = {s.method: s for s in self.scores
                      if (s.field, s.sensors) == (score.field, score.sensors)}  # fmt: skip
            free = others.get("sensor_free")
            if free is not None and score.crps > 0.98 * free.crps:
                remarks.append(f"{where}: the sensors tell almost nothing (CRPS as without them)")
            slack = 2 / math.sqrt(score.runs)
            held = score.conformal or score.plain
            for level, share in held.items():
                if abs(share - level) > slack:
                    remarks.append(f"{where}: the {level:.0%} band holds {share:.0%} of the truths")
            p = score.calibration_p()
            if p < 0.01:
                remarks.append(
                    f"{where}: ranks of the domain's mean are not uniform (probability {p:.1g}): "
                    "the law is shifted, too narrow or too wide"
                )
        return remarks or ["Bands hold what they promise, within the error of so many runs."]

    def save(self, path: Path | str) -> None:
        """Write one HTML page with table and pictures; nothing in it is fetched from elsewhere."""
        from uqsonet.files import write_text
        from uqsonet.show.pictures import report_page

        write_text(Path(path), report_page(self))


def table_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return rows as lines of a plain table with aligned columns."""
    if not rows:
        return []
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *([str(row.get(name, "-")) for name in names] for row in rows)]
    widths = [max(len(line[k]) for line in cells) for k in range(len(names))]
    return ["  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in cells]

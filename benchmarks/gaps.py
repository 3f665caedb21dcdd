"""Runs with gaps: archives of real stations (the operator of section 4.1 is in config/gaps.yaml).

They come with the R package `fields` (Colorado's monthly weather, ozone of the Midwest):

    apt-get download r-cran-fields r-cran-spacetime && pip install rdata
    for f in r-cran-*.deb; do dpkg-deb -x $f .; done
    python -m benchmarks.gaps usr/lib/R/site-library --out gaps.csv

The third archive is of the package `spacetime`: log(1 + PM10) at 70 stations in Germany on 4,383
days. Two fields, yesterday and today, are learned together; today is asked about.

Scores are at readings that are no sensors, averaged over months or days drawn at random (240 of
1,236, 20 of 89; `crps_readings` is the mean over all readings). Colorado's are anomalies of station
and month, rain as log(10 + its value).

Expected: CRPS by month and by reading, shares in conformal bands of 50 and 90 %:

    colorado tmax    5 sensors  0.710  0.663  0.56  0.93
    colorado tmax   20 sensors  0.572  0.521  0.54  0.92
    colorado tmax   60 sensors  0.457  0.444  0.53  0.92
    colorado ppt     5 sensors  0.077  0.075  0.56  0.90
    colorado ppt    20 sensors  0.065  0.064  0.57  0.90
    colorado ppt    60 sensors  0.057  0.057  0.59  0.92
    ozone            5 sensors  6.485  6.480  0.56  0.94
    ozone           20 sensors  5.027  5.023  0.66  0.94
    ozone           60 sensors  4.275  4.271  0.66  0.96

Expected of PM10 given ten stations: CRPS, shares in plain bands of 50 and 90 %:

    read today                  0.158  0.53  0.90
    read yesterday              0.232  0.51  0.90
    read yesterday and today    0.156  0.53  0.90
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import uqsonet
from benchmarks.drift import scores
from uqsonet.gauss.seeds import numpy_generator
from uqsonet.runs.field_runs import FieldRuns

COUNTS = 5, 20, 60  # numbers of stations that are sensors
MONTHS = 240  # that are asked about

Row = dict[str, Any]


def stations(folder: Path) -> Iterator[tuple[str, np.ndarray, np.ndarray, int]]:
    """Yield name, values (N, n), places (n, 2) and how many runs are asked about."""
    import rdata  # pyright: ignore[reportMissingImports]

    stored = rdata.read_rda(folder / "COmonthlyMet.rda")
    for name in ("tmax", "ppt"):
        values = np.asarray(stored[f"CO.{name}"], dtype=float)
        kept = (~np.isnan(values)).sum((0, 1)) >= MONTHS
        values = (np.log(10 + values) if name == "ppt" else values)[..., kept]
        anomalies = (values - np.nanmean(values, 0)).reshape(-1, values.shape[-1])
        yield f"colorado {name}", anomalies, np.asarray(stored["CO.loc"])[kept], MONTHS
    ozone = rdata.read_rda(folder / "ozone2.rda")["ozone2"]
    yield "ozone", np.asarray(ozone["y"], float), np.asarray(ozone["lon.lat"], float), 20


def archive(name: str, values: np.ndarray, places: np.ndarray, asked: int) -> Iterator[Row]:
    """Yield scores at readings of runs that were not learned from, by number of sensors."""
    values = numpy_generator(0, "gaps", name).permutation(values)
    learned, later = values[asked:], values[:asked]
    start = time.time()
    model = uqsonet.fit(
        uqsonet.Runs({"t": FieldRuns.of(learned, places, missing="model")}, name=name),
        sensors=list(COUNTS),
    )
    seconds, generator = round(time.time() - start), numpy_generator(0, "gaps", "sensors")
    for count in COUNTS:
        known = [np.flatnonzero(~np.isnan(run)) for run in later]
        read = [number for number, own in enumerate(known) if len(own) > count]
        at = np.stack([generator.permutation(known[number])[:count] for number in read])
        truth = later[read]
        sensors = places[at], np.take_along_axis(truth, at, 1)
        np.put_along_axis(truth, at, np.nan, 1)
        answer = model.condition(*sensors)
        found = []
        for row, law in enumerate(zip(answer.mean(), answer.std(), truth, strict=True)):
            rest = ~np.isnan(truth[row])
            one = scores(*(part[None, rest] for part in law))
            for level in (0.5, 0.9) if row % 8 == 0 else ():  # each takes a second
                low, high = model.condition(*(part[row] for part in sensors)).band(level)
                inside = (low <= truth[row]) & (truth[row] <= high)
                one[f"band_{100 * level:.0f}"] = float(inside[rest].mean())
            found.append(one | {"readings": int(rest.sum())})
        table = pd.DataFrame(found)
        weight = table.pop("readings")
        pooled = {"crps_readings": round(float(weight @ table["crps"] / weight.sum()), 4)}
        mean = table.mean().round(4).to_dict() | pooled
        yield {"data": name, "runs": len(learned), "sensors": count, **mean, "seconds": seconds}


def stored_arrays(item: Any, path: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Yield path and values of all long vectors of a parsed R object."""
    kind = item.info.type.name
    if kind in ("REAL", "INT") and len(item.value) > 1:
        yield path, np.asarray(item.value, float)
    elif kind == "VEC":
        for number, one in enumerate(item.value):
            yield from stored_arrays(one, f"{path}[{number}]")
    elif kind == "LIST":
        tag = item.tag.referenced_object or item.tag
        yield from stored_arrays(item.value[0], f"{path}/{tag.value.value.decode()}")
        yield from stored_arrays(item.value[1], path)
    if item.attributes is not None:
        yield from stored_arrays(item.attributes, f"{path}@")


def two_days(path: Path) -> Iterator[Row]:
    """Yield scores of today's field given stations that read it, yesterday's, or both."""
    import rdata  # pyright: ignore[reportMissingImports]

    stored = dict(stored_arrays(rdata.parser.parse_file(path).object))
    places = stored["/stations@/coords"].reshape(2, -1).T
    days = np.log1p(stored["/air"].reshape(-1, len(places)))
    order = numpy_generator(0, "gaps", "pm10").permutation(np.arange(1, len(days)))
    asked, learned = order[:300], np.sort(order[300:])
    fields = {
        name: FieldRuns.of(days[learned - back], places, missing="model")
        for name, back in (("yesterday", 1), ("today", 0))
    }
    model = uqsonet.fit(uqsonet.Runs(fields), sensors={name: [10] for name in fields})
    generator, found = numpy_generator(0, "gaps", "pm10 sensors"), []
    for day in asked:
        now, before = days[day], days[day - 1]
        known = np.flatnonzero(~np.isnan(now) & ~np.isnan(before))
        if len(known) < 20:
            continue
        at = generator.permutation(known)[:10]
        rest = np.setdiff1d(np.flatnonzero(~np.isnan(now)), at)
        read = {"today": (places[at], now[at]), "yesterday": (places[at], before[at])}
        for sensors in (("today",), ("yesterday",), ("yesterday", "today")):
            answer = model.condition(**{name: read[name] for name in sensors})["today"]
            parts = answer.mean(), answer.std(), now
            one = scores(*(part[None, rest] for part in parts))
            found.append({"read": " and ".join(sensors)} | one)
    every: Any = pd.DataFrame(found)
    table = every.groupby("read").mean().round(4).reset_index()
    yield from ({"data": "pm10", "runs": len(learned), "sensors": 10, **row}
                for row in table.to_dict("records"))  # fmt: skip


def main() -> None:
    """Fit, score and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("library", type=Path, help="folder of the R packages")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found: list[Row] = []
    found += two_days(options.library / "spacetime/data/air.rda")
    print(pd.DataFrame(found).to_string(index=False), flush=True)
    for one in stations(options.library / "fields/data"):
        found += archive(*one)
        print(pd.DataFrame(found[-len(COUNTS) :]).to_string(index=False), flush=True)
    pd.DataFrame(found).to_csv(options.out, index=False)


if __name__ == "__main__":
    main()

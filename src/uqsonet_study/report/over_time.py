"""Table and figure of sensors that read over time: errors by time (`beyond.over_time`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from uqsonet_study.report.figures.colours import AMBER, BLUE, GREEN, GREY
from uqsonet_study.report.figures.style import new_figure, save, styled
from uqsonet_study.report.printing import PERCENT, Panel, Table, pivot, text_of
from uqsonet_study.report.summary import read_numbers
from uqsonet_study.report.tables.write import write_files
from uqsonet_study.settings import OverTime

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "sensor_free": ("Sensor-free", {"color": GREY, "linestyle": (0, (6, 2, 1, 2))}),
    "one_shot": ("One shot", {"color": AMBER, "marker": "s", "linestyle": (0, (5, 2))}),
    "filter": ("Filter", {"color": BLUE, "marker": "o"}),
    "ensemble": ("EnKF", {"color": GREEN, "marker": "^", "linestyle": (0, (1, 1.5))}),
}
COLUMNS = ["method", "time", "metric", "unit", "value", "pm"]
METRICS = {"error": f"error,{PERCENT}", "ratio": "spread/error"}


def write_over_time(
    config: OverTime, scale: str, answers: Sequence[Path], tables: Path, figure: Path
) -> None:
    """Write table ``time`` into a folder, and a figure, from a file for each method."""
    read = (read_numbers(path, COLUMNS, "value") for path in answers)
    found = pd.concat(read, ignore_index=True)
    about = {"table": "tab:time", "experiment": "over_time", "scale": scale, "recipe": ""}

    def text(record: Any) -> str:
        return text_of(record.value, record.pm, digits=1 if record.metric == "error" else 2)

    rows = {time: f"{time:g}" for time in sorted(set(found["time"]))}
    titles = {name: title for name, (title, _) in METHODS.items()}
    cells = pivot(found, {"method": titles, "metric": METRICS}, rows, text, "$t$", "time")
    caption = (
        "(section 4.5, beyond the paper). Four sensors read the vorticity at times 0, 1, ..., "
        f"{config.steps}; an answer knows readings until then, one shot those at 0 alone. Relative "
        "$L_2$ error of the mean, ± its standard error over "
        f"{config.test} test runs; root mean squares of the std over those of the error. Learned "
        f"from {config.training} runs; EnKF has {config.members} members and the solver itself."
    )
    table = Table("time", "Sensors over time.", caption, (Panel("", cells),))
    write_files(table, found.assign(**about), scale, tables)
    with styled():
        drawn = new_figure(2.6)
        axes = drawn.subplots()
        for method, (title, look) in METHODS.items():
            line = found[(found["method"] == method) & (found["metric"] == "error")]
            axes.plot(line["time"], line["value"], label=title, markersize=3.5, **look)
        axes.set(xlabel="time $t$", ylabel="relative $L_2$ error (%)", ylim=(0, None))
        drawn.legend(loc="outside lower center", ncols=len(METHODS))
        save(drawn, scale, figure)

"""Figures, each drawn by the module of `uqsonet_study.report.figures` that the plan names."""

from importlib import import_module
from pathlib import Path

import uqsonet_study.at_work  # noqa: F401 - takes the lock before torch is imported
from uqsonet_study.config import load_config
from uqsonet_study.jobs import jobs
from uqsonet_study.report.figures.style import save, styled

with jobs(snakemake) as specs:
    folder = Path(snakemake.output[0]).parent
    for name, spec in specs.items():
        config = load_config(spec["config"])
        with styled():
            figure = import_module(spec["drawn_by"]).draw(config, name, spec["files"])
            save(figure, config.scale, folder / f"{name}.pdf", folder / f"{name}.png")

"""Figures, each drawn by the module of `uqsonet_study.report.figures` of its layout."""

from importlib import import_module
from pathlib import Path

from uqsonet_study.config import load_config
from uqsonet_study.jobs import jobs
from uqsonet_study.report.figures.style import save, styled

with jobs(snakemake) as each:
    folder = Path(snakemake.output[0]).parent
    for told in each:
        config, name = load_config(told["config"]), told["figure"]
        with styled():
            figure = import_module(told["drawn_by"]).draw(config, name, told["files"])
            save(figure, config.scale, folder / name)

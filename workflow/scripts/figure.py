"""A figure: drawn by the module of `uqsonet_study.report.figures` that the plan names."""

from importlib import import_module
from pathlib import Path

import uqsonet_study.at_work  # noqa: F401 - takes the lock before torch is imported
from uqsonet_study.config import load_config
from uqsonet_study.jobs import job
from uqsonet_study.report.figures.style import save, styled

with job(snakemake) as spec:
    config = load_config(spec["config"])
    with styled():
        figure = import_module(spec["drawn_by"]).draw(
            config, snakemake.wildcards.figure, spec["files"]
        )
        save(figure, config.scale, Path(snakemake.output.pdf), Path(snakemake.output.png))

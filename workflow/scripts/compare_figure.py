"""Sweeps: see `uqsonet_study.report.figures.sweeps.sweep_figure`."""

from pathlib import Path

import pandas as pd

from uqsonet_study.config import load_config
from uqsonet_study.jobs import job
from uqsonet_study.report.figures.sweeps import sweep_figure

with job(snakemake) as spec:
    sweep_figure(
        pd.concat([pd.read_csv(path) for path in snakemake.input]),
        load_config(spec["config"]),
        snakemake.wildcards.figure,
        Path(snakemake.output.pdf),
        Path(snakemake.output.png),
    )

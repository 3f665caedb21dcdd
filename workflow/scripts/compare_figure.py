"""Sweeps: see `uqsonet.report.figures.sweeps.sweep_figure`."""

from pathlib import Path

import pandas as pd

from uqsonet.config import load_config
from uqsonet.jobs import job
from uqsonet.report.figures.sweeps import sweep_figure

with job(snakemake) as spec:
    sweep_figure(
        pd.concat([pd.read_csv(path) for path in snakemake.input]),
        load_config(spec["config"]),
        snakemake.wildcards.figure,
        Path(snakemake.output.pdf),
        Path(snakemake.output.png),
    )

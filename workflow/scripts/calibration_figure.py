"""Calibration: see `uqsonet_study.report.figures.calibration.calibration_figure`."""

from pathlib import Path

import pandas as pd

from uqsonet_study.config import load_config
from uqsonet_study.jobs import job
from uqsonet_study.report.figures.calibration import calibration_figure

with job(snakemake) as spec:
    calibration_figure(
        pd.concat([pd.read_csv(path) for path in snakemake.input]),
        load_config(spec["config"]),
        snakemake.wildcards.figure,
        Path(snakemake.output.pdf),
        Path(snakemake.output.png),
    )

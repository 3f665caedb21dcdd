"""Calibration: see `uqsonet.report.figures.calibration.calibration_figure`."""

from pathlib import Path

import pandas as pd

from uqsonet.config import load_config
from uqsonet.jobs import job
from uqsonet.report.figures.calibration import calibration_figure

with job(snakemake) as spec:
    calibration_figure(
        pd.concat([pd.read_csv(path) for path in snakemake.input]),
        load_config(spec["config"]),
        snakemake.wildcards.figure,
        Path(snakemake.output.pdf),
        Path(snakemake.output.png),
    )

"""The table of an experiment: see `uqsonet.report.tables.error_table`."""

from pathlib import Path

import pandas as pd

from uqsonet.config import load_config
from uqsonet.jobs import job
from uqsonet.report.tables import error_table

with job(snakemake) as spec:
    error_table(
        pd.read_csv(snakemake.input[0]),
        snakemake.wildcards.experiment,
        load_config(spec["config"]),
        Path(snakemake.output.tex),
        Path(snakemake.output.csv),
    )

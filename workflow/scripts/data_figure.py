"""What the data are: see `uqsonet_study.report.figures.data.data_figure`."""

from pathlib import Path

from uqsonet_study.config import load_config
from uqsonet_study.jobs import job
from uqsonet_study.report.figures.data import data_figure

with job(snakemake) as spec:
    data_figure(
        snakemake.wildcards.experiment,
        load_config(spec["config"]),
        Path(snakemake.input.functions),
        Path(snakemake.input.reference),
        Path(snakemake.output.pdf),
        Path(snakemake.output.png),
    )

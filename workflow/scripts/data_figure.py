"""What the data are: see `uqsonet.report.figures.data.data_figure`."""

from pathlib import Path

from uqsonet.config import load_config
from uqsonet.jobs import job
from uqsonet.report.figures.data import data_figure

with job(snakemake) as spec:
    data_figure(
        snakemake.wildcards.experiment,
        load_config(spec["config"]),
        Path(snakemake.input.functions),
        Path(snakemake.input.reference),
        Path(snakemake.output.pdf),
        Path(snakemake.output.png),
    )

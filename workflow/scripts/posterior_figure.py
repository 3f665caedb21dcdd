"""Posteriors of one function: see `uqsonet.report.figures.posterior_figure`."""

from pathlib import Path

from uqsonet.config import load_config
from uqsonet.jobs import job
from uqsonet.report.figures import posterior_figure

with job(snakemake) as spec:
    posterior_figure(
        snakemake.wildcards.experiment,
        load_config(spec["config"]),
        Path(snakemake.input.functions),
        Path(snakemake.input.reference),
        Path(snakemake.input.weights),
        Path(snakemake.output.pdf),
        Path(snakemake.output.png),
    )

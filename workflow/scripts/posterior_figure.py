"""Posteriors of one function: see `uqsonet_study.report.figures.posterior.posterior_figure`."""

from pathlib import Path

from uqsonet_study.config import load_config
from uqsonet_study.jobs import job
from uqsonet_study.report.figures.posterior import choose, posterior_figure

with job(snakemake) as spec:
    config = load_config(spec["config"])
    method = config.figures[snakemake.wildcards.figure].method
    panels = choose(spec["panels"], method)
    posterior_figure(panels, config.scale, Path(snakemake.output.pdf), Path(snakemake.output.png))

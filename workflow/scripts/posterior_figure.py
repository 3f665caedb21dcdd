"""Posteriors of one function: see `uqsonet.report.figures.posterior_figure`."""

from pathlib import Path

from uqsonet.config import load_config
from uqsonet.jobs import job
from uqsonet.report.figures import choose, posterior_figure

with job(snakemake) as spec:
    config = load_config(spec["config"])
    files = (snakemake.input.functions, snakemake.input.reference, snakemake.input.weights)
    panels = choose(snakemake.wildcards.experiment, config, *map(Path, files))
    posterior_figure(panels, config.scale, Path(snakemake.output.pdf), Path(snakemake.output.png))

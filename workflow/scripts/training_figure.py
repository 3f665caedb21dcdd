"""Loss and skill during training: see `uqsonet_study.report.figures.posterior.training_figure`."""

from pathlib import Path

from uqsonet_study.jobs import job
from uqsonet_study.report.figures.posterior import training_figure

with job(snakemake) as spec:
    training_figure(
        [Path(path) for path in snakemake.input],
        spec["config"]["scale"],
        Path(snakemake.output.pdf),
        Path(snakemake.output.png),
    )

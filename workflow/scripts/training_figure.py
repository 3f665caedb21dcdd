"""Loss and skill during training: see `uqsonet.report.figures.training_figure`."""

from pathlib import Path

from uqsonet.report.figures import training_figure

from uqsonet.jobs import job

with job(snakemake):
    training_figure(
        [Path(path) for path in snakemake.input],
        Path(snakemake.output.pdf),
        Path(snakemake.output.png),
    )

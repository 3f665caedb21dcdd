"""How sensors cover the domain: see `uqsonet_study.report.figures.layouts.layouts_figure`."""

from pathlib import Path

from uqsonet_study.jobs import job
from uqsonet_study.report.figures.layouts import layouts_figure

with job(snakemake) as spec:
    layouts_figure(
        Path(snakemake.input[0]),
        spec["config"]["scale"],
        Path(snakemake.output.pdf),
        Path(snakemake.output.png),
    )

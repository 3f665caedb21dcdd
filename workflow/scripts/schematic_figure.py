"""The model drawn: see `uqsonet_study.report.figures.schematic.schematic_figure`."""

from pathlib import Path

from uqsonet_study.jobs import job
from uqsonet_study.report.figures.schematic import schematic_figure

with job(snakemake) as spec:
    scale = spec["config"]["scale"]
    schematic_figure(scale, Path(snakemake.output.pdf), Path(snakemake.output.png))

"""Samples and spectra: see `uqsonet_study.report.figures.spectra.spectra_figure`."""

from pathlib import Path

from uqsonet_study.config import load_config
from uqsonet_study.jobs import job
from uqsonet_study.report.figures.chosen import choose
from uqsonet_study.report.figures.spectra import spectra_figure

with job(snakemake) as spec:
    panels = choose(spec["panels"], "uqsonet")
    scale = load_config(spec["config"]).scale
    spectra_figure(panels, scale, Path(snakemake.output.pdf), Path(snakemake.output.png))

"""A figure, drawn by the module of `uqsonet_study.report.figures` of its layout."""

from importlib import import_module

from uqsonet_study.cases import Study
from uqsonet_study.jobs import job
from uqsonet_study.loading import load_config
from uqsonet_study.report.figures.style import save, styled

with job(snakemake) as (files, params):
    study, name = Study(load_config(params.config)), snakemake.wildcards.figure
    layout = study.config.figures[name].layout
    with styled():
        figure = import_module(f"uqsonet_study.report.figures.{layout}").draw(study, name)
        save(figure, study.config.scale, files.pdf.with_suffix(""))

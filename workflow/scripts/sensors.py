"""Places of sensors: see `uqsonet_study.layouts.generate_layouts`."""

from uqsonet_study.jobs import job
from uqsonet_study.layouts import generate_layouts
from uqsonet_study.settings import Layout

with job(snakemake) as (files, params):
    generate_layouts(
        snakemake.wildcards.problem,
        Layout.model_validate(params.layout),
        params.seed,
        params.validation,
        params.test,
        files.out,
    )

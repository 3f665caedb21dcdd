"""Everything on one page: see `uqsonet_study.report.page.build_page`."""

from pathlib import Path

from uqsonet_study.config import load_config
from uqsonet_study.jobs import job
from uqsonet_study.report.page import build_page

with job(snakemake) as told:
    build_page(
        load_config(told["config"]),
        told["captions"],
        [Path(path) for path in snakemake.input.tables],
        [Path(path) for path in snakemake.input.figures],
        Path(snakemake.output[0]),
    )

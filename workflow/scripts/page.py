"""Everything on one page: see `uqsonet_study.report.page.sections.build_page`."""

from pathlib import Path

import uqsonet_study.at_work  # noqa: F401 - takes the lock before torch is imported
from uqsonet_study.config import load_config
from uqsonet_study.jobs import job
from uqsonet_study.report.page.sections import build_page

with job(snakemake) as spec:
    build_page(
        load_config(spec["config"]),
        spec["captions"],
        Path(snakemake.output[0]).parent,
        [Path(path) for path in snakemake.input.tables],
        [Path(path) for path in snakemake.input.figures],
        Path(snakemake.input.scorecard),
        Path(snakemake.output[0]),
    )

"""A table: see `uqsonet_study.report.tables.write.write_table`."""

from pathlib import Path

import pandas as pd

import uqsonet_study.at_work  # noqa: F401 - takes the lock before torch is imported
from uqsonet_study.config import load_config
from uqsonet_study.jobs import job
from uqsonet_study.report.tables.write import write_table

with job(snakemake) as spec:
    write_table(
        snakemake.wildcards.table,
        load_config(spec["config"]),
        Path(snakemake.output.tex),
        Path(snakemake.output.csv),
        Path(snakemake.output.json),
        summaries=[pd.read_csv(path) for path in snakemake.input.get("summaries", [])],
        logs={
            case: {method: [Path(f) for f in files] for method, files in of.items()}
            for case, of in spec["logs"].items()
        },
        inference=[Path(path) for path in snakemake.input.get("inference", [])],
        scores=[Path(path) for path in snakemake.input.get("scores", [])],
    )

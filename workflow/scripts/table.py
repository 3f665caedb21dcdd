"""Tables: see `uqsonet_study.report.tables.write.write_table`."""

from pathlib import Path

import pandas as pd

import uqsonet_study.at_work  # noqa: F401 - takes the lock before torch is imported
from uqsonet_study.config import load_config
from uqsonet_study.jobs import jobs
from uqsonet_study.report.tables.write import write_table

with jobs(snakemake) as specs:
    folder = Path(snakemake.output[0]).parent
    for name, spec in specs.items():
        files = snakemake.params.files[name]
        write_table(
            name,
            load_config(spec["config"]),
            *(folder / f"{name}.{kind}" for kind in ("tex", "csv", "json")),
            summaries=[pd.read_csv(path) for path in files.get("summaries", [])],
            logs={
                case: {method: [Path(f) for f in logs] for method, logs in of.items()}
                for case, of in spec["logs"].items()
            },
            inference=[Path(path) for path in files.get("inference", [])],
            scores=[Path(path) for path in files.get("scores", [])],
        )

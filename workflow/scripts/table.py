"""Tables: see `uqsonet_study.report.tables.write.write_table`."""

from pathlib import Path

import pandas as pd

from uqsonet_study.config import load_config
from uqsonet_study.jobs import jobs
from uqsonet_study.report.tables.write import write_table

with jobs(snakemake) as each:
    folder = Path(snakemake.output[0]).parent
    for told in each:
        name, files = told["table"], told["files"]
        write_table(
            name,
            load_config(told["config"]),
            *(folder / f"{name}.{kind}" for kind in ("tex", "csv", "json")),
            summaries=[pd.read_csv(path) for path in files.get("summaries", [])],
            logs={
                case: {method: [Path(f) for f in logs] for method, logs in of.items()}
                for case, of in told["logs"].items()
            },
            inference=[Path(path) for path in files.get("inference", [])],
            scores=[Path(path) for path in files.get("scores", [])],
        )

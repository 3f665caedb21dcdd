"""Functions of a problem: see `uqsonet_study.simulation` and `uqsonet_study.own_data`."""

import os
from pathlib import Path

import uqsonet_study.at_work  # noqa: F401 - takes the lock before torch is imported
from uqsonet_study.config import JobsConfig, ProblemConfig
from uqsonet_study.jobs import job
from uqsonet_study.own_data import read_own_data
from uqsonet_study.simulation import simulate

with job(snakemake) as spec:
    config = ProblemConfig.model_validate(spec["config"])
    out, record = Path(snakemake.output.functions), Path(snakemake.output.record)
    if config.data is not None:
        read_own_data(spec["problem"], config, spec["seed"], out, record)
    else:
        simulate(
            spec["problem"],
            config,
            spec["seed"],
            out,
            state=Path(snakemake.params.state),
            record=record,
            code=spec["code"],
            bar=os.environ.get("UQSONET_BAR") == "1",
            # Not a parameter: another device makes the same data to rounding, and no data anew.
            device=JobsConfig.model_validate(snakemake.config.get("jobs", {})).device,
        )

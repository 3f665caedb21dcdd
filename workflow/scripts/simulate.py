"""Functions of a problem: see `uqsonet_study.simulation` and `uqsonet_study.own_data`."""

from pathlib import Path

from uqsonet_study.config import JobsConfig, ProblemConfig
from uqsonet_study.jobs import job
from uqsonet_study.own_data import read_own_data
from uqsonet_study.simulation import simulate

with job(snakemake) as told:
    config = ProblemConfig.model_validate(told["config"])
    out, record = Path(snakemake.output.functions), Path(snakemake.output.record)
    if config.data is not None:
        read_own_data(told["problem"], config, told["seed"], out, record)
    else:
        simulate(
            told["problem"],
            config,
            told["seed"],
            out,
            state=Path(snakemake.params.state),
            record=record,
            code=told["code"],
            # Not a parameter: another device makes the same data to rounding, and no data anew.
            device=JobsConfig.model_validate(snakemake.config.get("jobs", {})).device,
        )

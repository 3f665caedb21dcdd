"""Functions of a problem: see `uqsonet_study.simulation.simulate`."""

import os
from pathlib import Path

from uqsonet_study.config import JobsConfig, ProblemConfig
from uqsonet_study.jobs import job
from uqsonet_study.simulation import simulate

with job(snakemake) as spec:
    simulate(
        spec["problem"],
        ProblemConfig.model_validate(spec["config"]),
        spec["seed"],
        Path(snakemake.output.functions),
        state=Path(snakemake.params.state),
        record=Path(snakemake.output.record),
        code=spec["code"],
        bar=os.environ.get("UQSONET_BAR") == "1",
        # Not a parameter: another device makes the same data to rounding, and no data anew.
        device=JobsConfig.model_validate(snakemake.config.get("jobs", {})).device,
    )

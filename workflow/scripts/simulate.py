"""Functions of a problem: see `uqsonet.simulation.simulate`."""

from pathlib import Path

from uqsonet.config import ProblemConfig
from uqsonet.jobs import job
from uqsonet.simulation import simulate

with job(snakemake) as spec:
    simulate(
        spec["problem"],
        ProblemConfig.model_validate(spec["config"]),
        spec["seed"],
        Path(snakemake.output[0]),
    )

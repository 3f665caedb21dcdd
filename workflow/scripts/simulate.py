"""Functions of a problem: see `uqsonet_study.simulation.simulate`."""

from uqsonet_study.jobs import job
from uqsonet_study.settings import Sizes
from uqsonet_study.simulation import simulate

with job(snakemake) as (files, params):
    simulate(
        snakemake.wildcards.problem,
        Sizes.model_validate(params.sizes),
        params.seed,
        files.functions,
        state=files.state,
        record=files.record,
        code=params.code,
        # No parameter: another device makes the same data to rounding, and no data anew.
        device=snakemake.config.get("jobs", {}).get("device", "cpu"),
    )

"""A law of the input for a trained operator: see `uqsonet_study.laws.fit_law`."""

from pathlib import Path

import uqsonet_study.at_work  # noqa: F401 - takes the lock before torch is imported
from uqsonet_study.jobs import job
from uqsonet_study.laws import LawJob, fit_law

with job(snakemake) as spec:
    fit_law(
        LawJob(
            law=spec["law"],
            trial=spec["trial"],
            noise_std=spec["noise_std"],
            training=spec["training"],
            seed=spec["seed"],
            functions=Path(snakemake.input.functions),
            sensors=Path(snakemake.input.sensors),
            weights=Path(snakemake.input.weights[0]),
            code=spec["code"],
        ),
        weights=Path(snakemake.output.weights),
        log=Path(snakemake.output.log),
    )

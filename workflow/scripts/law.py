"""A law of the input for a trained operator: see `uqsonet_study.laws.fit_law`."""

from pathlib import Path

from uqsonet_study.jobs import job
from uqsonet_study.laws import LawJob, fit_law

with job(snakemake) as told:
    fit_law(
        LawJob(
            law=told["law"],
            trial=told["trial"],
            noise_std=told["noise_std"],
            training=told["training"],
            seed=told["seed"],
            functions=Path(snakemake.input.functions),
            sensors=Path(snakemake.input.sensors),
            weights=Path(snakemake.input.weights),
            code=told["code"],
        ),
        weights=Path(snakemake.output.weights),
        log=Path(snakemake.output.log),
    )

"""A training: see `uqsonet_study.training.train`."""

from pathlib import Path

from uqsonet_study.config import JobsConfig, MethodConfig
from uqsonet_study.jobs import job
from uqsonet_study.training import TrainingJob, train

with job(snakemake) as told:
    train(
        TrainingJob(
            method=told["method"],
            problem=told["problem"],
            config=MethodConfig.model_validate(told["config"]),
            noise_std=told["noise_std"],
            trial=told["trial"],
            training=told["training"],
            seed=told["seed"],
            functions=Path(snakemake.input.functions),
            sensors=Path(snakemake.input.sensors),
            reference=Path(snakemake.input.reference),
            code=told["code"],
        ),
        # Not parameters, which would make Snakemake train again: where a job runs, how often it
        # saves and what it draws change no result.
        JobsConfig.model_validate(snakemake.config.get("jobs", {})),
        weights=Path(snakemake.output.weights),
        log=Path(snakemake.output.log),
        state=Path(snakemake.params.state),
    )

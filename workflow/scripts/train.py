"""One trial of one method: see `uqsonet_study.training.train`."""

from uqsonet_study.jobs import job
from uqsonet_study.settings import Jobs, Method
from uqsonet_study.training import TrainingJob, train

with job(snakemake) as (files, params):
    train(
        TrainingJob(
            method=params.method,
            problem=snakemake.wildcards.problem,
            config=Method.model_validate(params.settings),
            noise_std=params.noise,
            trial=int(snakemake.wildcards.trial),
            training=params.pairs,
            seed=params.seed,
            functions=files.functions,
            sensors=files.sensors,
            reference=files.reference,
            code=params.code,
        ),
        # No parameters: where a job runs and how often it saves change no result.
        Jobs.model_validate(snakemake.config.get("jobs", {})),
        weights=files.weights,
        log=files.log,
        state=files.state,
    )

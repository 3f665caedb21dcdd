"""Reference posteriors of an evaluation: see `uqsonet_study.references.compute_reference`."""

from uqsonet_study.jobs import job
from uqsonet_study.references import compute_reference
from uqsonet_study.settings import ReferenceConfig

with job(snakemake, threads=1) as (files, params):  # a process for each core instead
    label = snakemake.wildcards.evaluation
    compute_reference(
        files.functions,
        files.sensors,
        "validation" if label == "validation" else "test",
        label,
        ReferenceConfig.model_validate(params.evaluation),
        float(snakemake.wildcards.noise),
        params.seed,
        files.out,
        state=files.state,
        code=params.code,
        workers=snakemake.threads,
    )

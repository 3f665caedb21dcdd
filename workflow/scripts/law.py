"""A law of the input for a trained operator: see `uqsonet_study.beyond.law.fit_law`."""

from uqsonet_study.beyond.law import fit_law
from uqsonet_study.jobs import job

with job(snakemake) as (files, params):
    fit_law(
        **params.settings,
        trial=int(snakemake.wildcards.trial),
        noise_std=params.noise,
        training=params.pairs,
        seed=params.seed,
        functions=files.functions,
        sensors=files.sensors,
        weights=files.weights,
        path=files.law,
        log=files.log,
        code=params.code,
    )

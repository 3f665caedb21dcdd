"""Scores of a method: see `uqsonet_study.evaluation.evaluate`."""

from uqsonet_study.evaluation import evaluate
from uqsonet_study.jobs import job
from uqsonet_study.settings import Evaluation

with job(snakemake) as (files, params):
    evaluate(
        params.method,
        snakemake.wildcards.evaluation,
        Evaluation.model_validate(params.evaluation),
        params.noise,
        params.seed,
        files.functions,
        files.reference,
        files.out,
        weights=[*files.weights] if params.method != "baselines" else [],
        ensemble=params.ensemble,
        training=params.pairs,
        cut_lines=params.cut_lines,
    )

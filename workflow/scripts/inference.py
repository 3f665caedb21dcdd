"""The time of one answer: see `uqsonet_study.evaluation.inference.time_inference`."""

from pathlib import Path

from uqsonet_study.evaluation.inference import time_inference
from uqsonet_study.jobs import job

with job(snakemake) as told:
    weights = dict(zip(told["methods"], map(Path, snakemake.input), strict=True))
    time_inference(weights, told["sensors"], Path(snakemake.output[0]))

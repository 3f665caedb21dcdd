"""The time of one answer: see `uqsonet_study.evaluation.inference.time_inference`."""

from uqsonet_study.evaluation.inference import time_inference
from uqsonet_study.jobs import job

with job(snakemake) as (files, params):
    weights = dict(zip(params.methods, files.weights, strict=True))
    time_inference(weights, params.sensors, files.out)

"""The time of one answer: see `uqsonet.evaluation.inference.time_inference`."""

from pathlib import Path

from uqsonet.evaluation.inference import time_inference
from uqsonet.jobs import job

with job(snakemake) as spec:
    weights = dict(zip(spec["methods"], map(Path, snakemake.input), strict=True))
    time_inference(weights, spec["sensors"], Path(snakemake.output[0]))

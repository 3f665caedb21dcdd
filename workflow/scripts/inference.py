"""The time of one answer: see `uqsonet_study.evaluation.inference.time_inference`."""

from pathlib import Path

import uqsonet_study.at_work  # noqa: F401 - takes the lock before torch is imported
from uqsonet_study.evaluation.inference import time_inference
from uqsonet_study.jobs import job

with job(snakemake) as spec:
    weights = dict(zip(spec["methods"], map(Path, snakemake.input), strict=True))
    time_inference(weights, spec["sensors"], Path(snakemake.output[0]))

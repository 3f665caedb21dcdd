"""Sensor layouts of an experiment: see `uqsonet.layouts.generate_layouts`."""

from pathlib import Path

from uqsonet.config import SensorsConfig
from uqsonet.jobs import job
from uqsonet.layouts import generate_layouts

with job(snakemake) as spec:
    generate_layouts(
        spec["problem"],
        SensorsConfig.model_validate(spec["config"]),
        spec["seed"],
        spec["validation"],
        spec["test"],
        Path(snakemake.output[0]),
    )

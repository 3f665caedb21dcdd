"""Sensor layouts of an experiment: see `uqsonet_study.layouts.generate_layouts`."""

from pathlib import Path

from uqsonet_study.config import SensorsConfig
from uqsonet_study.jobs import job
from uqsonet_study.layouts import generate_layouts

with job(snakemake) as told:
    generate_layouts(
        told["problem"],
        SensorsConfig.model_validate(told["config"]),
        told["seed"],
        told["validation"],
        told["test"],
        Path(snakemake.output[0]),
        functions=next(iter(map(Path, snakemake.input)), None),
    )

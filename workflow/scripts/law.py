"""A law of the input for a trained operator: see `uqsonet_study.beyond.law.fit_law`."""

from pathlib import Path

from uqsonet_study.beyond.law import fit_law
from uqsonet_study.jobs import job

with job(snakemake) as told:
    told.pop("problem")
    files = {name: Path(path) for name, path in snakemake.input.items()}
    out = {"path": Path(snakemake.output.weights), "log": Path(snakemake.output.log)}
    fit_law(**told, **files, **out)

"""The table of the benchmark: see `uqsonet_study.report.benchmark`."""

from pathlib import Path

from uqsonet.files import write_text
from uqsonet_study.jobs import frame
from uqsonet_study.report.benchmark import as_latex, as_markdown, joined

with frame(snakemake):
    found = joined([Path(path) for path in snakemake.input.scores], snakemake.input.published)
    text = found.to_csv(index=False, float_format="%.4g", lineterminator="\n")
    write_text(Path(snakemake.output.csv), text)
    write_text(Path(snakemake.output.tex), as_latex(found))
    write_text(Path(snakemake.output.md), as_markdown(found) + "\n")

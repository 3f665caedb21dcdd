# UQ-SONet, from Gaussian-process samples to the paper's tables.
#   snakemake --cores 8 results/tables/all.tex                       the full run
#   snakemake --cores 2 --configfile config/smoke.yaml               everything, in minutes
include: "workflow/Snakefile"


workflow.default_target = "all"  # which an included file does not set

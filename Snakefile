# UQ-SONet, from Gaussian-process samples to the paper's tables.
#   snakemake --cores 8 results/tables/all.tex                       the full run
#   snakemake --cores 2 --configfile config/smoke.yaml               everything, in minutes
import os
import subprocess
import tempfile
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

from uqsonet_study import locks
from uqsonet_study.config import load_config
from uqsonet_study.config.loading import require_readable
from uqsonet_study.config.whole import FULL
from uqsonet.errors import UQSONetError
from uqsonet_study.pipeline import Plan, Text

min_version("9.0")
# One thread a job and jobs in parallel: faster on shared machines, and the same bytes everywhere.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Large tensors on large pages (Linux): the system clears 512 small ones at a time otherwise, up to
# a third of a job in two dimensions.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
if workflow.is_main_process:
    if not os.access(".snakemake" if os.path.exists(".snakemake") else ".", os.W_OK):
        raise WorkflowError(
            f"{os.getcwd()} cannot be written, and Snakemake keeps its notes there, in .snakemake: "
            "name another folder with --directory, or work in a copy"
        )
    # A killed run leaves its locks behind. Nobody needs to type --unlock if nobody is at work.
    locks.release_dead(Path(".snakemake"))
# Held by every process of a run, from its first moment on.
locks.join(Path(".snakemake"))
if workflow.is_main_process:
    # Snakemake has read files of --configfile already, and would read this one with as little care.
    try:
        require_readable([*workflow.overwrite_configfiles, Path("config.yaml")])
    except UQSONetError as error:
        raise WorkflowError(str(error)) from None


configfile: "config.yaml"


report: "workflow/report/workflow.rst"


try:
    CONFIG = load_config(config, "the configuration")
    PLAN = Plan(CONFIG)
    if workflow.is_main_process and CONFIG.own_data:
        # Deferred: it imports torch, which no other configuration needs here.
        from uqsonet_study.own_data import require_own_data

        require_own_data(CONFIG)
except UQSONetError as error:
    raise WorkflowError(str(error)) from None

RESULTS = CONFIG.results
EXPERIMENTS = sorted(CONFIG.selected)
TABLES = PLAN.tables()
# Declared figures, and pictures of every problem: data, training, clustered layouts.
FIGURES = [*PLAN.figures(), *PLAN.pictures()]


wildcard_constraints:
    problem="|".join(sorted(CONFIG.problems)),
    experiment="|".join(EXPERIMENTS),
    case="|".join(sorted(CONFIG.cases)),
    table="|".join([*TABLES, "none"]),
    figure="|".join([*FIGURES, "none"]),
    # Of a job: problem, what it is about, and a digest of what defines it.
    name=r"\w+(/\w[\w-]*)+",


rule all:
    default_target: True
    input:
        f"{RESULTS}/tables/all.tex",
        f"{RESULTS}/scorecard.csv",
        expand(f"{RESULTS}/figures/{{name}}.pdf", name=FIGURES),
        f"{RESULTS}/report.html",


include: "workflow/rules/common.smk"
include: "workflow/rules/simulate.smk"
include: "workflow/rules/sensors.smk"
include: "workflow/rules/reference.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/law.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/placement.smk"
include: "workflow/rules/report.smk"


if CONFIG.benchmark is not None:

    include: "workflow/rules/benchmark.smk"


onstart:
    # Several jobs on one terminal would overwrite each other's progress bars.
    os.environ.update(UQSONET_BAR=str(int(workflow.cores == 1)))
    if CONFIG.select is not None:
        print(PLAN.left_alone(), flush=True)
    # What is left, measured on this machine. Advice only: a failure here stops nothing, and a run
    # of minutes needs none. On a cluster a job takes one core, and as many run at a time as `jobs`
    # says.
    slots = workflow.nodes or workflow.cores
    if CONFIG.scale == FULL and CONFIG.benchmark is None:
        left = {
            str(file) for job in workflow.dag.needrun_jobs() for file in job.output
        }
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as asked:
            asked.write("\n".join(left))
            asked.flush()
            subprocess.run(
                [
                    "uqsonet",
                    "estimate",
                    "-",
                    "--cores",
                    str(slots),
                    "--left",
                    asked.name,
                ],
                input=CONFIG.model_dump_json().encode(),
                check=False,
            )

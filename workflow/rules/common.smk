# The cases of all experiments, and what the rules ask of them.
import re
from functools import cache
from pathlib import Path

from snakemake.exceptions import WorkflowError


class Absent:
    """Stands for the package where it is not installed: rules can be read, no job can be made."""

    def __init__(self, module):
        self.module = module

    def __getattr__(self, name):
        raise WorkflowError(
            f"no {self.module} here: jobs need the package, pip install '.[study]' (or make env)"
        )


try:
    from uqsonet.errors import UQSONetError
    from uqsonet_study import sources
    from uqsonet_study.cases import Study
    from uqsonet_study.loading import load_config
    from uqsonet_study.report import captions, inputs
except ModuleNotFoundError as error:
    UQSONetError = WorkflowError
    STUDY = sources = captions = inputs = Absent(error.name)
else:
    try:
        STUDY = Study(load_config(config))
    except UQSONetError as error:
        raise WorkflowError(str(error)) from None

RESULTS = config["results"]
GPU = int(config["jobs"]["device"].startswith("cuda"))
BASE = workflow.current_basedir


wildcard_constraints:
    problem="|".join(config["problems"]),
    experiment="|".join(config["experiments"]),
    recipe=r"\w+",
    layout="|".join(map(re.escape, config["layouts"])),
    noise=r"[\d.e-]+",
    evaluation="validation|paper|precise",
    method=r"\w+",
    trial=r"\d+",
    table="|".join([*config["tables"], "none"]),
    figure="|".join([*config["figures"], "none"]),


def ask(question, *arguments):
    """Return what the study answers; what cannot be computed is refused in a sentence."""
    try:
        return question(*arguments)
    except UQSONetError as error:
        raise WorkflowError(str(error)) from None


def scored(w):
    """Return the row behind a file of scores."""
    return ask(STUDY.scored, w.problem, w.given, w.recipe, w.answer, w.evaluation)


def training(w):
    """Return the row behind a training."""
    return ask(STUDY.training, w.problem, w.recipe, w.model)


def law(w):
    """Return the row behind a law of the input."""
    return ask(STUDY.fitted_law, w.problem, w.recipe, w.law)


@cache
def code(script, *modules):
    """Return the digest of a rule's script, and of modules that it finds by name, with all that
    these import: an edit of them runs the rule again, one of comments or messages does not.
    """
    path = Path(workflow.sourcecache.get_path(BASE.join(f"../scripts/{script}.py")))
    return ask(sources.digest, [path], modules)


def problem_code(script):
    """Return the digest of a script with the problem of the job."""
    return lambda w: code(script, ask(sources.problem_module, w.problem))


def growing(amount):
    """Return a resource that grows with every attempt (retries: the SLURM profile)."""
    return lambda wildcards, attempt: amount * attempt


def require_room(jobs):
    """Refuse sensors and modes that a grid has no room for, before the first job runs."""
    from uqsonet_study.layouts import require_places
    from uqsonet_study.training import require_modes

    for job in jobs:
        w = job.wildcards
        if job.rule.name == "sensors":
            ask(require_places, w.problem, STUDY.config.layouts[w.layout])
        if job.rule.name == "train":
            ask(require_modes, w.problem, training(w).settings, training(w).N)

# What the rules share.


def growing(amount):
    """Return a resource that grows with every attempt.

    The first attempt asks for `amount`, a retry after too little time or memory for as much again.
    Without `retries` (the default profile) there is only a first attempt.
    """
    return lambda wildcards, attempt: amount * attempt


def cost(mem_mb, minutes):
    """Return the memory and time that a rule asks for first."""
    return {"mem_mb": growing(mem_mb), "runtime": growing(minutes)}


BASE = workflow.current_basedir


def code(script, *modules):
    """Return the digest of a rule's script, and of modules that it finds by name, with all that
    these import: an edit of them runs the rule again, one of comments or messages does not.
    """
    path = Path(workflow.sourcecache.get_path(BASE.join(f"../scripts/{script}.py")))
    return SOURCES.digest([path], modules)


def made(*parts):
    """Return the case that a file or a folder of trials is made for, and what defines it."""
    path = "/".join([RESULTS, *parts])
    if path in PLAN.made:
        return PLAN.made[path]
    raise WorkflowError(f"no case of the configuration needs {path}")


# With `jobs.together` one job makes what otherwise takes one job each.
def each(pattern, *zipped, **names):
    """Return the pattern of a rule's files, or all of them where one job makes them."""
    return expand(pattern, *zipped, **names) if CONFIG.jobs.together else pattern


def log_of(folder, wildcard):
    """Return the log of a rule that makes one thing or all."""
    if CONFIG.jobs.together:
        return f"{RESULTS}/logs/together/{folder}.log"
    return f"{RESULTS}/logs/{folder}/{wildcard}.log"


def asked(wildcards, names):
    """Return the names of what a job makes."""
    return names if CONFIG.jobs.together else [wildcards[0]]


def scored(wildcards):
    """Return what the scores of a job are made from: one method's, or all."""
    of = (
        [(wildcards.case, wildcards.method, wildcards.evaluation)]
        if wildcards
        else SCORES
    )
    return [PLAN.scoring(CONFIG.cases[case], *what) for case, *what in of]


def posterior(w):
    """Return the case that reference posteriors are made for, and what defines them."""
    return made("reference", w.problem, w.layout, w.noise, f"{w.evaluation}.h5")


def trials(kind, w):
    """Return the case that trials are made for, and what defines them: it says what judges a
    training, and for which sensors and noise a law is fitted."""
    return made(kind, w.problem, w.recipe, f"{w.method}-N{w.pairs}{w.more}")

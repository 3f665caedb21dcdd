# What the rules share.


def growing(amount):
    """Return a resource that grows with every attempt.

    The first attempt asks for `amount`, a retry after too little time or memory for as much again.
    Without `retries` (the default profile) there is only a first attempt.
    """
    return lambda wildcards, attempt: amount * attempt


def found(rule):
    """Return the jobs of a rule by their wildcards; unknown ones are refused by name."""

    def job(wildcards):
        try:
            return PLAN.job(rule, wildcards.get("name") or wildcards[0])
        except UQSONetError as error:
            raise WorkflowError(str(error)) from None

    return job


def spec_of(rule):
    """Return the parameters of a rule's jobs, as JSON."""
    return lambda wildcards: found(rule)(wildcards).spec


def input_of(rule, kind):
    """Return the files of one kind that a rule's jobs read."""
    return lambda wildcards: found(rule)(wildcards).inputs.get(kind, [])


# With `jobs.together` one job makes what otherwise takes one job each.
def files_of(pattern, **names):
    """Return the pattern of a rule's files, or all of them where one job makes them."""
    return expand(pattern, **names) if CONFIG.jobs.together else pattern


def log_of(folder, wildcard):
    """Return the log of a rule that makes one thing or all."""
    if CONFIG.jobs.together:
        return f"{RESULTS}/logs/together/{folder}.log"
    return f"{RESULTS}/logs/{folder}/{{{wildcard}}}.log"


def made(wildcards, names):
    """Return the names of what a job makes."""
    return names if CONFIG.jobs.together else [wildcards[0]]


def merged(inputs):
    """Return the files of several inputs, by kind."""
    found = {}
    for one in inputs:
        for kind, files in one.items():
            files = [files] if isinstance(files, str) else files
            found[kind] = list(dict.fromkeys([*found.get(kind, []), *files]))
    return found


def evaluations(wildcards):
    """Return the jobs whose scores a job makes."""
    return [
        found("evaluate")({"name": name}) for name in made(wildcards, PLAN.scored())
    ]

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

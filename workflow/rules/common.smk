# What the rules share.


def growing(amount):
    """Return a resource that grows with every attempt.

    The first attempt asks for `amount`, a retry after too little time or memory for as much again.
    Without `retries` (the default profile) there is only a first attempt.
    """
    return lambda wildcards, attempt: amount * attempt

"""What a page to explore a model needs to draw the exact posterior of section 4.1 beside it."""

from __future__ import annotations

from typing import Any

from uqsonet.errors import ConfigError
from uqsonet_study.priors.gaussian_process import GaussianField
from uqsonet_study.problems import get_problem

NEGLIGIBLE = 1e-10  # modes of the input with less than this share of its variance are left out


def exact_law(name: str) -> dict[str, Any]:
    """Return law and equation of a problem, as `uqsonet.show.explore.page` takes them.

    Raises
    ------
    ConfigError
        If the problem is unknown, or a page cannot solve its equation.
    """
    problem = get_problem(name)
    source, coefficient = getattr(problem, "source", None), getattr(problem, "coefficient", None)
    if source is None or coefficient is None or not isinstance(problem.prior, GaussianField):
        raise ConfigError(f"{name}: a page solves -c (k u')' = f with a Gaussian log k alone")
    factor = problem.prior.factor
    large = factor.square().sum(0) > NEGLIGIBLE * factor.square().sum()
    return {
        "mean": problem.prior.mean,
        "factor": factor[:, large],
        "source": source,
        "coefficient": coefficient,
    }

"""The equation of section 4.1 with a Student-t process for log k: heavy tails.

``log k = sin(2 pi x) + s h`` with h ~ GP(0, 0.35^2 exp(-(x - x')^2 / 0.1^2)) and the scale
``s = sqrt(3 / chi^2)`` of three degrees of freedom, cut off at 3: without the cut 1/k would have no
mean. Grids of `diffusion1d`.
"""

from __future__ import annotations

from uqsonet_study.beyond.priors.mixtures import StudentField
from uqsonet_study.problems.diffusion1d import Diffusion1D, sine


class Student1D(Diffusion1D):
    """Equation (eq:1d) where log k is a Student-t process."""

    name = "student1d"
    title = "One-dimensional diffusion, Student-t process"

    def __init__(self) -> None:
        super().__init__()
        self.prior = StudentField(self.gaussian(0.35, 0.1, sine), degrees=3, largest=3)

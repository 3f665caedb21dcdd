"""The medium of `darcy64` on 128 x 128 points, the size of the published tables.

127 is a prime number of cells: training sees u on all points.
"""

from __future__ import annotations

from uqsonet_study.problems.darcy64 import Darcy64


class Darcy128(Darcy64):
    """Flow through a medium of two values on 128 x 128 points."""

    name = "darcy128"
    title = "Darcy flow, two values, 128 x 128 points"
    points = 128

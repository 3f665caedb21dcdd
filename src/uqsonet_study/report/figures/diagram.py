"""Boxes and arrows: what a schematic is drawn with, in inches from the lower left corner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path
from matplotlib.text import Text

from uqsonet_study.report.figures.style import BLACK, WIDTH, new_figure

ROUNDING = 0.05
"""Radius of the corners of a box, inches."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """A rectangle that has its text inside; arrows start and end at its sides.

    Attributes
    ----------
    x, y : float
        Centre.
    width, height : float
    text : Text
    """

    x: float
    y: float
    width: float
    height: float
    text: Text

    def side(self, name: str, shift: float = 0.0) -> Point:
        """Return the middle of a side, or a point `shift` from it along that side."""
        right, up = {"left": (-1, 0), "right": (1, 0), "top": (0, 1), "bottom": (0, -1)}[name]
        x, y = self.x + right * self.width / 2, self.y + up * self.height / 2
        return (x, y + shift) if right else (x + shift, y)


class Diagram:
    """A figure of the page's width that collects boxes, frames behind them and free words.

    Attributes
    ----------
    figure : Figure
    axes : Axes
        One inch of the figure is one unit.
    boxes, frames : list of Box
    words : list of Text
        What stands outside boxes: names of frames, labels of arrows.
    """

    def __init__(self, height: float) -> None:
        self.figure: Figure = new_figure(height)
        engine = self.figure.get_layout_engine()
        assert isinstance(engine, ConstrainedLayoutEngine)
        engine.set(w_pad=0, h_pad=0, wspace=0, hspace=0)
        self.axes: Axes = self.figure.add_subplot()
        self.axes.set_axis_off()
        self.axes.set_xlim(0, WIDTH)
        self.axes.set_ylim(0, height)
        self.boxes: list[Box] = []
        self.frames: list[Box] = []
        self.words: list[Text] = []

    def box(
        self, x: float, y: float, width: float, height: float, text: str, color: str = "white"
    ) -> Box:
        """Draw a box filled with `color` and its text in the middle."""
        self._rectangle(x, y, width, height, facecolor=color, linewidth=0.8, zorder=3)
        middle: dict[str, Any] = {"ha": "center", "va": "center", "zorder": 4}
        box = Box(x, y, width, height, self.axes.text(x, y, text, **middle))
        self.boxes.append(box)
        return box

    def frame(
        self, lower: Point, upper: Point, name: str, color: str, copies: int = 1, depth: int = 0
    ) -> Box:
        """Draw a tinted frame with its name in the upper left corner.

        Parameters
        ----------
        lower, upper : tuple of float
            Its corners.
        name, color : str
        copies : int
            Frames behind one another, for what a model has several of.
        depth : int
            0 for the rearmost frames, 1 for those inside them.
        """
        width, height = upper[0] - lower[0], upper[1] - lower[1]
        x, y = (lower[0] + upper[0]) / 2, (lower[1] + upper[1]) / 2
        look: dict[str, Any] = {"facecolor": color, "linewidth": 0.5, "zorder": depth}
        for k in reversed(range(copies)):
            self._rectangle(x + k * ROUNDING, y - k * ROUNDING, width, height, **look)
        text = self.word(lower[0] + ROUNDING, upper[1] - ROUNDING, name, ha="left", va="top")
        frame = Box(x, y, width, height, text)
        self.frames.append(frame)
        return frame

    def word(self, x: float, y: float, text: str, **look: Any) -> Text:
        """Write outside boxes, centred unless told otherwise."""
        found = self.axes.text(x, y, text, **{"ha": "center", "va": "center", "zorder": 5} | look)
        self.words.append(found)
        return found

    def arrow(self, *points: Point, head: bool = True, **look: Any) -> None:
        """Draw straight lines through points, with a head at the last one."""
        line: dict[str, Any] = {"color": BLACK, "linewidth": 1.0, "linestyle": "-"} | look
        # A solid head of its own: dashes would break it up.
        x, y = zip(*points, strict=True)
        self.axes.plot(x, y, zorder=2, solid_capstyle="butt", **line)
        if head:
            end = Path(list(points[-2:]), [Path.MOVETO, Path.LINETO])
            tip: dict[str, Any] = {"color": line["color"], "linewidth": 0, "zorder": 2}
            shape = "-|>,head_length=3.2,head_width=1.7"
            self.axes.add_patch(
                FancyArrowPatch(path=end, arrowstyle=shape, mutation_scale=1, **tip)
            )

    def _rectangle(self, x: float, y: float, width: float, height: float, **look: Any) -> None:
        corner = (x - width / 2, y - height / 2)
        style = f"round,pad=0,rounding_size={ROUNDING}"
        self.axes.add_patch(
            FancyBboxPatch(corner, width, height, boxstyle=style, edgecolor=BLACK, **look)
        )


def centres(start: float, widths: Sequence[float], gap: float | Sequence[float]) -> list[float]:
    """Return the centres of columns of some widths, one after another from `start`, with gaps."""
    gaps = [gap] * (len(widths) - 1) if isinstance(gap, int | float) else list(gap)
    found, left = [], start
    for width, after in zip(widths, [*gaps, 0.0], strict=True):
        found.append(left + width / 2)
        left += width + after
    return found

"""Where things stand in a figure that has been drawn, in inches."""

from __future__ import annotations

from itertools import combinations

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text
from matplotlib.transforms import Bbox

SLACK = 0.005
"""Rounding to pixels, inches."""


def drawn(figure: Figure) -> Figure:
    FigureCanvasAgg(figure).draw()
    return figure


def extent(figure: Figure, artist: Text | Legend) -> Bbox:
    found = artist.get_window_extent()
    return Bbox(found.get_points() / figure.dpi)


def texts(figure: Figure) -> list[Text]:
    """Return all that is written, without the labels of ticks out of sight."""
    hidden: set[int] = set()
    for axes in figure.findobj(Axes):
        assert isinstance(axes, Axes)
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if not axes.axison or not low <= tick.get_loc() <= high:
                    hidden |= {id(tick.label1), id(tick.label2)}
    found = [t for t in figure.findobj(Text) if isinstance(t, Text) and t.get_visible()]
    return [t for t in found if t.get_text().strip() and id(t) not in hidden]


def contains(outer: Bbox, inner: Bbox, slack: float = SLACK) -> bool:
    return (
        outer.x0 - slack <= inner.x0
        and outer.y0 - slack <= inner.y0
        and inner.x1 <= outer.x1 + slack
        and inner.y1 <= outer.y1 + slack
    )


def overlap(a: Bbox, b: Bbox, slack: float = SLACK) -> bool:
    across = min(a.x1, b.x1) - max(a.x0, b.x0)
    along = min(a.y1, b.y1) - max(a.y0, b.y0)
    return across > slack and along > slack


def require_tidy(figure: Figure) -> None:
    """All words lie in the figure, none on another, and no legend covers axes."""
    drawn(figure)
    page = Bbox.from_bounds(0, 0, *figure.get_size_inches())
    found = [(t.get_text(), extent(figure, t)) for t in texts(figure)]
    for text, box in found:
        assert contains(page, box), text
    for (one, a), (other, b) in combinations(found, 2):
        assert not overlap(a, b, slack=0.02), (one, other)
    for legend in figure.legends:
        box = extent(figure, legend)
        assert contains(page, box)
        for axes in figure.axes:
            panel = axes.get_tightbbox()
            assert panel is not None
            assert not overlap(Bbox(panel.get_points() / figure.dpi), box)

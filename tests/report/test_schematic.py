from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from matplotlib.transforms import Bbox

from tests.report.inside import contains, drawn, extent, overlap, texts
from uqsonet_study.report.figures.diagram import Box, Diagram, centres
from uqsonet_study.report.figures.schematic import (
    INFERENCE,
    TRAINING,
    build,
    draw_schematic,
    schematic_figure,
)
from uqsonet_study.report.figures.style import STRIP, WIDTH, save, styled


@pytest.fixture(scope="module")
def diagram() -> Iterator[Diagram]:
    with styled():
        diagram = build()
        drawn(diagram.figure)
        yield diagram


def place(box: Box) -> Bbox:
    return Bbox.from_bounds(box.x - box.width / 2, box.y - box.height / 2, box.width, box.height)


def test_one_unit_is_one_inch(diagram: Diagram) -> None:
    corner = diagram.axes.transData.transform((1.0, 1.0)) / diagram.figure.dpi
    assert corner == pytest.approx([1.0, 1.0], abs=1e-6)


def test_no_text_overflows_its_box(diagram: Diagram) -> None:
    for box in diagram.boxes:
        if box.text.get_text():
            inner = Bbox.from_extents(*place(box).extents).padded(-0.02)
            assert contains(inner, extent(diagram.figure, box.text)), box.text.get_text()


def test_boxes_are_apart(diagram: Diagram) -> None:
    for a, b in combinations(diagram.boxes, 2):
        assert not overlap(place(a).padded(0.02), place(b).padded(0.02)), (a.text, b.text)


def test_a_box_lies_in_a_frame_or_beside_it(diagram: Diagram) -> None:
    for frame in diagram.frames:
        for box in diagram.boxes:
            assert contains(place(frame), place(box)) or not overlap(place(frame), place(box))


def test_free_words_are_free(diagram: Diagram) -> None:
    words = [extent(diagram.figure, word) for word in diagram.words]
    for word in words:
        assert not any(overlap(word, place(box)) for box in diagram.boxes)
        for frame in diagram.frames:
            assert contains(place(frame), word) or not overlap(place(frame), word)
    assert not any(overlap(a, b) for a, b in combinations(words, 2))


def test_words_and_legend_lie_in_the_figure(diagram: Diagram) -> None:
    page = Bbox.from_bounds(0, 0, *diagram.figure.get_size_inches())
    assert all(contains(page, extent(diagram.figure, text)) for text in texts(diagram.figure))
    legend = diagram.axes.get_legend()
    assert legend is not None
    below = extent(diagram.figure, legend)
    assert contains(page, below)
    assert not any(overlap(below, place(box)) for box in (*diagram.boxes, *diagram.frames))


def test_arrows_cross_no_box(diagram: Diagram) -> None:
    for line in diagram.axes.lines:
        if line.get_zorder() != 2:  # the sketch of an input
            continue
        points = line.get_xydata()
        for (x0, y0), (x1, y1) in pairwise(points):
            assert x0 == pytest.approx(x1) or y0 == pytest.approx(y1)
            segment = Bbox.from_extents(min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))
            for box in diagram.boxes:
                inner = place(box).padded(-0.01)
                assert not inner.fully_overlaps(segment), box.text.get_text()


def test_the_papers_symbols(diagram: Diagram) -> None:
    said = " ".join(text.get_text() for text in texts(diagram.figure))
    for symbol in (
        r"\Lambda_x(x_i)",
        r"\Lambda_{\kappa}(\kappa(x_i))",
        "w_l",
        r"\sqrt{d_{\mathrm{emb}}}",
        r"v_l(\Lambda_i)",
        r"h^{(l)}(\mathcal{O})",
        r"h(\mathcal{O})",
        r"\mathcal{E}(h(\mathcal{O}), \bar{u})",
        r"\mu_z",
        r"\Sigma_z",
        r"D_{\mathrm{KL}}(q_E \,\Vert\, p(z))",
        r"\mathcal{N}(0, I)",
        r"b^n(h(\mathcal{O}), z)",
        "t^n(y)",
        "u(y)",
    ):
        assert symbol in said, symbol


def test_paths_differ_in_dashes() -> None:
    assert TRAINING["linestyle"] != INFERENCE["linestyle"]
    with styled():
        legend = draw_schematic().axes[0].get_legend()
    assert legend is not None
    names = [text.get_text().split(":")[0] for text in legend.get_texts()]
    assert names[::2] == ["training and inference", "training only", "inference only"]


def test_schematic_repeats_byte_by_byte(tmp_path: Path) -> None:
    found = []
    for name in "ab":
        pdf, png = tmp_path / f"{name}.pdf", tmp_path / f"{name}.png"
        schematic_figure("full", pdf, png)
        found.append((pdf.read_bytes(), png.read_bytes()))
    assert found[0] == found[1]
    assert found[0][0].startswith(b"%PDF") and b"/Type3" not in found[0][0]
    assert found[0][1].startswith(b"\x89PNG")


def test_smoke_scale_leaves_the_schematic_as_it_is(tmp_path: Path) -> None:
    with styled():
        smoke = build()
        before = smoke.figure.get_figheight()
        save(smoke.figure, "smoke", tmp_path / "a.pdf", tmp_path / "a.png")
        drawn(smoke.figure)
        assert smoke.figure.get_figheight() == pytest.approx(before + STRIP)
        corner = smoke.axes.transData.transform((WIDTH, before)) / smoke.figure.dpi
    assert corner == pytest.approx([WIDTH, before], abs=1e-6)


def test_centres() -> None:
    assert centres(1.0, [2.0, 4.0], 0.5) == [2.0, 5.5]
    assert centres(0.0, [1.0, 1.0, 1.0], [1.0, 2.0]) == [0.5, 2.5, 5.5]

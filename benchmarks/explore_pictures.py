"""Screenshots of the pages in docs/explore, in every state: python -m benchmarks.explore_pictures.

Names of pictures after the command choose some of them.
"""

from __future__ import annotations

import io
import math
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from tests.browser import browser
from tests.test_explore import fitted
from uqsonet.show.explore import write_page

FOLDER = Path(__file__).parents[1] / "docs/explore"
SETTLED = "body[data-state=ready]"

DIFFUSION = "k=-0.62,2.2,0;-0.1,0.6,0.1;0.55,1.8,0"
TWO = "k=-0.62,2.2,0;0.55,1.8,0"
FLOW = "w_0=0.25,0.3,0.5,0;0.7,0.35,-0.4,0;0.45,0.75,0.3,0.05"
PHONE = {"width": 390, "height": 844}
WIDE = {"width": 1200, "height": 640}


@dataclass(frozen=True)
class State:
    """A page, the sensors of its link, what a reader does, and the window."""

    page: str
    sensors: str
    act: Callable[[Page], None] | None = None
    scheme: Literal["light", "dark"] = "light"
    size: dict[str, int] = field(default_factory=lambda: {"width": 1100, "height": 640})
    whole: bool = True
    """Whether what is below the window belongs to the picture."""


def next_sensor(page: Page) -> None:
    """Ask where the next sensor of the first field helps most."""
    page.check("#gain")
    page.select_option("#gain-field", "0")


def keyboard(page: Page) -> None:
    """Go to the second sensor with the keyboard and move it."""
    for key in ("Tab", "Tab", "ArrowUp", "ArrowUp"):
        page.keyboard.press(key)


def samples(page: Page) -> None:
    """Show a sample function on the second map of each field."""
    for choice in page.locator(".panel select").all()[1::2]:
        choice.select_option("sample")


def refused(page: Page) -> None:
    """Type a value that a positive field cannot have, and a negative noise."""
    page.fill('tbody tr:nth-child(1) input[name="value"]', "-1")
    page.fill('tbody tr:nth-child(2) input[name="noise"]', "-0.1")
    page.keyboard.press("Tab")


def pointed(page: Page) -> None:
    """Point at a place of the output."""
    box = page.locator(".plot").nth(1).bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])


def unfolded(page: Page) -> None:
    """Unfold what is said about exactness."""
    page.click("details summary")


STATES = {
    # The first screen.
    "diffusion": State("diffusion1d", DIFFUSION, pointed),
    "navier-stokes": State("navier_stokes", FLOW, scheme="dark", size=WIDE),
    # What one can do.
    "both-sides": State("diffusion1d", "k=-0.62,2.2,0&u=-0.35,-0.35,0.02;0.4,0.2,0.02"),
    "next-sensor": State("diffusion1d", TWO, next_sensor),
    "navier-stokes-next": State("navier_stokes", FLOW, next_sensor, size=WIDE),
    "navier-stokes-samples": State("navier_stokes", FLOW, samples, size=WIDE),
    "navier-stokes-both": State(
        "navier_stokes",
        FLOW + "&w=0.2,0.8,0.3,0.02;0.8,0.2,-0.3,0.02",
        scheme="dark",
        size=WIDE,
    ),
    "keyboard": State("diffusion1d", DIFFUSION, keyboard),
    "keyboard-dark": State("diffusion1d", DIFFUSION, keyboard, "dark"),
    "next-sensor-dark": State("diffusion1d", TWO, next_sensor, "dark"),
    # What may go wrong, and nothing.
    "no-sensors": State("diffusion1d", "k="),
    "refused": State("diffusion1d", TWO, refused),
    "refused-dark": State("diffusion1d", TWO, refused, "dark"),
    "improbable": State("diffusion1d", "k=-0.62,6,0;-0.53,0.3,0;0.55,1.8,0", unfolded),
    # Other models, and a phone.
    "own-model": State("two inputs", "k=0.2,1.4,0.02;0.7,0.8,0.02&f=0.5,1.2,0.1"),
    "own-cloud": State("cloud", "a=0.2,0.3,0.4,0.02&p=0.6,0.4,0.3,0.02", next_sensor),
    "phone": State("diffusion1d", TWO, scheme="dark", size=PHONE),
    "phone-light": State("diffusion1d", TWO, refused, size=PHONE),
    "phone-map": State("navier_stokes", FLOW, next_sensor, "dark", size=PHONE),
}


def shown(page: Page, address: str, state: State) -> bytes:
    """Return the picture of a state."""
    page.goto(f"{address}#{state.sensors}", timeout=120_000)
    page.wait_for_selector(SETTLED, timeout=120_000)
    if state.act is not None:
        state.act(page)
        page.wait_for_timeout(100)
        page.wait_for_selector(SETTLED, timeout=120_000)
    page.wait_for_timeout(300)
    return page.screenshot(full_page=state.whole)


def few_colours(picture: Image.Image) -> Image.Image:
    """Return a picture of lines with its 256 most frequent colours, those exactly."""
    colours, counts = np.unique(np.asarray(picture).reshape(-1, 3), axis=0, return_counts=True)
    palette = Image.new("P", (1, 1))
    palette.putpalette(colours[np.argsort(-counts, kind="stable")[:256]].ravel().tolist())
    return picture.quantize(palette=palette, dither=Image.Dither.NONE)


FRAMES = 24
"""Pictures of the moving one, which ends where it begins."""


def moving(page: Page, address: str) -> list[Image.Image]:
    """Return pictures of a page while two of its sensors move to and fro."""
    frames = []
    for k in range(FRAMES):
        turn = math.sin(2 * math.pi * k / FRAMES)
        sensors = f"k=-0.62,{2.2 - 0.9 * turn:.4g},0;-0.1,0.6,0.1;{0.55 + 0.3 * turn:.4g},1.8,0"
        state = State("diffusion1d", sensors, whole=False)
        picture = Image.open(io.BytesIO(shown(page, address, state)))
        panels = picture.convert("RGB").crop((0, 0, 1100, 490))
        frames.append(panels.resize((820, 365), Image.Resampling.LANCZOS))
    return frames


def main(wanted: list[str]) -> None:
    """Write pictures, all of them if none is named."""
    with tempfile.TemporaryDirectory() as own, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        if not wanted or "moving" in wanted:
            page = chromium.new_page(viewport={"width": 1100, "height": 640})
            first, *rest = moving(page, (FOLDER / "diffusion1d.html").as_uri())
            times: dict[str, Any] = {"duration": 90, "loop": 0}
            first.save(
                FOLDER / "moving.webp", save_all=True, append_images=rest, quality=80, **times
            )
            page.close()
        for name in [name for name in wanted or STATES if name != "moving"]:
            state = STATES[name]
            path = FOLDER / f"{state.page}.html"
            if not path.exists():
                path = Path(own) / path.name
                if not path.exists():
                    write_page(fitted(state.page.partition(" ")[0]), path, state.page)
            options: dict[str, Any] = {"viewport": state.size, "color_scheme": state.scheme}
            page = chromium.new_page(**options, is_mobile=state.size is PHONE)
            picture = Image.open(io.BytesIO(shown(page, path.as_uri(), state))).convert("RGB")
            if state.page in ("diffusion1d", "two inputs"):
                picture = few_colours(picture)
            picture.save(FOLDER / f"{name}.png", optimize=True)
            page.close()
        chromium.close()


if __name__ == "__main__":
    main(sys.argv[1:])

"""The pictures of docs/explore, of two pages that `uqsonet explore` writes: make explore."""

from __future__ import annotations

import io
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, ViewportSize, sync_playwright

from tests.browser import browser

FOLDER = Path(__file__).parent / "explore"
COMMANDS = {"diffusion1d": "explore-exact", "navier_stokes": "explore"}
SIZE, WIDE = ViewportSize(width=1100, height=640), ViewportSize(width=1200, height=640)
DIFFUSION = "k=-0.62,2.2,0;-0.1,0.6,0.1;0.55,1.8,0"
FLOW = "w_0=0.25,0.3,0.5,0;0.7,0.35,-0.4,0;0.45,0.75,0.3,0.05"
FRAMES = 24  # of the moving picture, which ends where it begins


def shown(page: Page, address: str, act: Callable[[Page], None] | None = None) -> Image.Image:
    """Return the picture of an address, after what a reader does there."""
    page.goto("about:blank")
    page.goto(address)
    for step in (act, None):
        page.wait_for_selector("body[data-state=ready]", timeout=120_000)
        if step is not None:
            step(page)
        page.wait_for_timeout(300)
    return Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")


def main() -> None:
    """Write all pictures."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        address = {}
        for name, command in COMMANDS.items():
            path = Path(folder) / f"{name}.html"
            subprocess.run([sys.executable, "-m", "uqsonet", command, name, "-o", path], check=True)
            address[name] = f"{path.as_uri()}#"
        one, flow = address["diffusion1d"], address["navier_stokes"]
        chromium = playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        page = chromium.new_page(viewport=SIZE)
        both = "k=-0.62,2.2,0&u=-0.35,-0.35,0.02;0.4,0.2,0.02"
        pictures = {
            "diffusion": shown(page, one + DIFFUSION),
            "both-sides": shown(page, one + both),
            "next-sensor": shown(
                page, one + "k=-0.62,2.2,0;0.55,1.8,0", lambda p: p.check("#gain")
            ),
            "navier-stokes": shown(
                chromium.new_page(viewport=WIDE, color_scheme="dark"), flow + FLOW
            ),
        }
        for name, picture in pictures.items():
            maps = name == "navier-stokes"  # need all colours
            small = picture if maps else picture.quantize(256, dither=Image.Dither.NONE)
            small.save(FOLDER / f"{name}.png", optimize=True)
        frames = []
        for turn in (math.sin(2 * math.pi * k / FRAMES) for k in range(FRAMES)):
            sensors = f"k=-0.62,{2.2 - 0.9 * turn:.4g},0;-0.1,0.6,0.1;{0.55 + 0.3 * turn:.4g},1.8,0"
            panels = shown(page, one + sensors).crop((0, 0, 1100, 490))
            frames.append(panels.resize((820, 365), Image.Resampling.LANCZOS))
        chromium.close()
    times: dict[str, Any] = {"duration": 90, "loop": 0, "quality": 80}
    frames[0].save(FOLDER / "moving.webp", save_all=True, append_images=frames[1:], **times)


if __name__ == "__main__":
    main()

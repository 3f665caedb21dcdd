"""Screenshots of the pages in docs/explore: python -m benchmarks.explore_pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.browser import browser

FOLDER = Path(__file__).parents[1] / "docs/explore"

STATES: dict[str, tuple[str, str, str | None, dict[str, Any]]] = {
    "diffusion": (
        "diffusion1d",
        "k=-0.62,2.2,0;-0.1,0.6,0.1;0.55,1.8,0",
        None,
        {"viewport": {"width": 1100, "height": 640}},
    ),
    "both-sides": (
        "diffusion1d",
        "k=-0.62,2.2,0&u=-0.35,-0.35,0.02;0.4,0.2,0.02",
        None,
        {"viewport": {"width": 1100, "height": 640}},
    ),
    "next-sensor": (
        "diffusion1d",
        "k=-0.62,2.2,0;0.55,1.8,0",
        "0",
        {"viewport": {"width": 1100, "height": 640}},
    ),
    "navier-stokes": (
        "navier_stokes",
        "w_0=0.25,0.3,0.5,0;0.7,0.35,-0.4,0;0.45,0.75,0.3,0.05",
        None,
        {"viewport": {"width": 1200, "height": 640}, "color_scheme": "dark"},
    ),
    "navier-stokes-next": (
        "navier_stokes",
        "w_0=0.25,0.3,0.5,0;0.7,0.35,-0.4,0;0.45,0.75,0.3,0.05",
        "0",
        {"viewport": {"width": 1200, "height": 640}},
    ),
    "phone": (
        "diffusion1d",
        "k=-0.62,2.2,0;0.55,1.8,0",
        None,
        {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "is_mobile": True},
    ),
}
"""Page, state, field of the next sensor if it is asked for, and window, by picture."""


def main() -> None:
    """Write all pictures."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        for name, (page, state, asked, window) in STATES.items():
            opened = chromium.new_page(**window)
            opened.goto(f"{(FOLDER / page).as_uri()}.html#{state}")
            opened.wait_for_selector("body[data-state=ready]", timeout=120_000)
            if asked is not None:
                opened.check("#gain")
                opened.select_option("#gain-field", asked)
                opened.wait_for_timeout(100)
                opened.wait_for_selector("body[data-state=ready]", timeout=120_000)
            opened.screenshot(path=FOLDER / f"{name}.png", full_page=name == "phone")
            opened.close()
        chromium.close()


if __name__ == "__main__":
    main()

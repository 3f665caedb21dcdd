"""Opens an HTML file in the system's Chromium and tells what a reader would stumble over."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import ConsoleMessage, Page, sync_playwright

WIDTHS = (360, 800, 1600)
NAMES = ("chromium", "chromium-browser", "google-chrome")

PICTURES = """() => [...document.images].map(i => ({
    alt: i.alt, scheme: i.src.slice(0, 5), complete: i.complete, width: i.naturalWidth}))"""
DANGLING = """() => [...document.querySelectorAll('a[href^="#"]')]
    .map(a => decodeURIComponent(a.getAttribute('href').slice(1)))
    .filter(id => !document.getElementById(id))"""
REPEATED = """() => [...document.querySelectorAll('[id]')].map(e => e.id)
    .filter((id, k, all) => all.indexOf(id) !== k)"""
OVERFLOW = """() => document.documentElement.scrollWidth - window.innerWidth"""


@dataclass(frozen=True)
class Inspection:
    """What a browser saw."""

    title: str
    messages: list[str]  # warnings and errors of the console, errors of the page
    requests: list[str]  # everything but the page itself and data: addresses
    pictures: list[dict[str, Any]]
    links: int  # links to places on the page
    dangling: list[str]  # places that links lead to and that do not exist
    repeated: list[str]  # places that exist twice
    overflow: dict[int, int]  # width of the window -> pixels by which the page is wider

    @property
    def faults(self) -> list[str]:
        """Everything that is wrong with the page; empty if nothing is."""
        broken = [
            p["alt"] for p in self.pictures if not p["complete"] or not p["width"] or not p["alt"]
        ]
        return [
            *self.messages,
            *(f"request to {address}" for address in self.requests),
            *(f"picture {alt!r} is not shown or has no text" for alt in broken),
            *(f"link to #{place} leads nowhere" for place in self.dangling),
            *(f"#{place} is there twice" for place in self.repeated),
            *(f"scrolls sideways at {w} px, by {by}" for w, by in self.overflow.items() if by > 0),
        ]


def browser() -> str:
    """Return the path of a browser; without one the test is skipped, or fails where required."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        message = f"none of {', '.join(NAMES)} is installed (Debian: apt install chromium)"
        if os.environ.get("UQSONET_REQUIRE_BROWSER") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return found


def inspect(path: Path, widths: Sequence[int] = WIDTHS) -> Inspection:
    """Open a file at each width, all its folded parts unfolded, and look at it."""
    address = path.resolve().as_uri()
    messages: list[str] = []
    requests: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            messages.append(f"console, {message.type}: {message.text}")

    def requested(url: str) -> None:
        if url != address and not url.startswith("data:"):
            requests.append(url)

    with sync_playwright() as playwright:
        # A container has no user namespaces for the sandbox; the page is our own.
        chromium = playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        page = chromium.new_page()
        page.on("console", note)
        page.on("pageerror", lambda error: messages.append(f"page error: {error}"))
        page.on("request", lambda request: requested(request.url))
        page.goto(address, wait_until="load")
        page.evaluate("() => document.querySelectorAll('details').forEach(d => d.open = true)")
        seen = Inspection(
            title=page.title(),
            messages=messages,
            requests=requests,
            pictures=page.evaluate(PICTURES),
            links=page.locator('a[href^="#"]').count(),
            dangling=page.evaluate(DANGLING),
            repeated=page.evaluate(REPEATED),
            overflow={width: _overflow(page, width) for width in widths},
        )
        chromium.close()
    return seen


def _overflow(page: Page, width: int) -> int:
    page.set_viewport_size({"width": width, "height": 800})
    return int(page.evaluate(OVERFLOW))

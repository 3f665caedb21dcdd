"""Opens an HTML file in the system's Chromium and tells what a reader would stumble over."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import ConsoleMessage, sync_playwright

WIDTHS = (360, 800, 1600)
NAMES = ("chromium", "chromium-browser", "google-chrome")

PICTURES = """() => [...document.images].map(i => ({
    alt: i.alt, scheme: i.src.slice(0, 5), complete: i.complete, width: i.naturalWidth}))"""
DANGLING = """() => [...document.querySelectorAll('a[href^="#"]')]
    .map(a => decodeURIComponent(a.getAttribute('href').slice(1)))
    .filter(id => !document.getElementById(id))"""
REPEATED = """() => [...document.querySelectorAll('[id]')].map(e => e.id)
    .filter((id, k, all) => all.indexOf(id) !== k)"""
UNREADABLE = """() => {
    const box = e => e.getBoundingClientRect(), all = what => [...document.querySelectorAll(what)];
    const name = e => `${e.tagName} ${e.className.baseVal ?? e.className} ${e.value ?? e.textContent}`;
    const beyond = (e, l, r) => box(e).width && (box(e).left < l - 1 || box(e).right > r + 1);
    const text = document.createElement('canvas').getContext('2d');
    const wide = e => (text.font = getComputedStyle(e).font, text.measureText(e.value).width);
    const room = (e, s = getComputedStyle(e)) =>
        e.clientWidth - parseFloat(s.paddingLeft) - parseFloat(s.paddingRight);
    const ticks = all('.axes').flatMap(g => [...g.querySelectorAll('text')].map(box)
        .flatMap((a, k, rest) => rest.slice(k + 1).filter(b => a.left < b.right && b.left < a.right
            && a.top < b.bottom - 3 && b.top < a.bottom - 3)));
    return [
        ...all('body *').filter(e => beyond(e, 0, innerWidth)).map(e => `beyond the window: ${name(e)}`),
        ...all('.panel *').filter(e => beyond(e, box(e.closest('.panel')).left, box(e.closest('.panel')).right))
            .map(e => `beyond its card: ${name(e)}`),
        ...all('select, td input').filter(e => wide(e) > room(e) + 0.5).map(e => `cut: ${name(e)}`),
        ...ticks.map(b => `labels overlap at ${b.left}, ${b.top}`)];
}"""
OVERFLOW = """() => document.documentElement.scrollWidth - window.innerWidth"""


@dataclass(frozen=True)
class Inspection:
    """What a browser saw."""

    title: str
    pictures: list[dict[str, Any]]
    links: int  # to places on the page
    faults: list[str]  # everything that is wrong with the page


def browser() -> str:
    """Return the path of a browser; without one the test is skipped, or fails where required."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        message = f"none of {', '.join(NAMES)} is installed (Debian: apt install chromium)"
        if os.environ.get("UQSONET_REQUIRE_BROWSER") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return found


def inspect(path: Path) -> Inspection:
    """Open a file at each width, all its folded parts unfolded, and look at it."""
    address, faults = path.resolve().as_uri(), []

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            faults.append(f"console, {message.type}: {message.text}")

    def requested(url: str) -> None:
        if url != address and not url.startswith("data:"):
            faults.append(f"request to {url}")

    with sync_playwright() as playwright:
        # A container has no user namespaces for the sandbox; the page is our own.
        chromium = playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        page = chromium.new_page()
        page.on("console", note)
        page.on("pageerror", lambda error: faults.append(f"page error: {error}"))
        page.on("request", lambda request: requested(request.url))
        page.goto(address, wait_until="load")
        page.evaluate("() => document.querySelectorAll('details').forEach(d => d.open = true)")
        pictures = page.evaluate(PICTURES)
        for picture in pictures:
            if not (picture["complete"] and picture["width"] and picture["alt"]):
                faults.append(f"picture {picture['alt']!r} is not shown or has no text")
        faults += [f"link to #{place} leads nowhere" for place in page.evaluate(DANGLING)]
        faults += [f"#{place} is there twice" for place in page.evaluate(REPEATED)]
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            if (by := page.evaluate(OVERFLOW)) > 0:
                faults.append(f"scrolls sideways at {width} px, by {by}")
        links = page.locator('a[href^="#"]').count()
        seen = Inspection(page.title(), pictures, links, faults)
        chromium.close()
    return seen

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
    const box = e => e.getBoundingClientRect();
    const all = (what, where = document) => [...where.querySelectorAll(what)];
    const named = (why, e) =>
        `${why}: ${e.tagName} ${e.className.baseVal ?? e.className} ${e.value ?? e.textContent}`;
    const beyond = (e, l, r) => box(e).width && (box(e).left < l - 1 || box(e).right > r + 1);
    const cards = all('.panel').flatMap(card => all('*', card)
        .filter(e => beyond(e, box(card).left, box(card).right)));
    const text = document.createElement('canvas').getContext('2d');
    const cut = all('select, td input').filter(e => {
        const style = getComputedStyle(e);
        text.font = style.font;
        const room = e.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
        return text.measureText(e.value).width > room + 0.5;
    });
    const covered = all('.axes').flatMap(axes => all('text', axes).filter((e, k, labels) => {
        const a = box(e);
        return labels.slice(k + 1).map(box).some(b => a.left < b.right && b.left < a.right
            && a.top < b.bottom - 3 && b.top < a.bottom - 3);
    }));
    return [
        ...all('body *').filter(e => beyond(e, 0, innerWidth)).map(e => named('beyond window', e)),
        ...cards.map(e => named('beyond card', e)), ...cut.map(e => named('cut', e)),
        ...covered.map(e => named('covered', e))];
}"""
"""What is wider than the window or its card, what is cut, and labels that cover each other."""

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

"""The documentation site builds without a warning, and a reader finds things in it, offline.

Everything happens on files: no server, and no request leaves the page.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from playwright.sync_api import Browser, sync_playwright

import uqsonet
from tests.browser import OVERFLOW, PICTURES, browser

ROOT = Path(__file__).parents[1]
PHONE = {"width": 390, "height": 800}

QUESTIONS = {
    "How do I install it?": ("tutorial.html#install", "pip install '.[runs]'"),
    "What must my files look like?": ("own-data.html#what-files-look-like", ".npz"),
    "How many runs do I need?": ("own-data.html#limits", "At least 20 runs"),
    "What arguments does fit take?": ("reference.html#uqsonet.fit", "minutes"),
    "Is my model any good?": ("scores.html#against-a-truth", "err_mean"),
    "What does a 90 % band promise?": ("own-data.html#what-a-band-promises", "exchangeable"),
    "Can I infer the input from the output?": (
        "inverse.html#an-inverse-problem-in-six-lines",
        "what u says about k",
    ),
    "Where should the next sensor stand?": (
        "placement.html#four-places-for-the-conductivity",
        "uqsonet place",
    ),
    "Which exception do I catch?": (
        "reference.html#uqsonet.errors.UQSONetError",
        "Base class",
    ),
    "How do I run the study on a cluster?": (
        "slurm.html#first-dry-then-for-real",
        "snakemake --workflow-profile",
    ),
}
"""What a newcomer asks: the place that answers, and words of the answer."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it."""
    out = tmp_path_factory.mktemp("site")
    options = ["-q", "-W", "--keep-going", "-d", str(out / "doctrees")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(out / "html")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out / "html"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        yield found
        found.close()


def targets(page: Path) -> set[str]:
    """Return where the links of a page of the site lead: ``page.html`` and ``page.html#place``."""
    found = set()
    for link in re.findall(r'<a [^>]*href="([^"]+)"', page.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:", link):
            name, _, place = unquote(link).partition("#")
            found |= {name or page.name, f"{name or page.name}#{place}"}
    return found


def test_every_page_is_reached_and_no_link_of_the_site_is_broken(site: Path) -> None:
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    pages = {page for page in pages if not page.startswith("_downloads/")}
    first = {target.partition("#")[0] for target in targets(site / "index.html")}
    assert pages - first - {"genindex.html", "py-modindex.html", "search.html"} == set()
    for name in (page for page in pages if "/" not in page):
        for target in targets(site / name):
            file, _, place = target.partition("#")
            assert (site / file).exists(), (name, target)
            if place and file.endswith(".html") and "_downloads" not in file:
                assert f'id="{place}"' in (site / file).read_text(encoding="utf-8"), (name, target)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_newcomer_finds_it_within_two_clicks(
    question: str, site: Path, chromium: Browser
) -> None:
    target, words = QUESTIONS[question]
    clicked = targets(site / "index.html")
    pages = {link for link in clicked if link.endswith(".html") and "/" not in link}
    assert target in clicked.union(*(targets(site / page) for page in pages))
    name, _, place = target.partition("#")
    page = chromium.new_page()
    page.goto(f"{(site / name).as_uri()}#{place}")
    answer = page.locator(f'section[id="{place}"], dl:has(> dt[id="{place}"])').first
    assert words in answer.inner_text()
    page.close()


def test_the_whole_interface_is_in_the_reference(site: Path) -> None:
    text = (site / "reference.html").read_text(encoding="utf-8")
    errors = {name for name in vars(uqsonet.errors) if name.endswith(("Error", "Warning"))}
    for name in uqsonet.__all__:
        home = "uqsonet.errors" if name in errors else "uqsonet"
        assert f'id="{home}.{name}"' in text, name
    for name in errors:
        assert f'id="uqsonet.errors.{name}"' in text, name
    for method in ("Emulator.condition", "Emulator.place", "FieldPosterior.band", "Runs.describe"):
        assert f'id="uqsonet.{method}"' in text, method


def test_the_pages_to_play_with_open(site: Path, chromium: Browser) -> None:
    page = chromium.new_page()
    for name in ("diffusion1d", "navier_stokes"):
        page.goto((site / "index.html").as_uri())
        page.locator(f'a[href$="{name}.html"]').first.click()
        page.wait_for_url(f"**/{name}.html")
        page.locator("main svg").first.wait_for()
    page.close()


def test_search_works_from_the_file_system(site: Path, chromium: Browser) -> None:
    requests: list[str] = []
    messages: list[str] = []
    page = chromium.new_page()
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: messages.append(message.text))
    page.goto((site / "index.html").as_uri())
    for word, found in (("exchangeable", "own-data.html"), ("partition", "slurm.html")):
        page.locator(".sidebar-search:visible").fill(word)
        page.keyboard.press("Enter")
        page.locator(f'#search-results a[href^="{found}"]').first.click()
        page.wait_for_url(f"**/{found}*")
        assert word in page.inner_text("article")
    assert [url for url in requests if not url.startswith((site.as_uri(), "data:"))] == []
    assert messages == []
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone_light_and_dark(scheme: str, site: Path, chromium: Browser) -> None:
    context = chromium.new_context(viewport=PHONE, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    outside: list[str] = []
    page.on("request", lambda request: outside.append(request.url))
    for path in sorted(site.glob("*.html")):
        page.goto(path.as_uri())
        assert page.evaluate(OVERFLOW) <= 0, path.name
        # Pictures further down are not there yet.
        assert all(picture["alt"] for picture in page.evaluate(PICTURES)), path.name
        colour = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        bright = sum(int(value) for value in re.findall(r"\d+", colour)[:3]) > 3 * 128
        assert bright == (scheme == "light"), path.name
    assert [url for url in outside if not url.startswith((site.as_uri(), "data:"))] == []
    context.close()

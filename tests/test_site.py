"""The documentation site builds without a warning, and a reader finds things in it, offline."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

import uqsonet

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[1]


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


def targets(page: Path) -> set[str]:
    """Return where the links of a page of the site lead: ``page.html`` and ``page.html#place``."""
    found = set()
    for link in re.findall(r'<a [^>]*href="([^"]+)"', page.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:", link):
            name, _, place = unquote(link).partition("#")
            found |= {name or page.name, f"{name or page.name}#{place}"}
    return found


def test_every_page_is_reached_and_no_link_of_the_site_is_broken(site):
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    pages = {page for page in pages if not page.startswith("_downloads/")}
    first = {target.partition("#")[0] for target in targets(site / "index.html")}
    assert pages - first - {"genindex.html", "py-modindex.html", "search.html"} == set()
    for name in (page for page in pages if "/" not in page):
        for target in targets(site / name):
            file, _, place = target.partition("#")
            if file.startswith("explore/"):  # `make docs` builds these pages beside the site
                continue
            assert (site / file).exists(), (name, target)
            if place and file.endswith(".html") and "_downloads" not in file:
                assert f'id="{place}"' in (site / file).read_text(encoding="utf-8"), (name, target)


def test_the_whole_interface_is_in_the_reference(site):
    text = (site / "api.html").read_text(encoding="utf-8")
    errors = {name for name in vars(uqsonet.errors) if name.endswith(("Error", "Warning"))}
    for name in uqsonet.__all__:
        home = "uqsonet.errors" if name in errors else "uqsonet"
        assert f'id="{home}.{name}"' in text, name
    for name in errors:
        assert f'id="uqsonet.errors.{name}"' in text, name
    for method in ("Emulator.condition", "Emulator.place", "FieldPosterior.band", "Runs.describe"):
        assert f'id="uqsonet.{method}"' in text, method


def test_pages_ask_nobody_for_anything(site):
    for path in site.glob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r'(?:src|<link [^>]*href)="https?:', text), path.name
    assert (site / "searchindex.js").is_file()
